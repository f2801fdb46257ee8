"""The chunks of runs, for clients that come late, come back or read slowly.

Each run has a log of numbered chunks. Events are written to the log without waiting for readers; the log
holds a limited amount in memory and stays for a while after the run's end, and all of it goes to the
ledger.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from pallas.model import Fault, FaultType, RunResult, codec
from pallas.model.refusals import OTHERS, REASON
from pallas.safe_text import one_line

if TYPE_CHECKING:
    from pallas.ledger import Ledger

log = logging.getLogger(__name__)

MAX_LOG: Final = 2 * 1024 * 1024
"""Bytes of one run's chunks in memory; the oldest go first."""
MAX_RUNS: Final = 1_000
MAX_KEPT: Final = 64 * 1024 * 1024
"""Bytes of all runs that are over; the one that ended first goes first."""
KEEP_SECONDS: Final = 300.0
FLUSH_AT: Final = 64 * 1024
FLUSH_TIMEOUT: Final = 30.0
MAX_PENDING: Final = 4 * MAX_LOG
"""Bytes that wait for an unavailable ledger; chunks beyond this are not stored there."""
CLOSE_TIMEOUT: Final = 1.0
READ: Final = 500
"""Rows that are read of the ledger at once."""
TRIES: Final = 10
TRY_EVERY: Final = 0.3
"""Seconds between two attempts to store the chunks of a run that the ledger gets only at its end."""
AWAY_SECONDS: Final = 120.0
"""Seconds for which chunks wait for a ledger that fails; it is tried every ``FLUSH_EVERY``."""
FLUSH_EVERY: Final = 1.0
"""Seconds after which chunks are stored of a run that goes on: another fleet may have to go on with them."""
PER_ATTEMPT: Final = 1_000_000
"""The chunks of attempt 2 are numbered from this on: a number means the same everywhere."""
# The ledger's rows before these are the run's events from the kernel.
_PLACE: Final = 1_000_000

Chunk = dict[str, Any]


class RunEventStore:
    """The ledger's rows of one run, to which a fleet adds while it has the ``claim``.

    Successive pieces of text are one row, numbered as its last piece.
    """

    def __init__(self, ledger: "Ledger", run_id: str, claim: str = "") -> None:
        self._ledger = ledger
        self._run = run_id
        self._claim = claim

    async def write(self, chunks: Iterable[tuple[int, Chunk]]) -> None:
        """Append the chunks to those stored before."""
        rows = [(_PLACE + seq, row) for seq, row in _packed(chunks)]
        if rows:
            await self._ledger.runs.add_events(self._run, rows, claim=self._claim)

    async def read(self, after: int) -> list[tuple[int, Chunk]]:
        """Return some of the chunks after number ``after``, in order; empty at the end."""
        rows = await self._ledger.runs.events(self._run, _PLACE + after, READ)
        return [each for seq, row in rows for each in _unpacked(seq - _PLACE, row) if each[0] > after]


