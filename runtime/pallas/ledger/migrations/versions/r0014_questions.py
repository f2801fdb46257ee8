"""Questions to people, and the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), server_default="", nullable=False)


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean(), server_default=sa.text("false"), nullable=False)


def upgrade() -> None:
    """Forward only, as all of them."""
    op.create_table(
        "questions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        *map(
            _text, ("life", "run_id", "agent", "root", "path", "thread", "owner", "tool", "server", "call_id")
        ),
        sa.Column("part", sa.Integer(), server_default="0", nullable=False),
        *map(_text, ("digest", "arguments", "message", "schema")),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        _text("action"),
        _flag("always"),
        *map(_text, ("content", "answered_by")),
        sa.Column("answered_at", sa.Double(), nullable=True),
        _flag("used"),
        sa.PrimaryKeyConstraint("id", name=op.f("questions_pkey")),
    )
    op.create_index("questions_asked_at_id_ix", "questions", ["asked_at", "id"], unique=False)
    op.create_index("questions_run_id_ix", "questions", ["run_id"], unique=False)
    op.create_index("questions_root_ix", "questions", ["root"], unique=False)
    op.create_index("questions_thread_ix", "questions", ["thread"], unique=False)
    op.create_table(
        "audit",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("at", sa.Double(), nullable=False),
        *map(_text, ("who", "what", "question", "run", "agent", "tool", "digest", "detail")),
        sa.PrimaryKeyConstraint("id", name=op.f("audit_pkey")),
    )
