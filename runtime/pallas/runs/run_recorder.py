"""Writes finished runs, their events and steps to the ledger in the background; reads the steps.

A run of a durable thread is written with its messages; this module writes the runs without a thread, and the
events and steps of all runs. A fleet that is killed loses the last of these, never a message.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from time import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pallas.model import (
    Blob,
    EndedRun,
    Event,
    Outcome,
    Params,
    RunRecord,
    RunRequest,
    RunTexts,
    Step,
    StepDetail,
    Usage,
)
from pallas.model.codec import dumps, encode_event
from pallas.model.redaction import redact_text, redact_value
from pallas.model.server_offer import StoredOffer
from pallas.runs.run import ActiveRun
from pallas.safe_text import one_line
from pallas.telemetry.open_step import OpenStep
from pallas.telemetry.request_parts import RequestPart
from pallas.telemetry.step_record import RunSteps, StepRecord, blobs_of, stored, uses_of

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

log = logging.getLogger(__name__)

QUEUE: Final = 2_000
"""Runs that may wait to be written; beyond that the oldest are dropped, and counted."""
MAX_EVENTS: Final = 1_000
"""How many of a run's last events are kept."""
WRITE_TIMEOUT: Final = 30.0
MAX_WAITING: Final = 64 * 1024 * 1024
"""About how many bytes may wait; beyond that runs lose their pictures, then the oldest are dropped."""
MAX_BATCH: Final = 16 * 1024 * 1024
"""About how many bytes end a write."""
GATHER: Final = 0.25
"""Seconds during which finished runs are collected for one write."""
BATCH: Final = 200
"""Runs in one write."""
MAX_PARAMS: Final = 256 * 1024
"""Characters of the parameters of a run that are kept."""
MAX_OFFERS: Final = 1_000
"""Offers of servers of which it is known that they are stored."""
STORED_FOR: Final = 3600.0
"""Seconds after which a part that many conversations share is written again, so that it counts as used."""
_EVENT: Final = 500
"""About how many bytes an event takes."""


class _Ended(NamedTuple):
    """A run that waits to be written; ``record`` is None for a run of a thread.

    ``texts`` are None for a run that is not over.
    """

    run_id: str
    record: RunRecord | None
    events: tuple[Event, ...]
    steps: RunSteps | None
    texts: RunTexts | None = None
    offers: Sequence[StoredOffer] = ()  # which the agent has too: they take no more space

    @property
    def size(self) -> int:
        """About how many bytes it takes, without its steps, which are bounded where they are recorded."""
        size = _EVENT * (1 + len(self.events))
        if self.texts is not None:
            size += len(self.texts.question) + len(self.texts.answer) + len(dumps(self.texts.params))
        return size + self.pictures

    @property
    def pictures(self) -> int:
        """The characters of its pictures."""
        texts = self.texts
        return sum(len(each.data) for each in (*texts.images, *texts.pictures)) if texts is not None else 0

    def without_pictures(self) -> "_Ended":
        """The run with the number of its question's pictures in their place."""
        if self.texts is None:
            return self
        lost = self.texts.images_lost + len(self.texts.images)
        return self._replace(texts=replace(self.texts, images=(), pictures=(), images_lost=lost))


class _Queue:
    """Runs that wait, the oldest first. ``left`` counts those that left it: taken, or dropped as ``lost``."""

    def __init__(self) -> None:
        self.runs: deque[_Ended] = deque()
        self.left = 0
        self.lost = 0
        self._size = 0

    def add(self, run: _Ended) -> None:
        """Add a run, and make room for it."""
        self.runs.append(run)
        self._size += run.size
        if self._size > MAX_WAITING:
            self._size -= sum(each.pictures for each in self.runs)
            self.runs = deque(each.without_pictures() for each in self.runs)
        while len(self.runs) > QUEUE or (len(self.runs) > 1 and self._size > MAX_WAITING):
            self._pop()
            self.lost += 1

    def take(self) -> list[_Ended]:
        """Remove the runs of the next write."""
        taken: list[_Ended] = []
        size = 0
        while self.runs and len(taken) < BATCH and size < MAX_BATCH:
            taken.append(self._pop())
            size += taken[-1].size
        return taken

    def _pop(self) -> _Ended:
        run = self.runs.popleft()
        self._size -= run.size
        self.left += 1
        return run


