"""What callers and agents spend in a day, shared by all replicas."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only, as all of them."""
    op.create_table(
        "spending",
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("usd", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("held_usd", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("held_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("open_calls", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("day", "scope", name="spending_pkey"),
    )
    op.create_table(
        "spending_holds",
        sa.Column("life", sa.Text(), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("usd", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("calls", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("life", "day", "scope", name="spending_holds_pkey"),
    )
