"""Long work with a durable handle."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only, as all of them."""
    op.create_table(
        "tasks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), server_default="", nullable=False),
        sa.Column("owner", sa.Text(), server_default="", nullable=False),
        sa.Column("kind", sa.Text(), server_default="", nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("life", sa.Text(), server_default="", nullable=False),
        sa.Column("run_id", sa.Text(), server_default="", nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=True),
        sa.Column("preview", sa.Text(), server_default="", nullable=False),
        sa.Column("progress", sa.Text(), server_default="", nullable=False),
        sa.Column("request", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("text", sa.Text(), server_default="", nullable=False),
        sa.Column("result", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("fault", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("ttl", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "status IN ('working', 'input_required', 'completed', 'failed', 'cancelled')",
            name=op.f("tasks_status_check"),
        ),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["threads.id"], name=op.f("tasks_thread_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("tasks_pkey")),
    )
    op.create_index(op.f("tasks_created_at_id_ix"), "tasks", ["created_at", "id"], unique=False)
    op.create_index(op.f("tasks_expires_at_ix"), "tasks", ["expires_at"], unique=False)
    op.create_index(
        op.f("tasks_owner_created_at_id_ix"), "tasks", ["owner", "created_at", "id"], unique=False
    )
    op.create_index(op.f("tasks_thread_id_ix"), "tasks", ["thread_id"], unique=False)
    op.create_index(
        "tasks_under_way_ix",
        "tasks",
        ["life"],
        unique=False,
        sqlite_where=sa.text("finished_at IS NULL"),
        postgresql_where=sa.text("finished_at IS NULL"),
    )
