"""The claim of the fleet that has a run, in the run and in its thread."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only, as all of them. Runs of now have none until they are taken over."""
    for table in ("threads", "runs"):
        op.add_column(table, sa.Column("claim", sa.Text(), server_default="", nullable=False))
