"""What runs told their callers, for who comes late, comes back or reads slowly.

Each run has a log of numbered chunks. What happens is written to the log and waits for no reader; the log
holds so much in memory and is kept for a while after the run's end, and all of it goes to the ledger.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from pallas.model import Fault, FaultType, RunResult, codec
from pallas.model.refusals import REASON
from pallas.model.safe_text import one_line

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
"""Bytes that wait for a ledger which does not take them; what comes then is not kept there."""
CLOSE_TIMEOUT: Final = 1.0
READ: Final = 500
"""Rows that are read of the ledger at once."""
TRIES: Final = 10
TRY_EVERY: Final = 0.3
"""Seconds between two tries to keep the chunks of a run that the ledger knows only when it is over."""
# Before them the ledger has the run's events as the kernel tells them.
_PLACE: Final = 1_000_000

Chunk = dict[str, Any]


class RunEventStore:
    """The ledger's rows of one run. Text that comes in pieces is one row, numbered as its last piece."""

    def __init__(self, ledger: "Ledger", run_id: str) -> None:
        self._ledger = ledger
        self._run = run_id

    async def write(self, chunks: Iterable[tuple[int, Chunk]]) -> None:
        """Keep them; they follow what was kept before."""
        rows = [(_PLACE + seq, row) for seq, row in _packed(chunks)]
        if rows:
            await self._ledger.runs.add_events(self._run, rows)

    async def read(self, after: int) -> list[tuple[int, Chunk]]:
        """Some of what follows number ``after``, in order; empty at the end."""
        rows = await self._ledger.runs.events(self._run, _PLACE + after, READ)
        return [each for seq, row in rows for each in _unpacked(seq - _PLACE, row) if each[0] > after]


class RunLog:
    """The chunks of one run, numbered from 1. ``done`` once nothing more comes.

    ``result`` or ``fault`` is what the run came to, for who asked for the answer as a whole. ``owner`` is the
    id of who asked, empty where that is not known here; ``writer`` brings it to the ledger.
    """

    def __init__(self, run_id: str, store: RunEventStore | None) -> None:
        self.run_id = run_id
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
        self._first = 1
        self._size = 0
        self._pending: list[tuple[int, Chunk]] = []
        self._pending_size = 0
        self._held = False
        self._more = asyncio.Event()
        self.writer: asyncio.Task[None] | None = None

    @property
    def last(self) -> int:
        """The number of the newest chunk."""
        return self._first + len(self._chunks) - 1

    @property
    def size(self) -> int:
        """Bytes of it in memory."""
        return self._size

    def add(self, chunk: Chunk) -> None:
        """One more; returns at once."""
        size = len(codec.dumps(chunk))
        self._chunks.append((chunk, size))
        self._size += size
        while self._size > MAX_LOG and len(self._chunks) > 1:
            self._size -= self._chunks.popleft()[1]
            self._first += 1
        if self._store is not None and self._pending_size < MAX_PENDING:
            self._pending.append((self.last, chunk))
            self._pending_size += size
            if self._pending_size >= FLUSH_AT and not self._held:
                self._flush()
        self._wake()

    def keep(self, chunk: Chunk) -> None:
        """Something that goes to the ledger alone, after what was told so far."""
        if self._store is not None:
            self._pending.append((self.last + 1, chunk))

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """Somebody waits for what comes, until the end of the block."""
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1
            if not self.readers and not self.done and self.when_left is not None:
                self.when_left()

    async def over(self) -> None:
        """Until nothing more comes."""
        while not self.done:
            await self._more.wait()

    def end(self) -> None:
        """Nothing more comes."""
        self.done, self.ended_at = True, monotonic()
        self._flush()
        self._wake()

    async def written(self) -> None:
        """Until what was told is in the ledger, as far as that takes it."""
        if self.writer is not None:
            await asyncio.wait({self.writer}, timeout=FLUSH_TIMEOUT)

    async def read(self, after: int = 0) -> AsyncIterator[tuple[int, Chunk]]:
        """Every chunk after number ``after`` as it comes, to the end of the run.

        Raises Fault (TRANSPORT) where so much was missed that it is gone.
        """
        with self.wanted():
            while True:
                if after + 1 < self._first:
                    for number, chunk in await self._older(after):
                        after = number
                        yield number, chunk
                    continue
                if after < self.last:
                    after += 1
                    yield after, self._chunks[after - self._first][0]
                elif self.done:
                    return
                else:
                    await self._more.wait()

    async def _older(self, after: int) -> list[tuple[int, Chunk]]:
        """What is no longer in memory, at least one."""
        await self.written()
        found = await self._store.read(after) if self._store is not None else []
        if not found or found[0][0] != after + 1:
            raise Fault(
                FaultType.TRANSPORT,
                "this reader is too far behind: what came next is not kept any more; see the thread",
            )
        return found

    def _wake(self) -> None:
        more, self._more = self._more, asyncio.Event()
        more.set()

    def _flush(self) -> None:
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
                unknown = isinstance(error, Fault) and error.data.get(REASON) == "not_found"
                if unknown and (not self.done or tries < TRIES):
                    # One of which nothing is remembered: it is written down after its end.
                    self._pending[:0] = chunks
                    self._pending_size += size
                    self._held = True
                    if not self.done:
                        return
                    tries += 1
                    await asyncio.sleep(TRY_EVERY)
                    continue
                # The run is not harmed: who comes back in time reads it from memory.
                level = logging.DEBUG if unknown else logging.WARNING
                said = one_line(str(error)) or type(error).__name__
                log.log(level, "run %s: its chunks could not be kept: %s", self.run_id, said)
                self._store = None
                self._pending.clear()
                return
            if not self.done and self._pending_size < FLUSH_AT:
                return