class RunLog:
    """The chunks of one run, numbered from 1 after those of earlier attempts. ``done``: no more come.

    ``result`` or ``fault`` is the run's outcome, for a caller that wants the complete answer. ``owner`` is
    the id of the caller, empty if it is not known here; ``writer`` brings the chunks to the ledger.
    """

    def __init__(self, run_id: str, store: RunEventStore | None, attempt: int = 1) -> None:
        self.run_id = run_id
        self._before = (attempt - 1) * PER_ATTEMPT
        self.agent = self.owner = self.thread = ""
        self.began_at = time()
        self.done = False
        self.result: RunResult | None = None
        self.fault: Fault | None = None
        self.readers = 0
        self.ended_at = 0.0
        self.when_left: Callable[[], None] | None = None
        self._store = store
        self._chunks: deque[tuple[Chunk, int]] = deque()
        self._first = self._before + 1
        self._later: asyncio.TimerHandle | None = None
        self._size = 0
        self._pending: list[tuple[int, Chunk]] = []
        self._pending_size = 0
        self._held = False
        self._away_since = 0.0
        self._more = asyncio.Event()
        self._left: Chunk | None = None
        self.writer: asyncio.Task[None] | None = None

    @property
    def last(self) -> int:
        """The number of the newest chunk."""
        return self._first + len(self._chunks) - 1

    @property
    def size(self) -> int:
        """The bytes of it in memory."""
        return self._size

    def add(self, chunk: Chunk) -> None:
        """Append a chunk; returns at once.

        The error that another fleet goes on with the run ends this log, but not the run: it has no number
        of its own, and is not stored.
        """
        if chunk.get("type") == "error" and chunk["data"].get(REASON) in OTHERS:
            self._left = chunk
            self._wake()
            return
        size = len(codec.dumps(chunk))
        self._chunks.append((chunk, size))
        self._size += size
        while self._size > MAX_LOG and len(self._chunks) > 1:
            self._size -= self._chunks.popleft()[1]
            self._first += 1
        if self._store is not None and self._pending_size < MAX_PENDING:
            self._pending.append((self.last, chunk))
            self._pending_size += size
            if self._held:
                pass  # the ledger knows the run when it is over
            elif self._pending_size >= FLUSH_AT and not self._away_since:
                self._flush()
            elif self._later is None:
                self._later = asyncio.get_running_loop().call_later(FLUSH_EVERY, self._flush)
        self._wake()

    def store(self, chunk: Chunk) -> None:
        """Store a chunk in the ledger only, after those so far."""
        if self._store is not None:
            self._pending.append((self.last + 1, chunk))

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count a waiting reader until the end of the block."""
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1
            if not self.readers and not self.done and self.when_left is not None:
                self.when_left()

    async def wait_ended(self) -> None:
        """Wait until no more chunks come."""
        while not self.done:
            await self._more.wait()

    def end(self) -> None:
        """Mark the log as complete."""
        self.done, self.ended_at = True, monotonic()
        self._flush()
        self._wake()

    async def written(self) -> None:
        """Wait until the chunks are in the ledger, as far as it accepts them."""
        if self.writer is not None:
            await asyncio.wait({self.writer}, timeout=FLUSH_TIMEOUT)

    async def read(self, after: int = 0) -> AsyncIterator[tuple[int, Chunk]]:
        """Yield every chunk after number ``after`` as it comes, to the end of the run.

        Raises Fault (TRANSPORT) if the next chunk is no longer stored anywhere.
        """
        with self.reading():
            while True:
                if after + 1 < self._first:
                    older = await self._older(after)
                    for after, chunk in older:
                        yield after, chunk
                    if not older:
                        after = self._first - 1
                    continue
                if after < self.last:
                    after += 1
                    yield after, self._chunks[after - self._first][0]
                elif self.done:
                    if self._left is not None:
                        yield after, self._left
                    return
                else:
                    await self._more.wait()

    async def _older(self, after: int) -> list[tuple[int, Chunk]]:
        """Return chunks that are no longer in memory, at least one; none if another fleet stored no more."""
        await self.written()
        stored = await self._store.read(after) if self._store is not None else []
        found = [each for each in _successive(stored, after) if each[0] < self._first]
        if not found and after <= self._before and self._first == self._before + 1:
            return []
        if not found:
            raise Fault(
                FaultType.TRANSPORT,
                "this reader is too far behind: what came next is not kept any more; see the thread",
            )
        return found

    def _wake(self) -> None:
        more, self._more = self._more, asyncio.Event()
        more.set()

    def _flush(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._store is not None and self._pending and (self.writer is None or self.writer.done()):
            self.writer = asyncio.create_task(self._write(self._store), name=f"chunks of run {self.run_id}")

    async def _write(self, store: RunEventStore) -> None:
        tries = 0
        while self._pending:
            chunks, size = self._pending, self._pending_size
            self._pending, self._pending_size = [], 0
            try:
                async with asyncio.timeout(FLUSH_TIMEOUT):
                    await store.write(chunks)
            except Exception as error:
                reason = error.data.get(REASON) if isinstance(error, Fault) else None
                if reason in OTHERS:  # what follows takes back what is not stored
                    self._give_up(error, logging.DEBUG)
                    return
                unknown = reason == "not_found"
                if not (self._may_wait() if not unknown else not self.done or tries < TRIES):
                    self._give_up(error, logging.DEBUG if unknown else logging.WARNING)
                    return
                self._pending[:0] = chunks
                self._pending_size += size
                # A run without history is stored after its end.
                self._held = self._held or unknown
                if not self.done:
                    if not unknown and self._later is None:
                        self._later = asyncio.get_running_loop().call_later(FLUSH_EVERY, self._flush)
                    return
                tries += 1
                await asyncio.sleep(TRY_EVERY if unknown else FLUSH_EVERY)
                continue
            self._away_since = 0.0
            if not self.done and self._pending_size < FLUSH_AT:
                return

    def _may_wait(self) -> bool:
        """Whether the ledger, which failed just now, has not done so for too long."""
        self._away_since = self._away_since or monotonic()
        return monotonic() - self._away_since < AWAY_SECONDS

    def _give_up(self, error: Exception, level: int) -> None:
        """Store no more. The run goes on: a client that comes back in time reads it from memory."""
        problem = one_line(str(error)) or type(error).__name__
        log.log(level, "run %s: its chunks could not be kept: %s", self.run_id, problem)
        self._store = None
        self._pending.clear()


class RunReplay:
    """The logs of runs that are in flight or ended a short while ago, by run id."""

    def __init__(self, ledger: "Ledger", clock: Callable[[], float] = monotonic) -> None:
        self._ledger = ledger
        self._clock = clock
        self._logs: OrderedDict[str, RunLog] = OrderedDict()

    def open(self, run_id: str, *, claim: str = "", is_stored: bool = True, attempt: int = 1) -> RunLog:
        """Return the log of a run that begins; with ``is_stored`` it is stored in the ledger as well.

        ``claim`` is that of this fleet.
        """
        self._tidy()
        store = RunEventStore(self._ledger, run_id, claim) if is_stored else None
        run_log = self._logs[run_id] = RunLog(run_id, store, attempt)
        return run_log

    def get(self, run_id: str) -> RunLog | None:
        """Return the log of a run while it is in memory."""
        self._tidy()
        return self._logs.get(run_id)

    def store(self, run_id: str) -> RunEventStore:
        """Return the ledger's chunks of a run."""
        return RunEventStore(self._ledger, run_id)

    async def close(self) -> None:
        """Wait until everything is written, at most a second."""
        writers = [writer for each in self._logs.values() if (writer := each.writer) is not None]
        if writers:
            _, late = await asyncio.wait(writers, timeout=CLOSE_TIMEOUT)
            for writer in late:
                writer.cancel()

    def _tidy(self) -> None:
        ended = [each for each in self._logs.values() if each.done]
        ended.sort(key=lambda each: each.ended_at)
        size = sum(each.size for each in ended)
        many = len(self._logs) - MAX_RUNS
        for each in ended:
            old = self._clock() - each.ended_at >= KEEP_SECONDS
            if not old and size <= MAX_KEPT and many < 0:
                return
            size -= each.size
            many -= 1
            del self._logs[each.run_id]


