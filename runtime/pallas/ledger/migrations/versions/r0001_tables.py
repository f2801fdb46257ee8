"""The tables of the first release."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only: a database is copied before it is brought up to date, never taken back."""
    op.create_table(
        "idempotency",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "key", name=op.f("idempotency_pkey")),
    )
    op.create_index(op.f("idempotency_created_at_ix"), "idempotency", ["created_at"], unique=False)
    op.create_table(
        "lives",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), server_default="", nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("lives_pkey")),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("meta_pkey")),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("servers", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("prompts", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("owner", sa.Text(), server_default="", nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("projects_pkey")),
        sa.UniqueConstraint("name", name=op.f("projects_name_key")),
    )
    op.create_table(
        "secrets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("keys", sa.JSON(), nullable=False),
        sa.Column("owner", sa.Text(), server_default="", nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("secrets_pkey")),
        sa.UniqueConstraint("name", name=op.f("secrets_name_key")),
    )
    op.create_table(
        "llms",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), server_default="", nullable=False),
        sa.Column("model", sa.Text(), server_default="", nullable=False),
        sa.Column("url", sa.Text(), server_default="", nullable=False),
        sa.Column("secret_id", sa.Text(), nullable=True),
        sa.Column("secret_key", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("default_params", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("extra", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("owner", sa.Text(), server_default="", nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["secret_id"], ["secrets.id"], name=op.f("llms_secret_id_fkey"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("llms_pkey")),
        sa.UniqueConstraint("name", name=op.f("llms_name_key")),
    )
    op.create_index(op.f("llms_secret_id_ix"), "llms", ["secret_id"], unique=False)
    op.create_table(
        "agents",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("system_prompt", sa.Text(), server_default="", nullable=False),
        sa.Column("llm_id", sa.Text(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("proxy_model_name", sa.Text(), server_default="", nullable=False),
        sa.Column("default_params", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("extras", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("declared", sa.Text(), server_default="", nullable=False),
        sa.Column("made", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("owner", sa.Text(), server_default="", nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["llm_id"], ["llms.id"], name=op.f("agents_llm_id_fkey"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("agents_project_id_fkey"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("agents_pkey")),
        sa.UniqueConstraint("name", name=op.f("agents_name_key")),
    )
    op.create_index(op.f("agents_llm_id_ix"), "agents", ["llm_id"], unique=False)
    op.create_index(op.f("agents_project_id_ix"), "agents", ["project_id"], unique=False)
    op.create_table(
        "threads",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("handle", sa.Text(), nullable=True),
        sa.Column("owner", sa.Text(), server_default="", nullable=False),
        sa.Column("title", sa.Text(), server_default="", nullable=False),
        sa.Column("origin", sa.Text(), server_default="", nullable=False),
        sa.Column("next_index", sa.Integer(), server_default="0", nullable=False),
        sa.Column("context_from", sa.Integer(), server_default="0", nullable=False),
        sa.Column("summary_from", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("last_turn_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("threads_agent_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("threads_pkey")),
        sa.UniqueConstraint("agent_id", "handle", name=op.f("threads_agent_id_handle_key")),
    )
    op.create_index(
        op.f("threads_agent_id_updated_at_id_ix"), "threads", ["agent_id", "updated_at", "id"], unique=False
    )
    op.create_index(
        op.f("threads_owner_updated_at_id_ix"), "threads", ["owner", "updated_at", "id"], unique=False
    )
    op.create_index(op.f("threads_updated_at_id_ix"), "threads", ["updated_at", "id"], unique=False)
    op.create_table(
        "messages",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("turn_index", sa.Integer(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), server_default="", nullable=False),
        sa.Column("tool_calls", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("tool_call_id", sa.Text(), server_default="", nullable=False),
        sa.Column("tool_ok", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("run_id", sa.Text(), server_default="", nullable=False),
        sa.Column("pictures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("images", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("native", sa.Text(), nullable=True),
        sa.Column("summary", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "role IN ('system', 'user', 'assistant', 'tool')", name=op.f("messages_role_check")
        ),
        sa.CheckConstraint("status IN ('pending', 'complete', 'error')", name=op.f("messages_status_check")),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["threads.id"], name=op.f("messages_thread_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("messages_pkey")),
        sa.UniqueConstraint("thread_id", "turn_index", name=op.f("messages_thread_id_turn_index_key")),
    )
    op.create_index(
        "messages_pending_ix",
        "messages",
        ["run_id"],
        unique=False,
        sqlite_where=sa.text("status = 'pending'"),
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), server_default="", nullable=False),
        sa.Column("owner", sa.Text(), server_default="", nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=True),
        sa.Column("surface", sa.Text(), server_default="", nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("life", sa.Text(), server_default="", nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("seconds", sa.Double(), server_default="0", nullable=False),
        sa.Column("steps", sa.Integer(), server_default="0", nullable=False),
        sa.Column("tools", sa.Integer(), server_default="0", nullable=False),
        sa.Column("tokens_in", sa.BigInteger(), nullable=True),
        sa.Column("tokens_out", sa.BigInteger(), nullable=True),
        sa.Column("turn_index", sa.Integer(), nullable=True),
        sa.Column("fault", sa.Text(), server_default="", nullable=False),
        sa.Column("partial", sa.Text(), server_default="", nullable=False),
        sa.CheckConstraint(
            "status IN ('running', 'ok', 'error', 'cancelled')", name=op.f("runs_status_check")
        ),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["threads.id"], name=op.f("runs_thread_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("runs_pkey")),
    )
    op.create_index(op.f("runs_owner_started_at_id_ix"), "runs", ["owner", "started_at", "id"], unique=False)
    op.create_index(
        "runs_running_ix",
        "runs",
        ["life"],
        unique=False,
        sqlite_where=sa.text("status = 'running'"),
        postgresql_where=sa.text("status = 'running'"),
    )
    op.create_index(op.f("runs_started_at_id_ix"), "runs", ["started_at", "id"], unique=False)
    op.create_index(op.f("runs_thread_id_ix"), "runs", ["thread_id"], unique=False)
    op.create_table(
        "run_events",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("run_events_run_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("run_events_pkey")),
    )
