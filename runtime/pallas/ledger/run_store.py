"""Runs in the ledger, their events, and idempotency keys."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import batched, chain
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, delete, select, tuple_, update

from pallas.model import EndedRun, Page, RunRecord, RunStatus, RunTexts, StoredRequest, refusals
from pallas.model.codec import decode, encode_fields, loads, visible
from pallas.safe_text import without_controls

from . import step_store, turn_statements
from .blob_store import TextRoom, add_blobs, add_texts
from .database import Database, Reading, insert_new
from .message_rows import run_record
from .page_cursor import check_limit, cursor_of, place_of
from .replica_store import short_id
from .tables import ASKED, RUNNING, idempotency, lives, run_events, runs, waiting

KEY_SECONDS: Final = 24 * 3600.0
"""Seconds that an idempotency key is valid."""
MAX_EVENTS: Final = 10_000
"""Most events that are returned at once."""
_CANCELLED: Final = "cancelled "
"""Precedes the digest of a key whose run was cancelled before the ledger knew of it."""
_TEXTS: Final = 0
"""The number under which the texts of a run are stored, before its events."""
MAX_ASKED: Final = 1_000
"""Most runs that are returned for the spans that asked for them."""
_AT_ONCE: Final = 500
"""Values in one condition."""
MAX_ELSEWHERE: Final = 200
"""Most running runs of other fleets that are returned, and most that are asked for by their ids."""
_NEWEST: Final = 100
_ENDED_SECONDS: Final = 60.0
"""Seconds for which a run that is over is among those of other fleets: clocks of machines differ."""
MAX_LAST: Final = 200
"""Most runs that are returned with their events."""
_EVENTS_OF_RUN: Final = 500
_EVENTS_OF_ALL: Final = 5_000


class OwnRuns(NamedTuple):
    """The ids of a fleet's runs that have begun, and of those that shall be cancelled."""

    begun: frozenset[str]
    to_cancel: frozenset[str]


class LastRun(NamedTuple):
    """A run that is over, with its events in order, or the last of them behind the first."""

    run: RunRecord
    replica: str
    """The id of the replica that had it; empty if that is gone."""
    events: tuple[dict[str, Any], ...]


class KeyState(NamedTuple):
    """Whether the run of a key shall be cancelled, and whether the ledger knows of the run."""

    is_cancelled: bool
    has_begun: bool