def _successive(stored: Iterable[tuple[int, Chunk]], after: int) -> Iterator[tuple[int, Chunk]]:
    """Yield the chunks that follow directly, also those of the next attempt.

    A ledger that was too slow misses some: what follows a gap is not the next one.
    """
    for number, chunk in stored:
        if number != after + 1 and number % PER_ATTEMPT != 1:
            return
        after = number
        yield number, chunk


def _packed(chunks: Iterable[tuple[int, Chunk]]) -> list[tuple[int, Chunk]]:
    """Return rows for the ledger: successive pieces of text become one."""
    rows: list[tuple[int, Chunk]] = []
    for seq, chunk in chunks:
        if "delta" not in chunk:
            rows.append((seq, chunk))
            continue
        last, before = rows[-1] if rows else (0, {})
        if seq == last + 1 and before.get("type") == chunk["type"] and "deltas" in before:
            before["deltas"].append(chunk["delta"])
            rows[-1] = (seq, before)
        else:
            rows.append((seq, {"type": chunk["type"], "deltas": [chunk["delta"]]}))
    return rows


def _unpacked(seq: int, row: Chunk) -> list[tuple[int, Chunk]]:
    deltas = row.get("deltas")
    if not isinstance(deltas, list):
        return [(seq, row)]
    first = seq - len(deltas) + 1
    return [(first + number, {"type": row["type"], "delta": delta}) for number, delta in enumerate(deltas)]
