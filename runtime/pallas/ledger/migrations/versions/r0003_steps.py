"""The model steps of runs."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only, as all of them."""
    op.create_table(
        "steps",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("response", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("steps_run_id_fkey"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("steps_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "blobs",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("parent", sa.Text(), server_default="", nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("used_at", sa.Double(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("blobs_run_id_fkey"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("scope", "digest", name=op.f("blobs_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("blobs_run_id_ix"), "blobs", ["run_id"], unique=False)