class RunRecorder:
    """Writes in one task, many runs at a time."""

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self._waiting = _Queue()
        self._writing: Sequence[_Ended] = ()
        self._task: asyncio.Task[None] | None = None
        # How many runs have left the queue and are written or lost, and those who wait for more of them.
        self._settled = 0
        self._wrote = asyncio.Condition()
        # Set when the next write shall not wait for more runs.
        self._hurry = asyncio.Event()
        self._closes = False
        # When what servers offered was stored last, by digest.
        self._offers: dict[str, float] = {}

    def record_end(
        self,
        run: ActiveRun,
        request: RunRequest,
        outcome: Outcome,
        fault: str,
        usage: Usage,
        steps: RunSteps | None = None,
        said: Sequence[str] = (),
    ) -> None:
        """Queue a run that is over. Returns at once, and never raises: the caller waits for its answer."""
        if run.goes_on_elsewhere:
            return
        try:
            self._queue(_ended(run, request, outcome, fault, usage, steps, said))
        except Exception:
            log.exception("run %s of %s cannot be recorded", run.id, run.agent)

    def unwritten(self) -> Iterator[RunRecord]:
        """Runs without a thread that are over and that the ledger does not know yet."""
        return (each.record for each in self._not_written if each.record is not None)

    def owes(self, run_id: str) -> bool:
        """Whether the ledger does not have all of a run yet."""
        return any(each.run_id == run_id for each in self._not_written)

    @property
    def _not_written(self) -> Iterator[_Ended]:
        return chain(self._writing, self._waiting.runs)

    def record_steps(self, run_id: str, steps: RunSteps) -> None:
        """Queue the new steps of a run of a thread that is under way. Returns at once."""
        if len(self._waiting.runs) < QUEUE and steps.unwritten():
            self._queue(_Ended(run_id, None, (), steps))

    def _queue(self, ended: _Ended) -> None:
        self._waiting.add(ended)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write(), name="record runs")

    async def settle(self, seconds: float = 5.0) -> None:
        """Write the runs that are queued now, and wait for that at most so many seconds."""
        last = self._waiting.left + len(self._waiting.runs)
        if self._settled < last:
            self._hurry.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._wrote:
                await self._wrote.wait_for(lambda: self._settled >= last)

    async def close(self, seconds: float) -> None:
        """Write the queued runs, within ``seconds``."""
        self._closes = True
        self._hurry.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)
            if left := sum(1 for _ in self.unwritten()):
                log.warning("%d runs were not recorded: the ledger did not take them in time", left)
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _write(self) -> None:
        while self._waiting.runs:
            # Runs that end during this wait are written together: no turn waits behind a write for each run.
            with suppress(TimeoutError):
                async with asyncio.timeout(GATHER):
                    await self._hurry.wait()
            if not self._closes:
                self._hurry.clear()
            self._writing = taken = self._waiting.take()
            taken_until = self._waiting.left
            if self._waiting.lost:
                log.warning("%d runs were not recorded: the ledger is too slow for them", self._waiting.lost)
                self._waiting.lost = 0
            now = time()
            since = now - STORED_FOR
            seen: set[RequestPart] = set()
            parts = [each.steps.unstored(since, seen) if each.steps is not None else [] for each in taken]
            steps = {each.run_id: each.steps.unwritten() for each in taken if each.steps is not None}
            states = [(step, step.value.state) for each in steps.values() for step in each]
            offers = self._unstored_offers(taken, since)
            rows = [
                _ended_run(each, steps.get(each.run_id, ()), new, offers)
                for each, new in zip(taken, parts, strict=True)
            ]
            try:
                async with asyncio.timeout(WRITE_TIMEOUT):
                    await self._ledger.runs.record(rows)
            except Exception:
                log.exception("%d runs could not be recorded", len(rows))
            else:
                for part in chain.from_iterable(parts):
                    part.stored_at = now
                if len(self._offers) + len(offers) > MAX_OFFERS:
                    self._offers.clear()
                self._offers |= dict.fromkeys(offers, now)
                for step, state in states:
                    step.written_as = state
            finally:
                self._writing, self._settled = (), taken_until
                async with self._wrote:
                    self._wrote.notify_all()

    def _unstored_offers(self, taken: Sequence[_Ended], since: float) -> dict[str, str]:
        """What servers offered to these runs and is to be stored, by digest."""
        return {
            offer.digest: offer.body
            for each in taken
            for offer in each.offers
            if self._offers.get(offer.digest, 0.0) < since
        }


