"""Which run asked for a run, how far it had come, and whether one that waits shall be cancelled."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only, as all of them. Of earlier runs it is not known."""
    op.add_column("runs", sa.Column("within", sa.Text(), server_default="", nullable=False))
    op.add_column("runs", sa.Column("reached", sa.Integer(), server_default="0", nullable=False))
    op.add_column(
        "waiting", sa.Column("cancel", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
    asked = sa.text("within <> ''")
    op.create_index(
        "runs_within_ix", "runs", ["within"], unique=False, sqlite_where=asked, postgresql_where=asked
    )
