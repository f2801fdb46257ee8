"""The thread, and its message, behind which another thread goes on."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only, as all of them. Of earlier threads it is not known."""
    op.add_column("threads", sa.Column("branched_from", sa.Text(), server_default="", nullable=False))
    op.add_column("threads", sa.Column("branched_at", sa.Integer(), server_default="0", nullable=False))
    branches = sa.text("branched_from <> ''")
    op.create_index(
        "threads_branched_from_ix",
        "threads",
        ["branched_from"],
        unique=False,
        sqlite_where=branches,
        postgresql_where=branches,
    )
