"""Which fleets can be asked to drain through the ledger, and who asked."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only, as all of them. Fleets of older releases cannot be asked: they never look."""
    op.add_column(
        "lives", sa.Column("can_drain", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
    op.add_column("lives", sa.Column("drain_asked_by", sa.Text(), server_default="", nullable=False))
