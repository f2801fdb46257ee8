"""The timeline of the server at the last heartbeat of a fleet."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only, as all of them. Of lives that have not beaten since it is not known."""
    op.add_column("lives", sa.Column("timeline", sa.Integer(), nullable=True))