class RunStore:
    """The runs of one ledger. Raises Fault (TRANSPORT, TIMEOUT) if the database fails."""

    def __init__(self, database: Database, life: str, clock: Callable[[], float], room: TextRoom) -> None:
        self._database = database
        self._life = life
        self._clock = clock
        self._mine: Reading[OwnRuns] | None = None
        self._room = room

    async def begin(self, run: RunRecord) -> None:
        """Record that a run without a thread begins."""
        await self._database.write(lambda connection: turn_statements.start(connection, run, self._life))

    async def finish(self, run: RunRecord) -> None:
        """Record the end of a run without a thread."""
        await self._database.write(
            lambda connection: turn_statements.stop(connection, run, self._life, at=run.turn_index)
        )

    async def get(self, run_id: str) -> RunRecord | None:
        """The run of that id."""
        row = await self._database.read(
            lambda connection: connection.execute(select(runs).where(runs.c.id == run_id)).first()
        )
        return run_record(row) if row is not None else None

    async def find(self, run_id: str) -> RunRecord | None:
        """The run of that id, also one that waits for its thread and has not begun."""

        def work(connection: Connection) -> RunRecord | None:
            # In this order: a run that begins between the two has left the queue, and is found.
            queued = connection.execute(select(waiting).where(waiting.c.run_id == run_id)).first()
            row = connection.execute(select(runs).where(runs.c.id == run_id)).first()
            if row is not None:
                return run_record(row)
            return _waiting_record(queued) if queued is not None else None

        return await self._database.read(work)

    async def elsewhere(self, known: Sequence[str] = (), here: str = "") -> Sequence[tuple[RunRecord, str]]:
        """Runs of other fleets that run, or ended a short while ago, each with the id of its replica.

        Others than ``here``, the id of a replica; than this fleet without one.

        Also those with the ids ``known``, of any fleet. The cost is bounded, however many runs there are:
        at most ``MAX_ELSEWHERE`` that run are returned, and those that ended only if they are among the
        newest runs of all.
        """
        here = here or short_id(self._life)
        fleets = select(lives.c.id).where(~lives.c.id.startswith(here, autoescape=True), lives.c.state != "")
        newest = select(runs.c.id).order_by(runs.c.started_at.desc(), runs.c.id.desc()).limit(_NEWEST)
        ended = runs.c.finished_at > self._clock() - _ENDED_SECONDS
        found = select(*(each for each in runs.c if each.name != "request"))  # which may be large
        parts = (
            found.where(RUNNING, runs.c.life.in_(fleets)).limit(MAX_ELSEWHERE),
            found.where(
                runs.c.id.in_(newest),
                runs.c.life != "",
                ~runs.c.life.startswith(here, autoescape=True),
                ended,
            ),
            found.where(runs.c.id.in_(list(known)[:MAX_ELSEWHERE])),
        )

        def work(connection: Connection) -> list[Any]:
            return list(chain.from_iterable(connection.execute(each).all() for each in parts))

        rows = {row.id: row for row in await self._database.read(work)}
        return [(run_record(row), short_id(row.life)) for row in rows.values()]

    async def last(self, limit: int) -> Sequence[LastRun]:
        """The last ``limit`` runs that are over, ``MAX_LAST`` at most, of any fleet; the oldest first.

        The events of all of them are bounded: the newest runs have theirs.
        """
        found = select(*(each for each in runs.c if each.name != "request"))  # which may be large
        over = found.where(runs.c.status != "running").order_by(runs.c.started_at.desc(), runs.c.id.desc())

        def work(connection: Connection) -> list[LastRun]:
            rows = connection.execute(over.limit(min(limit, MAX_LAST))).all()
            of_fleets = select(lives.c.id).where(
                lives.c.state != "", lives.c.id.in_({row.life for row in rows})
            )
            alive = {self._life, *connection.execute(of_fleets).scalars()}
            last, room = [], _EVENTS_OF_ALL
            for row in rows:
                events = _last_events(connection, row.id, min(room, _EVENTS_OF_RUN))
                room -= len(events)
                last.append(LastRun(run_record(row), short_id(row.life) if row.life in alive else "", events))
            return last[::-1]

        return await self._database.read(work)

    async def ask_cancel(self, run_id: str) -> None:
        """Ask the fleet that has a run, or in which it waits for its thread, to cancel it."""
        # In this order: a run that begins between the two has left the queue.
        queued = update(waiting).where(waiting.c.run_id == run_id).values(cancel=True)
        begun = update(runs).where(runs.c.id == run_id, RUNNING).values(cancel=True)

        def work(connection: Connection) -> None:
            if not connection.execute(queued).rowcount:
                connection.execute(begun)

        await self._database.write(work)

    async def is_elsewhere(self, run_id: str) -> bool:
        """Whether another fleet has begun that run."""
        wanted = select(runs.c.id).where(runs.c.id == run_id, runs.c.life != self._life)
        return await self._database.read(lambda connection: connection.execute(wanted).first() is not None)

    async def mine(self) -> "OwnRuns":
        """This fleet's runs in threads."""
        of_thread = (runs.c.thread_id.is_not(None), runs.c.request.is_not(None))
        begun = select(runs.c.id, runs.c.cancel).where(runs.c.life == self._life, RUNNING, *of_thread)
        queued = select(waiting.c.run_id).where(waiting.c.life == self._life, waiting.c.cancel)

        def work(connection: Connection) -> OwnRuns:
            rows = connection.execute(begun).all()
            cancelled = {row.id for row in rows if row.cancel} | set(connection.execute(queued).scalars())
            return OwnRuns(frozenset(row.id for row in rows), frozenset(cancelled))

        self._mine = await self._database.read_again(work, self._mine)
        return self._mine.value

    async def list(
        self,
        *,
        agent: str | None = None,
        thread: str | None = None,
        owner: str | None = None,
        status: RunStatus | None = None,
        limit: int = 50,
        cursor: str = "",
    ) -> Page[RunRecord]:
        """Runs, latest first; ``limit`` 1 to 200. Raises Fault (PROTOCOL) on a bad cursor."""
        check_limit(limit)
        place = place_of(cursor, "runs", float)
        wanted = select(runs).order_by(runs.c.started_at.desc(), runs.c.id.desc()).limit(limit + 1)
        asked = {"agent": agent, "thread_id": thread, "owner": owner, "status": status}
        for name, value in asked.items():
            if value is not None:
                wanted = wanted.where(runs.c[name] == value)
        if place is not None:
            wanted = wanted.where(tuple_(runs.c.started_at, runs.c.id) < tuple_(*place))
        rows = await self._database.read(lambda connection: connection.execute(wanted).all())
        found = tuple(map(run_record, rows[:limit]))
        more = len(rows) > limit
        return Page(found, cursor_of("runs", found[-1].started_at, found[-1].id) if more else "")

    async def events(
        self, run_id: str, after: int = 0, limit: int = 1000
    ) -> Sequence[tuple[int, dict[str, Any]]]:
        """Events of a run with numbers above ``after``, in order."""
        wanted = (
            select(run_events.c.seq, run_events.c.body)
            .where(run_events.c.run_id == run_id, run_events.c.seq > after)
            .order_by(run_events.c.seq)
            .limit(max(0, min(limit, MAX_EVENTS)))
        )
        rows = await self._database.read(lambda connection: connection.execute(wanted).all())
        return [(row.seq, row.body) for row in rows]

    async def texts(self, run_ids: Collection[str]) -> Mapping[str, RunTexts]:
        """The questions and answers of runs that are over, by run; of those for which they are stored."""
        wanted = list(run_ids)

        def work(connection: Connection) -> dict[str, RunTexts]:
            found: dict[str, RunTexts] = {}
            for some in batched(wanted, _AT_ONCE, strict=False):
                place = (run_events.c.run_id.in_(some), run_events.c.seq == _TEXTS)
                rows = connection.execute(select(run_events.c.run_id, run_events.c.body).where(*place))
                found |= {row.run_id: decode(RunTexts, row.body) for row in rows}
            return found

        return await self._database.read(work)

    async def asked_by(self, spans: Sequence[str]) -> Sequence[RunRecord]:
        """The first ``MAX_ASKED`` runs that these spans asked for, in the order in which they began."""
        wanted = (
            select(runs)
            .where(runs.c.parent_span.in_(spans), ASKED)
            .order_by(runs.c.started_at, runs.c.id)
            .limit(MAX_ASKED)
        )
        rows = await self._database.read(lambda connection: connection.execute(wanted).all())
        return [run_record(row) for row in rows]

    async def add_events(
        self, run_id: str, rows: Sequence[tuple[int, dict[str, Any]]], *, claim: str = ""
    ) -> None:
        """Add events of a run that has begun; a number that exists is ignored.

        Raises Fault: not found without the run; taken over if another fleet has the run or ended it, whose
        readers do not get what is added for an earlier ``claim``.
        """
        if not rows:
            return
        now = self._clock()
        values = [
            {"run_id": run_id, "seq": seq, "at": now, "body": visible(body, without_controls)}
            for seq, body in rows
        ]

        def work(connection: Connection) -> None:
            wanted = select(runs.c.claim).where(runs.c.id == run_id).with_for_update(read=True)
            if (row := connection.execute(wanted).first()) is None:
                raise refusals.not_found("run not found: it is unknown, or was deleted with its thread")
            if claim and row.claim not in ("", claim):
                raise refusals.taken_over()
            connection.execute(insert_new(connection, run_events).on_conflict_do_nothing(), values)

        await self._database.write(work)

    async def record(self, left: Iterable[EndedRun]) -> None:
        """Store many finished runs in one transaction; one that another fleet has or ended stays as it is.

        Events and steps of a run that does not exist (any more) are dropped.
        """
        now = self._clock()
        left = list(left)
        rows = {
            each.run_id: [
                {"run_id": each.run_id, "seq": seq, "at": now, "body": visible(body, without_controls)}
                for seq, body in _numbered(each)
            ]
            for each in left
        }

        def work(connection: Connection) -> None:
            for each in left:
                if each.run is not None and turn_statements.may_stop(connection, each.run):
                    turn_statements.stop(connection, each.run, self._life, at=each.run.turn_index)
            there = set(connection.execute(select(runs.c.id).where(runs.c.id.in_(list(rows)))).scalars())
            if values := [row for run_id in there for row in rows[run_id]]:
                connection.execute(insert_new(connection, run_events).on_conflict_do_nothing(), values)
            known = [each for each in left if each.run_id in there]
            uses = {(each.run_id, digest) for each in known for digest in each.uses}
            step_store.add(
                connection, chain.from_iterable(each.steps for each in known), self._room, uses, now
            )
            blobs = [(each.run_id, blob) for each in known for blob in each.blobs]
            add_texts(connection, [text for _, blob in blobs for text in blob.texts], self._room, now)
            add_blobs(connection, blobs, uses, now)

        await self._database.write(work)

    async def release_key(self, owner: str, key: str, run_id: str) -> None:
        """Free a key whose run was refused."""
        place = (idempotency.c.owner == owner, idempotency.c.key == key, idempotency.c.run_id == run_id)
        await self._database.write(lambda connection: connection.execute(delete(idempotency).where(*place)))

    async def close_key(self, owner: str, key: str, run_id: str) -> str:
        """The run of this key; ``run_id`` if it has none, and then no request runs with that key any more.

        A run that another fleet is about to begin is marked: ``key_state`` tells that fleet.
        """
        place = (idempotency.c.owner == owner, idempotency.c.key == key)
        values = {"owner": owner, "key": key, "run_id": run_id, "digest": "", "created_at": self._clock()}

        def work(connection: Connection) -> str:
            connection.execute(insert_new(connection, idempotency).values(values).on_conflict_do_nothing())
            found = connection.execute(select(idempotency).where(*place)).one()
            is_marked = not found.digest or found.digest.startswith(_CANCELLED)
            if not is_marked and not _has_begun(connection, found.run_id):
                marked = update(idempotency).where(*place, idempotency.c.run_id == found.run_id)
                connection.execute(marked.values(digest=_CANCELLED + found.digest))
            return str(found.run_id)

        return await self._database.write(work)

    async def key_state(self, owner: str, key: str, run_id: str) -> KeyState:
        """What became of the run of this key."""
        place = (idempotency.c.owner == owner, idempotency.c.key == key, idempotency.c.run_id == run_id)

        def work(connection: Connection) -> KeyState:
            # In this order: who cancels a run between the two finds its row.
            has_begun = _has_begun(connection, run_id)
            digest = connection.execute(select(idempotency.c.digest).where(*place)).scalar_one_or_none()
            return KeyState((digest or "").startswith(_CANCELLED), has_begun)

        return await self._database.read(work)

    async def claim_key(self, owner: str, key: str, run_id: str, digest: str, *, joins: bool = False) -> str:
        """The run of this key: ``run_id`` from now on, or the run that claimed it before.

        ``digest`` identifies the request, and after a point its message: with ``joins`` that is enough.
        Raises Fault (conflict) if the key was used for another request.
        """
        now = self._clock()
        place = (idempotency.c.owner == owner, idempotency.c.key == key)
        values = {"owner": owner, "key": key, "run_id": run_id, "digest": digest, "created_at": now}

        def work(connection: Connection) -> str:
            connection.execute(
                delete(idempotency).where(*place, idempotency.c.created_at <= now - KEY_SECONDS)
            )
            connection.execute(insert_new(connection, idempotency).values(values).on_conflict_do_nothing())
            found = connection.execute(select(idempotency).where(*place)).one()
            if not _is_same(found.digest.removeprefix(_CANCELLED), digest, joins=joins):
                raise refusals.conflict(
                    "this Idempotency-Key was sent with another request before; send a new key with a new "
                    "request, and the old one only to repeat exactly what it was for",
                    key="Idempotency-Key",
                )
            return str(found.run_id)

        return await self._database.write(work)


