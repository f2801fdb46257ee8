"""The steps of runs. Requests are references to blobs: a step costs as much in a long conversation."""

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import Connection, delete, func, literal, select

from pallas.model import Blob, Step, StepDetail, StoredField, StoredStep
from pallas.model.codec import decode, encode_clean

from .database import Database, insert_new
from .tables import blobs, runs, steps

MAX_STEPS: Final = 1_000
"""Most steps of a run that are returned."""
MAX_MESSAGES: Final = 10_000
"""Most messages of a request that are put together."""
HOUR: Final = 3600.0
_GONE: Final = '"[a message that is not stored any more]"'
_PLAIN: Final = b"\0"
_PACKED: Final = b"\1"
_PACKED_FROM: Final = 512
"""Characters from which a text is compressed."""


class StepStore:
    """The steps of one ledger. Raises Fault (TRANSPORT, TIMEOUT) if the database fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, run_id: str) -> tuple[Step, ...]:
        """The steps of a run, in order."""
        of_run = select(steps.c.body).where(steps.c.run_id == run_id)
        wanted = of_run.order_by(steps.c.number).limit(MAX_STEPS)
        rows = await self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return tuple(decode(StoredStep, json.loads(row)).step for row in rows)

    async def get(self, run_id: str, number: int) -> StepDetail | None:
        """A step with its texts."""

        def work(connection: Connection) -> StepDetail | None:
            wanted = select(steps).where(steps.c.run_id == run_id, steps.c.number == number)
            row = connection.execute(wanted).first()
            if row is None:
                return None
            stored = decode(StoredStep, json.loads(row.body))
            return StepDetail(
                stored.step, _request(connection, stored.fields), _text(row.response), stored.headers
            )

        return await self._database.read(work)


def add(
    connection: Connection, entries: Iterable[StoredStep], new: Iterable[tuple[str, Blob]], now: float
) -> None:
    """Store steps of runs that exist, and ``(run_id, blob)`` of the blobs that may not be stored yet."""
    rows = {
        (blob.scope, blob.digest): {
            "scope": blob.scope,
            "digest": blob.digest,
            "parent": blob.parent,
            "run_id": run_id if blob.scope else None,
            "used_at": now,
            "body": _packed(blob.body),
        }
        for run_id, blob in new
    }
    if rows:
        insert = insert_new(connection, blobs).on_conflict_do_update(
            index_elements=[blobs.c.scope, blobs.c.digest], set_={"used_at": now}
        )
        connection.execute(insert, list(rows.values()))
    if values := [_row(entry) for entry in entries]:
        connection.execute(insert_new(connection, steps).on_conflict_do_nothing(), values)


def forget_unused(connection: Connection) -> None:
    """Delete shared blobs that no run sent which is left."""
    oldest = select(func.coalesce(func.min(runs.c.started_at), literal(float("1e18")))).scalar_subquery()
    connection.execute(delete(blobs).where(blobs.c.run_id.is_(None), blobs.c.used_at < oldest - 2 * HOUR))


def _row(entry: StoredStep) -> dict[str, Any]:
    step = entry.step
    return {
        "run_id": step.run_id,
        "number": step.number,
        "kind": step.kind,
        "name": step.name,
        "state": step.state,
        "started_at": step.started_at,
        "body": encode_clean(entry, without={"response"}),
        "response": _packed(entry.response),
    }


def _request(connection: Connection, fields: Sequence[StoredField]) -> str:
    if not fields:
        return ""
    pieces = [f"{json.dumps(field.name)}:{_value(connection, field)}" for field in fields]
    return "{" + ",".join(pieces) + "}"


def _value(connection: Connection, field: StoredField) -> str:
    if field.text:
        return field.text
    found = [_shared(connection, digest) for digest in field.shared]
    if not field.scope:
        return found[0] if found else "null"
    return f"[{','.join((*found, *_chain(connection, field.scope, field.last)))}]"


def _shared(connection: Connection, digest: str) -> str:
    wanted = select(blobs.c.body).where(blobs.c.scope == "", blobs.c.digest == digest)
    body = connection.execute(wanted).scalar_one_or_none()
    return _GONE if body is None else _text(body)


def _chain(connection: Connection, scope: str, last: str) -> list[str]:
    """The messages up to the one with the digest ``last``, oldest first."""
    if not last:
        return []
    columns = (blobs.c.digest, blobs.c.parent, blobs.c.body)
    first = select(*columns, literal(1).label("depth")).where(blobs.c.scope == scope, blobs.c.digest == last)
    chain = first.cte("chain", recursive=True)
    before = select(*columns, (chain.c.depth + 1).label("depth")).where(
        blobs.c.scope == scope, blobs.c.digest == chain.c.parent, chain.c.depth < MAX_MESSAGES
    )
    chain = chain.union_all(before)
    rows = connection.execute(select(chain.c.parent, chain.c.body).order_by(chain.c.depth.desc())).all()
    texts = [_text(row.body) for row in rows]
    return texts if rows and not rows[0].parent else [_GONE, *texts]


def _packed(text: str) -> bytes:
    raw = text.encode("utf-8", "replace")
    return _PLAIN + raw if len(raw) < _PACKED_FROM else _PACKED + zlib.compress(raw, 1)


def _text(data: bytes) -> str:
    raw = data[1:]
    return (zlib.decompress(raw) if data[:1] == _PACKED else raw).decode()