class RunReplay:
    """The logs of runs that are in flight or were over a short while ago, by the run's id."""

    def __init__(self, ledger: "Ledger", clock: Callable[[], float] = monotonic) -> None:
        self._ledger = ledger
        self._clock = clock
        self._logs: OrderedDict[str, RunLog] = OrderedDict()

    def open(self, run_id: str, *, kept: bool = True) -> RunLog:
        """The log of a run that begins; ``kept`` in the ledger as well."""
        self._tidy()
        store = RunEventStore(self._ledger, run_id) if kept else None
        made = self._logs[run_id] = RunLog(run_id, store)
        return made

    def get(self, run_id: str) -> RunLog | None:
        """The log of a run, while it is in memory."""
        self._tidy()
        return self._logs.get(run_id)

    def store(self, run_id: str) -> RunEventStore:
        """What the ledger has of a run."""
        return RunEventStore(self._ledger, run_id)

    async def close(self) -> None:
        """Until everything is written, a second at most."""
        writers = [writer for each in self._logs.values() if (writer := each.writer) is not None]
        if writers:
            _, late = await asyncio.wait(writers, timeout=CLOSE_TIMEOUT)
            for writer in late:
                writer.cancel()

    def _tidy(self) -> None:
        over = [each for each in self._logs.values() if each.done]
        over.sort(key=lambda each: each.ended_at)
        size = sum(each.size for each in over)
        many = len(self._logs) - MAX_RUNS
        for each in over:
            old = self._clock() - each.ended_at >= KEEP_SECONDS
            if not old and size <= MAX_KEPT and many < 0:
                return
            size -= each.size
            many -= 1
            del self._logs[each.run_id]


def _packed(chunks: Iterable[tuple[int, Chunk]]) -> list[tuple[int, Chunk]]:
    """Rows for the ledger: pieces of text that follow one another are one."""
    rows: list[tuple[int, Chunk]] = []
    for seq, chunk in chunks:
        if "delta" not in chunk:
            rows.append((seq, chunk))
            continue
        before = rows[-1][1] if rows else {}
        if before.get("type") == chunk["type"] and "deltas" in before:
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
