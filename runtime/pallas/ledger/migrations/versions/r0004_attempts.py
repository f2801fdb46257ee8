"""Runs that another fleet continues."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only, as all of them. Runs that are under way have no request, so nobody continues them."""
    op.add_column("lives", sa.Column("seen", sa.Double(), nullable=True))
    op.add_column("lives", sa.Column("backend", sa.Integer(), nullable=True))
    op.add_column("lives", sa.Column("release", sa.Text(), server_default="", nullable=False))
    op.add_column("lives", sa.Column("state", sa.Text(), server_default="", nullable=False))
    op.add_column("lives", sa.Column("runs", sa.Integer(), server_default="0", nullable=False))
    op.add_column("threads", sa.Column("run_id", sa.Text(), server_default="", nullable=False))
    op.add_column("threads", sa.Column("attempt", sa.Integer(), server_default="0", nullable=False))
    op.add_column("runs", sa.Column("attempt", sa.Integer(), server_default="1", nullable=False))
    op.add_column("runs", sa.Column("deaths", sa.Integer(), server_default="0", nullable=False))
    op.add_column("runs", sa.Column("cancel", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.add_column("runs", sa.Column("request", sa.Text(), nullable=True))
    op.create_table(
        "call_results",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("part", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("native", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("call_results_run_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "part", "call_id", name=op.f("call_results_pkey")),
    )
    op.create_table(
        "waiting",
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), server_default="", nullable=False),
        sa.Column("life", sa.Text(), server_default="", nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["threads.id"], name=op.f("waiting_thread_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("position", name=op.f("waiting_pkey")),
        sa.UniqueConstraint("run_id", name=op.f("waiting_run_id_key")),
    )
    op.create_index(op.f("waiting_thread_id_ix"), "waiting", ["thread_id"], unique=False)
