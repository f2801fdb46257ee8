"""The run, and its step, from which another run goes on."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only, as all of them."""
    op.add_column("runs", sa.Column("forked_from", sa.Text(), server_default="", nullable=False))
    op.add_column("runs", sa.Column("forked_at", sa.Integer(), server_default="0", nullable=False))
