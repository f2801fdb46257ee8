"""The steps of runs. Requests are references to blobs: a step costs as much in a long conversation."""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import batched
from typing import Any, Final

from sqlalchemy import Connection, delete, func, literal, select, update

from pallas.model import Blob, Step, StepDetail, StoredField, StoredStep, Usage
from pallas.model.codec import decode, encode_clean
from pallas.model.spend_limits import NOTHING, Amount

from .database import Database, insert_new
from .tables import CAUSED, blobs, runs, steps

MAX_STEPS: Final = 1_000
"""Most steps of a run that are returned."""
MAX_MESSAGES: Final = 10_000
"""Most messages of a request that are put together."""
HOUR: Final = 3600.0
_GONE: Final = '"[a message that is not stored any more]"'
_PLAIN: Final = b"\0"
_PACKED: Final = b"\1"
_AT_ONCE: Final = 500
"""Most values of one condition."""
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

    async def shared(self, digests: Iterable[str]) -> Mapping[str, str]:
        """The bodies of shared blobs by digest; of those that are stored."""
        wanted = list(digests)

        def work(connection: Connection) -> dict[str, str]:
            found: dict[str, str] = {}
            for some in batched(wanted, _AT_ONCE, strict=False):
                place = (blobs.c.scope == "", blobs.c.digest.in_(some))
                rows = connection.execute(select(blobs.c.digest, blobs.c.body).where(*place))
                found |= {row.digest: _text(row.body) for row in rows}
            return found

        return await self._database.read(work)

    async def adopt(self, run_id: str) -> tuple[int, Usage]:
        """Mark the open steps of a run whose fleet died as ``unknown``; returns how many steps it made, and
        their tokens with what they cost.
        """

        def work(connection: Connection) -> tuple[int, Usage]:
            rows = connection.execute(select(steps).where(steps.c.run_id == run_id)).all()
            used = Usage()
            for row in rows:
                stored = decode(StoredStep, json.loads(row.body))
                step = stored.step
                used += Usage(step.usage.input, step.usage.output, step.cost, step.unpriced)
                if row.state != "begun":
                    continue
                unknown = replace(stored, step=replace(stored.step, state="unknown"))
                values = {"state": "unknown", "body": encode_clean(unknown, without={"response"})}
                place = (steps.c.run_id == run_id, steps.c.number == row.number)
                connection.execute(update(steps).where(*place).values(values))
            return max((row.number for row in rows), default=0), used

        return await self._database.write(work)

    async def spent(self, run_id: str) -> Amount:
        """What the questions to models of a run used, with those of the runs that it led to."""

        def work(connection: Connection) -> Amount:
            total, level, seen = NOTHING, [run_id], {run_id}
            while level:
                wanted = select(steps.c.body).where(steps.c.run_id.in_(level), steps.c.kind == "model")
                for body in connection.execute(wanted).scalars():
                    total += _amount(decode(StoredStep, json.loads(body)).step)
                below = select(runs.c.id).where(CAUSED, runs.c.caused_by.in_(level))
                level = [each for each in connection.execute(below).scalars() if each not in seen]
                seen.update(level)
            return total

        return await self._database.read(work)


def _amount(step: Step) -> Amount:
    return Amount(step.cost or 0, (step.usage.input or 0) + (step.usage.output or 0), 1)


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
        insert = insert_new(connection, steps)
        newer = {
            name: insert.excluded[name] for name in ("name", "state", "body", "cost", "unpriced", "response")
        }
        index = [steps.c.run_id, steps.c.number]
        connection.execute(insert.on_conflict_do_update(index_elements=index, set_=newer), values)


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
        "cost": step.cost,
        "unpriced": step.unpriced,
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