def _ended(
    run: ActiveRun,
    request: RunRequest,
    outcome: Outcome,
    fault: str,
    usage: Usage,
    steps: RunSteps | None,
    said: Sequence[str],
) -> _Ended:
    """``said`` are the texts of the model; the last one is the answer."""
    # Masked now: at its end the caller's token is forgotten.
    params = _masked(request.params.over(request.defaults))
    texts = RunTexts(
        "",
        params=params or {},
        provider=request.provider,
        version=run.version,
        params_lost=params is None,
        offers={server: each.digest for server, each in run.offers.items()},
    )
    offers = tuple(run.offers.values())
    asked = run.given.text if run.thread and run.given is not None else request.text
    question, answer = redact_text(asked), redact_text(said[-1]) if said else ""
    if run.thread and run.before is not None:
        question = ""  # it was asked in another fleet, and here nobody knew its caller's token
    elif (
        run.thread
        and outcome == "ok"
        and question == asked
        and all(redact_text(each) == each for each in said)
    ):
        return _Ended(run.id, None, tuple(run.events), steps, replace(texts, is_as_said=True), offers)
    texts = replace(texts, question=question, answer=answer)
    if run.thread:
        return _Ended(run.id, None, tuple(run.events), steps, texts, offers)
    pictures = tuple(chain.from_iterable(each.pictures for each in steps.steps)) if steps is not None else ()
    whole = run.priced(usage)
    record = replace(
        run.record,
        thread="",
        status=outcome,
        finished_at=time(),
        tokens_in=usage.input_tokens,
        tokens_out=usage.output_tokens,
        cost=whole.cost,
        unpriced=whole.unpriced,
        fault=one_line(fault, 500),
        partial=run.partial,
    )
    texts = replace(texts, images=request.images, pictures=pictures)
    return _Ended(run.id, record, tuple(run.events), steps, texts, offers)


def _masked(params: Params) -> dict[str, Any] | None:
    """Parameters with their secrets masked; None if they are too large."""
    found: dict[str, Any] = redact_value(params.values)
    return found if len(dumps(found)) <= MAX_PARAMS else None


def _ended_run(
    ended: _Ended, steps: Sequence[OpenStep], new: Sequence[RequestPart], offers: Mapping[str, str]
) -> EndedRun:
    wanted = {each.digest for each in ended.offers}
    return EndedRun(
        ended.run_id,
        ended.record,
        [(number, encode_event(event)) for number, event in enumerate(ended.events, 1)],
        [stored(step) for step in steps],
        [
            *blobs_of(new),
            *(Blob("", digest, "", body) for digest, body in offers.items() if digest in wanted),
        ],
        ended.texts,
        wanted | uses_of(steps, new),
    )


class StepReader:
    """The steps of a fleet's runs. Raises Fault (TRANSPORT, TIMEOUT) if the ledger fails."""

    def __init__(self, record: StepRecord) -> None:
        self._record = record
        self.ledger: Ledger | None = None

    async def list(self, run_id: str) -> tuple[Step, ...]:
        """The steps of a run, in order; empty if none are known."""
        kept = self._in_memory(run_id)
        if kept is not None:
            return tuple(step.value for step in kept.steps)
        return await self.ledger.steps.list(run_id) if self.ledger is not None else ()

    async def get(self, run_id: str, number: int) -> StepDetail | None:
        """A step with its texts; None if it is not known."""
        kept = self._in_memory(run_id)
        if kept is not None:
            return next((step.detail for step in kept.steps if step.number == number), None)
        return await self.ledger.steps.get(run_id, number) if self.ledger is not None else None

    def _in_memory(self, run_id: str) -> RunSteps | None:
        """The run, unless steps of it were dropped that the ledger has."""
        kept = self._record.of(run_id)
        is_whole = kept is not None and bool(kept.steps) and kept.steps[0].number == 1
        return kept if is_whole or self.ledger is None else None
