"""How many runs each fleet took over."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only, as all of them."""
    op.add_column("lives", sa.Column("taken_over", sa.Integer(), server_default="0", nullable=False))
