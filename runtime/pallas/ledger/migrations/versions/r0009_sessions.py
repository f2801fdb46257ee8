"""Sessions of the bridge, which any fleet can go on with."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only, as all of them."""
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="", nullable=False),
        sa.Column("owner", sa.Text(), server_default="", nullable=False),
        sa.Column("life", sa.Text(), server_default="", nullable=False),
        sa.Column("handle", sa.Text(), server_default="", nullable=False),
        sa.Column("thread_id", sa.Text(), server_default="", nullable=False),
        sa.Column("begun", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("metadata", sa.Text(), server_default="", nullable=False),
        sa.Column("failed", sa.Text(), server_default="", nullable=False),
        sa.Column("had_prompt", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("turns", sa.Integer(), server_default="0", nullable=False),
        sa.Column("run_id", sa.Text(), server_default="", nullable=False),
        sa.Column("run_life", sa.Text(), server_default="", nullable=False),
        sa.Column("cancelled", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("used_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("sessions_agent_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("sessions_pkey")),
    )
    for column in ("agent_id", "created_at", "used_at"):
        op.create_index(op.f(f"sessions_{column}_ix"), "sessions", [column], unique=False)