def _is_same(stored: str, digest: str, *, joins: bool) -> bool:
    """Whether a request is the one that claimed the key; releases before this one stored no second part."""
    whole, _, message = stored.partition(".")
    my_whole, _, my_message = digest.partition(".")
    return whole == my_whole or (joins and message != "" and message == my_message)


def _has_begun(connection: Connection, run_id: str) -> bool:
    """Whether a run has begun, or waits for its thread."""
    # In this order: a run that begins between the two has left the queue, and is found.
    tables = waiting.c.run_id, runs.c.id
    return any(connection.execute(select(each).where(each == run_id)).first() is not None for each in tables)


def _last_events(connection: Connection, run_id: str, limit: int) -> tuple[dict[str, Any], ...]:
    """The last events of a run, in order, and before them the first one, which says what was asked."""
    columns = select(run_events.c.seq, run_events.c.body).where(run_events.c.run_id == run_id)
    wanted = columns.where(run_events.c.seq > _TEXTS).order_by(run_events.c.seq.desc()).limit(limit)
    rows = connection.execute(wanted).all()[::-1]
    if rows and rows[0].seq > 1:
        rows = [*connection.execute(columns.where(run_events.c.seq == 1)).all(), *rows[1:]]
    return tuple(row.body for row in rows)


def _numbered(run: EndedRun) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of a run, with its texts before them if it has any."""
    if run.texts is not None:
        yield _TEXTS, encode_fields(run.texts)
    yield from run.events


def _waiting_record(row: Any) -> RunRecord:
    """A row of ``waiting`` as the run that it will be."""
    request = decode(StoredRequest, loads(row.request)).request
    return RunRecord(
        row.run_id,
        row.agent,
        request.principal.id,
        row.thread_id,
        surface=request.surface,
        started_at=row.created_at,
    )
