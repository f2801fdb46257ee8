"""The full-text index of what was said. SQLite keeps it in triggers, so older releases keep it too."""

from alembic import op

from pallas.ledger.message_search import create_search

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only, as all of them."""
    create_search(op.get_bind())
