"""The span that asked for a run, by which its caller's step is found."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only, as all of them. Of earlier runs it is not known."""
    op.add_column("runs", sa.Column("parent_span", sa.Text(), server_default="", nullable=False))
    asked = sa.text("parent_span <> ''")
    op.create_index(
        "runs_parent_span_ix",
        "runs",
        ["parent_span"],
        unique=False,
        sqlite_where=asked,
        postgresql_where=asked,
    )
