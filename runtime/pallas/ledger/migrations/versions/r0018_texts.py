"""Long texts of steps as a whole, and which runs use what is stored once."""

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_AT_ONCE = 1_000


def upgrade() -> None:
    """Forward only, as all of them. Of earlier runs long texts are known by their length and digest only."""
    op.create_table(
        "texts",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("stored", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.Double(), nullable=False),
        sa.Column("lost", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("texts_pkey")),
    )
    op.create_table(
        "blob_uses",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("blob_uses_run_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "digest", name=op.f("blob_uses_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("blob_uses_digest_ix"), "blob_uses", ["digest"], unique=False)
    connection = op.get_bind()
    _note_uses(connection, "SELECT run_id, body FROM steps ORDER BY run_id", _of_step)
    _note_uses(connection, "SELECT run_id, body FROM run_events WHERE seq = 0 ORDER BY run_id", _of_texts)


def _note_uses(connection: sa.Connection, query: str, digests: Any) -> None:
    """Note which shared blobs the runs of these rows use."""
    rows = connection.execute(sa.text(query)).all()
    found = {(row.run_id, digest): None for row in rows for digest in digests(_loaded(row.body))}
    values = [{"run_id": run_id, "digest": digest} for run_id, digest in found]
    insert = sa.text(
        "INSERT INTO blob_uses (run_id, digest) VALUES (:run_id, :digest) ON CONFLICT DO NOTHING"
    )
    for at in range(0, len(values), _AT_ONCE):
        connection.execute(insert, values[at : at + _AT_ONCE])


def _loaded(body: Any) -> dict[str, Any]:
    found = json.loads(body) if isinstance(body, str) else body
    return found if isinstance(found, dict) else {}


def _of_step(body: dict[str, Any]) -> Iterator[str]:
    for field in body.get("fields") or ():
        yield from field.get("shared") or ()


def _of_texts(body: dict[str, Any]) -> Iterator[str]:
    yield from (body.get("offers") or {}).values()
