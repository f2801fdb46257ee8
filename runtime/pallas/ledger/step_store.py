"""The steps of runs. Requests are references to blobs: a step costs as much in a long conversation."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import batched
from typing import Any, Final

from sqlalchemy import Connection, literal, select, update

from pallas.model import Step, StepDetail, StoredField, StoredStep, Usage
from pallas.model.codec import decode, encode_clean
from pallas.model.long_strings import LEFT_OUT, LongText, shortened_json, whole_json
from pallas.model.spend_limits import NOTHING, Amount

from .blob_store import TextRoom, add_texts, lacking, packed, texts_in, unpacked
from .database import Database, insert_new
from .tables import CAUSED, blobs, runs, steps

MAX_STEPS: Final = 1_000
"""Most steps of a run that are returned."""
MAX_MESSAGES: Final = 10_000
"""Most messages of a request that are put together."""
_GONE: Final = '"[a message that is not stored any more]"'
_AT_ONCE: Final = 500
"""Most values of one condition."""


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
            users = {run_id}
            request, response = _request(connection, stored.fields, users), unpacked(row.response)
            texts = texts_in(connection, (request, response), users)
            request, response = whole_json(request, texts), whole_json(response, texts)
            lacks = tuple(lacking(connection, (request, response)))
            return StepDetail(stored.step, request, response, stored.headers, lacks)

        return await self._database.read(work)

    async def shared(self, digests: Iterable[str]) -> Mapping[str, str]:
        """The bodies of shared blobs by digest; of those that are stored."""
        wanted = list(digests)

        def work(connection: Connection) -> dict[str, str]:
            found: dict[str, str] = {}
            for some in batched(wanted, _AT_ONCE, strict=False):
                place = (blobs.c.scope == "", blobs.c.digest.in_(some))
                rows = connection.execute(select(blobs.c.digest, blobs.c.body).where(*place))
                found |= {row.digest: unpacked(row.body) for row in rows}
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
    connection: Connection,
    entries: Iterable[StoredStep],
    room: TextRoom,
    uses: set[tuple[str, str]],
    now: float,
) -> None:
    """Store steps of runs that exist, with the long texts of their responses; these are added to ``uses``."""
    values: list[dict[str, Any]] = []
    texts: list[LongText] = []
    for entry in entries:
        response, found = shortened_json(entry.response)
        values.append(_row(entry, response))
        texts += found
        uses.update((entry.step.run_id, each.digest) for each in found)
    add_texts(connection, texts, room, now)
    if values:
        insert = insert_new(connection, steps)
        newer = {
            name: insert.excluded[name] for name in ("name", "state", "body", "cost", "unpriced", "response")
        }
        index = [steps.c.run_id, steps.c.number]
        connection.execute(insert.on_conflict_do_update(index_elements=index, set_=newer), values)


def _row(entry: StoredStep, response: str) -> dict[str, Any]:
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
        "response": packed(response),
    }


def _request(connection: Connection, fields: Sequence[StoredField], users: set[str]) -> str:
    """The request, with its long texts shortened; the runs that sent these are added to ``users``."""
    if not fields:
        return ""
    pieces = [f"{json.dumps(field.name)}:{_value(connection, field, users)}" for field in fields]
    return "{" + ",".join(pieces) + "}"


def _value(connection: Connection, field: StoredField, users: set[str]) -> str:
    if field.text:
        return field.text
    found = [_shared(connection, digest) for digest in field.shared]
    if not field.scope:
        return found[0] if found else "null"
    return f"[{','.join((*found, *_chain(connection, field.scope, field.last, users)))}]"


def _shared(connection: Connection, digest: str) -> str:
    wanted = select(blobs.c.body).where(blobs.c.scope == "", blobs.c.digest == digest)
    body = connection.execute(wanted).scalar_one_or_none()
    return _GONE if body is None else unpacked(body)


def _chain(connection: Connection, scope: str, last: str, users: set[str]) -> list[str]:
    """The messages up to the one with the digest ``last``, oldest first."""
    if not last:
        return []
    columns = (blobs.c.digest, blobs.c.parent, blobs.c.run_id, blobs.c.body)
    first = select(*columns, literal(1).label("depth")).where(blobs.c.scope == scope, blobs.c.digest == last)
    chain = first.cte("chain", recursive=True)
    before = select(*columns, (chain.c.depth + 1).label("depth")).where(
        blobs.c.scope == scope, blobs.c.digest == chain.c.parent, chain.c.depth < MAX_MESSAGES
    )
    chain = chain.union_all(before)
    wanted = select(chain.c.parent, chain.c.run_id, chain.c.body).order_by(chain.c.depth.desc())
    rows = connection.execute(wanted).all()
    texts = [unpacked(row.body) for row in rows]
    users.update(row.run_id for row, text in zip(rows, texts, strict=True) if LEFT_OUT.search(text))
    return texts if rows and not rows[0].parent else [_GONE, *texts]
