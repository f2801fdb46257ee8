"""What runs and steps cost, by what version of an agent, and for which run."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only, as all of them. What earlier runs cost is unknown."""
    for table in ("runs", "steps"):
        op.add_column(table, sa.Column("cost", sa.BigInteger(), nullable=True))
        op.add_column(table, sa.Column("unpriced", sa.Integer(), server_default="0", nullable=False))
    for name in ("version", "caused_by"):
        op.add_column("runs", sa.Column(name, sa.Text(), server_default="", nullable=False))
    op.execute("UPDATE runs SET caused_by = within WHERE within <> ''")
    op.execute("UPDATE runs SET unpriced = 1 WHERE tokens_in IS NOT NULL OR tokens_out IS NOT NULL")
    caused = sa.text("caused_by <> ''")
    op.create_index(
        "runs_caused_by_ix",
        "runs",
        ["caused_by"],
        unique=False,
        sqlite_where=caused,
        postgresql_where=caused,
    )
