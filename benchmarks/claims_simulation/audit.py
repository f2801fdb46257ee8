"""Watches the invariants: it sees the whole system, which no replica does."""

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..invariants import SIMULATED
from .database import MOST_LAG, PROGRESS, Database
from .rows import ANSWER, CALLS, QUESTION, RESULTS, RUNNING, Row, Run

if TYPE_CHECKING:
    from .event_queue import EventQueue
    from .replica import Replica
    from .worker import Worker

OWNERLESS_SECONDS: Final = 30.0
"""Seconds that a run may be without a replica that works on it, while the database answers."""
HEALTHY_SECONDS: Final = 10.0
"""Seconds after a pause or a partition of a replica in which it may be taken for dead."""
MOST_TOLD: Final = 3
"""Violations of each invariant that are told with their story."""

_ORDER: Final = {QUESTION: 0, CALLS: 1, RESULTS: 2, ANSWER: 3}


class Violation(NamedTuple):
    """An invariant that did not hold, with the last events of the run or replica."""

    invariant: str
    at: float
    text: str
    story: tuple[str, ...]


class Audit:
    """Counts what happened, and remembers what must not have happened."""

    def __init__(self, queue: "EventQueue") -> None:
        self._queue = queue
        self.database: Database
        self.counts: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self.told: list[Violation] = []
        self.replicas: dict[int, Replica] = {}
        """The process of each life, dead ones as long as they have runs."""
        self.take_over_seconds: list[float] = []
        self._stories: dict[int, list[tuple[float, str]]] = {}
        self._faults: dict[int, deque[tuple[float, str]]] = {}
        self._acknowledged: dict[int, list[int]] = {}
        self._lost: set[int] = set()
        self._checked: dict[int, int] = {}
        """The last message of each thread that was checked and dropped."""
        self._changed: dict[int, float] = {}
        self._ownerless: dict[int, tuple[int, float]] = {}
        self._server: deque[tuple[float, str]] = deque(maxlen=4)

    # Stories.

    def note(self, run: int, text: str) -> None:
        """Remember what happened to a run."""
        self._stories.setdefault(run, []).append((self._queue.now, text))

    def fault(self, replica: "Replica", text: str) -> None:
        """Remember what was done to a replica."""
        self.counts[text.partition(" for ")[0]] += 1
        self._faults.setdefault(replica.life, deque(maxlen=8)).append((self._queue.now, text))

    def event(self, replica: "Replica", text: str) -> None:
        """Remember what a replica did."""
        self._faults.setdefault(replica.life, deque(maxlen=8)).append((self._queue.now, text))

    def server_fault(self, text: str) -> None:
        """Remember what was done to the server."""
        self.counts[text.partition(" (")[0]] += 1
        self._server.append((self._queue.now, text))

    def violate(self, invariant: str, text: str, run: int = 0, lives: tuple[int, ...] = ()) -> None:
        """An invariant does not hold. Raises KeyError for one that is not ``SIMULATED``."""
        if invariant not in SIMULATED:
            raise KeyError(invariant)
        self.violations[invariant] += 1
        if self.violations[invariant] > MOST_TOLD:
            return
        told = [(at, f"run {run}: {what}") for at, what in self._stories.get(run, ())]
        lives = tuple(dict.fromkeys(lives))
        for life in lives:
            told += [(at, f"replica {life}: {what}") for at, what in self._faults.get(life, ())]
        told += [(at, f"server: {what}") for at, what in self._server]
        now = self._queue.now
        story = tuple(f"{at - now:+9.3f} s  {what}" for at, what in sorted(told)[-40:])
        self.told.append(Violation(invariant, now, text, story))

    # What transactions do.

    def begin(self, worker: "Worker", running: int) -> None:
        """A run begins in a thread; ``running`` is another run that is running there."""
        self.counts["runs"] += 1
        self.note(worker.run, f"begun in thread {worker.thread} by replica {worker.life}")
        self._changed[worker.thread] = self._queue.now
        if running:
            text = f"run {worker.run} begins in thread {worker.thread}, in which run {running} is running"
            self.violate("I4", text, running, (worker.life,))

    def write(self, worker: "Worker", run: Run | None, what: str) -> None:
        """A worker writes something of its run."""
        if what != PROGRESS:
            self.note(worker.run, f"attempt {worker.attempt} on replica {worker.life} writes {what}")
            self._changed[worker.thread] = self._queue.now
        if run is None or run.claim == worker.claim:
            return
        text = (
            f"attempt {worker.attempt} on replica {worker.life} writes {what} of run {worker.run}, "
            f"which is attempt {run.attempt} on replica {run.life}"
        )
        self.violate("I3", text, worker.run, (worker.life, run.life))

    def acknowledge(self, worker: "Worker") -> None:
        """A worker knows that its message is stored."""
        row = worker.row
        if row is not None and row.number > self._checked.get(worker.thread, 0):
            self._acknowledged.setdefault(worker.thread, []).append(row.number)

    def take_over(self, dead: int, mine: int, runs: int) -> None:
        """A replica takes another one for dead."""
        self.counts["take-overs"] += 1
        victim = self.replicas.get(dead)
        if victim is None:
            return
        self.event(victim, f"taken for dead by replica {mine}, with {runs} runs")
        if victim.is_dead:
            return
        if victim.stopped_until > self._queue.now or victim.hurt_until > self._queue.now - HEALTHY_SECONDS:
            self.counts["take-overs of a stopped or cut off replica"] += 1
            return
        self.violate("alive", f"replica {dead} is taken for dead by replica {mine}", 0, (dead,))

    def claim(self, run: int, before: int, mine: int, attempt: int) -> None:
        """A run changes hands."""
        self.counts["claims"] += 1
        self.note(run, f"claimed by replica {mine} from replica {before}, attempt {attempt}")
        victim = self.replicas.get(before)
        if victim is not None and victim.is_dead:
            self.take_over_seconds.append(self._queue.now - victim.died_at)

    def given_up(self, run: int, deaths: int) -> None:
        """A run is put into error by the replica that found it."""
        self.counts["runs given up"] += 1
        self.note(run, f"given up after {deaths + 1} deaths")

    def lose(self, thread: int, rows: Any, before: Any) -> None:
        """A failover loses the messages of a thread that came after ``before``."""
        while rows is not None and rows is not before:
            self._lost.add(rows[1].number)
            self.counts["messages that a failover lost"] += 1
            self.note(rows[1].run, f"a failover loses its {rows[1].kind}")
            rows = rows[0]

    # Tools.

    def is_theirs(self, worker: "Worker") -> bool:
        """Whether the run is the worker's at this moment, which the worker itself cannot know."""
        run = self.database.runs.get(worker.run)
        return run is not None and run.claim == worker.claim and run.status == RUNNING

    def call(self, worker: "Worker", call: int, *, was_ours: bool) -> None:
        """A tool is called."""
        counts = self.counts
        counts["tool calls"] += 1
        step = worker.step
        self.note(worker.run, f"attempt {worker.attempt} on replica {worker.life} calls tool {step}.{call}")
        if not was_ours:
            run = self.database.runs.get(worker.run)
            if run is None or run.claim < worker.claim:  # no replica can know it at that moment
                counts["tool calls of a run that a failover had just lost"] += 1
                return
            text = f"attempt {worker.attempt} of run {worker.run} calls tool {step}.{call} after its fence"
            counts["tool calls of a zombie"] += 1
            self.violate("gate", text, worker.run, (worker.life, run.life))
        elif not self.is_theirs(worker):
            counts["tool calls between gate and call (the documented window)"] += 1
        elif self.database.is_stored(worker.run, worker.thread, step, call):
            self.violate("I2", f"call {step}.{call} of run {worker.run} runs again", worker.run)

    # Looks at the whole.

    def look(self, *, is_last: bool = False) -> None:
        """Check threads at rest, and the owners of runs."""
        now = self._queue.now
        for thread, at in list(self._changed.items()):
            if is_last or at < now - 4 * MOST_LAG:
                row = self.database.threads.get(thread)
                if row is not None and (is_last or not row.run):
                    self._check_rows(thread, row.rows)
                    if not row.run:
                        del self._changed[thread]
                        self._forget(thread, row.rows)
        self._check_owners(now)

    def forget_dead(self) -> None:
        """Forget the lives that left nothing."""
        gone = [
            life
            for life, replica in self.replicas.items()
            if replica.is_dead and life not in self.database.lives and life not in self.database.of_life
        ]
        for life in gone:
            del self.replicas[life]
            self._faults.pop(life, None)

    def _check_rows(self, thread: int, rows: Any) -> None:
        found: list[Row] = []
        while rows is not None:
            found.append(rows[1])
            rows = rows[0]
        found.reverse()
        seen: set[tuple[int, int, str]] = set()
        over: set[int] = set()
        last: Row | None = None
        for row in found:
            key = (row.run, row.step, row.kind)
            if key in seen:
                self.violate("I1", f"{row.kind} {row.step} of run {row.run} is there twice", row.run)
            seen.add(key)
            if last is not None and last.run != row.run:
                over.add(last.run)
            elif last is not None and (last.step, _ORDER[last.kind]) > (row.step, _ORDER[row.kind]):
                self.violate("I1", f"{row.kind} {row.step} of run {row.run} is out of order", row.run)
            if row.run in over:
                self.violate("I1", f"messages of other runs are among those of run {row.run}", row.run)
            last = row
        numbers = {row.number for row in found}
        acknowledged = self._acknowledged.get(thread, [])
        for number in acknowledged:
            if number not in numbers and number not in self._lost:
                self.violate("I1", f"message {number} of thread {thread} is lost")
        self.counts["messages checked"] += len(found)

    def _forget(self, thread: int, rows: Any) -> None:
        runs = set()
        if rows is not None:
            self._checked[thread] = rows[1].number
        while rows is not None:
            runs.add(rows[1].run)
            rows = rows[0]
        self.database.forget_rows(thread)
        self._acknowledged.pop(thread, None)
        for run in runs:
            if not self.is_running(run):
                self.database.forget_run(run)
                self._stories.pop(run, None)

    def is_running(self, run: int) -> bool:
        """Whether a run is under way."""
        row = self.database.runs.get(run)
        return row is not None and row.status == RUNNING

    def _check_owners(self, now: float) -> None:
        before, self._ownerless = self._ownerless, {}
        if self.database.down_until + OWNERLESS_SECONDS / 2 > now:
            return
        for life, runs in self.database.of_life.items():
            owner = self.replicas.get(life)
            is_up = owner is not None and not owner.is_dead and owner.stopped_until <= now
            for run in runs:
                if not (is_up and owner is not None and owner.works_on(run)):
                    self._note_ownerless(run, self.database.runs[run].claim, life, before)
        for queue in self.database.waiting.values():
            for queued in queue:
                owner = self.replicas.get(queued.life)
                if (
                    owner is None
                    or owner.is_dead
                    or owner.stopped_until > now
                    or not owner.works_on(queued.run)
                ):
                    self._note_ownerless(queued.run, queued.life, queued.life, before)

    def _note_ownerless(self, run: int, claim: int, life: int, before: dict[int, tuple[int, float]]) -> None:
        now = self._queue.now
        was, since = before.get(run, (0, now))
        if was != claim:
            since = now
        self._ownerless[run] = (claim, since)
        if since != NOTED and now - since > OWNERLESS_SECONDS:
            owner = self.replicas.get(life)
            is_up = owner is not None and not owner.is_dead and owner.stopped_until <= now
            what = "is running" if self.is_running(run) else "waits"
            state = "lives and does not know it" if is_up else "does not run"
            text = f"run {run} {what} without an owner for {now - since:.0f} s: its replica {life} {state}"
            self.violate("I5", text, run, (life,))
            self._ownerless[run] = (claim, NOTED)


NOTED: Final = -1.0
"""Since when a run has no owner that was told already."""
