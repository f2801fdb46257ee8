"""One replica: its life, its looks for dead ones, and its way to the database."""

from collections.abc import Callable
from math import log
from random import Random
from typing import TYPE_CHECKING, Any, Final

from .database import Database
from .event_queue import NEVER
from .rows import BUSY, DONE, FAILED, Claimed, Queued, Suspect
from .rules import (
    ANSWER_SECONDS,
    BEAT_SECONDS,
    JUDGE_SECONDS,
    LOOK_SECONDS,
    SETTLED_SECONDS,
    WRITE_SECONDS,
    Rules,
)
from .worker import Worker

if TYPE_CHECKING:
    from .audit import Audit
    from .event_queue import EventQueue

MOST_SUSPECTS: Final = 20
"""Lives that one look checks. The code has no such bound; here it keeps a storm of looks small."""
_REFUSED_SECONDS: Final = 0.005
_CONNECT_SECONDS: Final = 0.01
_SOON_SECONDS: Final = 0.2
_NO_BEAT: Final = -1e9


class Replica:
    """A process with a life. Its events are dropped when it is dead, and wait while it is stopped."""

    def __init__(
        self,
        life: int,
        host: int,
        skew: float,
        *,
        rules: Rules,
        queue: "EventQueue",
        database: Database,
        audit: "Audit",
        random: Random,
        tell: Callable[[int], None],
        number: Callable[[], int],
        loss: float,
    ) -> None:
        self.life = life
        self.host = host
        self.rules = rules
        self.database = database
        self.audit = audit
        self.random = random
        self._queue = queue
        self._tell = tell
        self._loss = loss
        self.number = number
        """Another number each time."""
        self.is_dead = False
        self.died_at = 0.0
        self.stopped_until = 0.0
        self.cut_until = 0.0
        """Until when nothing passes between it and the database."""
        self.resets = False
        """Whether what does not pass fails at once, and not in silence."""
        self.refused_until = 0.0
        """Until when the server has no connection left for its lock."""
        self.hurt_until = 0.0
        """The end of the last pause, partition or refusal."""
        self.is_drained = False
        self.is_ready = False
        """Whether it takes messages."""
        self.opened_at = database.clock + skew
        self.began_at = NEVER
        """When it held its lock for the first time."""
        self.session = 0
        self._sessions = 0
        self.beat_at = _NO_BEAT
        self._settled_since = NEVER
        """Since when its beats go well."""
        self._fresh_since = 0.0
        """The last gap between beats ended then."""
        self.workers: dict[int, Worker] = {}
        self._waiting: dict[int, list[Worker]] = {}
        """The runs of this replica in a thread, in order; the first one begins or runs."""
        self._unknown: frozenset[int] = frozenset()
        self._unknown_queued: frozenset[int] = frozenset()
        audit.replicas[life] = self

    @property
    def now(self) -> float:
        """Seconds by the clock of the machine that goes on while the process is stopped."""
        return self._queue.now

    def exponential(self, mean: float) -> float:
        """A random time."""
        return -mean * log(1.0 - self.random.random())

    def after(self, seconds: float, do: Callable[[Any], None], what: Any) -> None:
        """Have this replica do something then."""
        self._queue.after(seconds, self, do, what)

    def start(self) -> None:
        """Take the lock, then beat, look and write progress."""
        self._connect(None)
        self.after(self.random.random() * LOOK_SECONDS, self._look, None)
        self.after(self.random.random(), self._write_progress, None)

    def serves(self, thread: int) -> bool:
        """Whether it has the agent of a thread. Half the hosts do not have that of an eighth of them."""
        return thread % 8 != 0 or self.host % 2 == 0

    def works_on(self, run: int) -> bool:
        """Whether it works on that run, or still has to write how it ended."""
        return run in self.workers

    # The way to the database.

    def ask(
        self,
        work: Callable[[Any], Any],
        what: Any,
        then: Callable[[Any], None],
        seconds: float = WRITE_SECONDS,
    ) -> None:
        """Have the database do ``work(what)``, and give its answer, or FAILED, to ``then``."""
        now = self._queue.now
        self._queue.after(self._latency(), None, self._arrive, (work, what, then, now, now + seconds))

    def _latency(self) -> float:
        chance = self.random.random()
        if chance < 0.002:
            return 0.2 * self.random.random()
        return 0.0004 + 0.002 * chance * chance

    def _arrive(self, asked: tuple[Callable[[Any], Any], Any, Callable[[Any], None], float, float]) -> None:
        work, what, then, sent, until = asked
        queue = self._queue
        now = queue.now
        if now < self.cut_until:
            if self.resets or self.cut_until > until:
                queue.after(_REFUSED_SECONDS if self.resets else until - now, self, then, FAILED)
            elif not self.is_dead:  # sent again by its machine until it arrives
                queue.after(self.cut_until - now + self._latency(), None, self._arrive, asked)
            return
        chance = self.random.random()
        # A connection does not outlive its server.
        if now < self.database.down_until or sent < self.database.broke_at or chance < self._loss:
            queue.after(_REFUSED_SECONDS, self, then, FAILED)
            return
        answer = work(what)
        if chance > 1.0 - self._loss:
            queue.after(_REFUSED_SECONDS, self, then, FAILED)
            return
        queue.after(self._latency(), None, self._return, (then, answer, until))

    def _return(self, answered: tuple[Callable[[Any], None], Any, float]) -> None:
        then, answer, until = answered
        now = self._queue.now
        if now < self.cut_until:
            if self.resets or self.cut_until > until:
                self._queue.after(_REFUSED_SECONDS if self.resets else until - now, self, then, FAILED)
            else:
                self._queue.after(self.cut_until - now, None, self._return, answered)
        elif now < self.stopped_until:
            self._queue.after(0.0, self, then, answer)
        elif not self.is_dead:
            then(answer)

    # Its life.

    def is_fresh(self, confirmed_at: float) -> bool:
        """Whether no other replica can have taken this one for dead since a run was its own."""
        rules = self.rules
        if self._queue.now - self.beat_at >= rules.gate_seconds:
            return False
        return not rules.gap or confirmed_at >= self._fresh_since

    def _connect(self, _: object) -> None:
        self._sessions += 1
        number = self._sessions

        def connect(_: object) -> str:
            sessions = self.database.sessions
            if self.is_dead or self.now < self.refused_until:  # no one answers the handshake
                return FAILED
            if sessions.get(self.life):  # its own, which the server does not know to be gone
                return BUSY
            sessions[self.life] = number
            self.session = number
            return DONE

        self.ask(connect, None, self._locked, ANSWER_SECONDS)

    def _locked(self, answer: object) -> None:
        if answer is DONE:
            self.ask(self.database.enrol, self, self._enrolled)
        else:
            self._lost_lock(answer is BUSY)

    def _enrolled(self, answer: object) -> None:
        if answer is DONE:
            if self.beat_at == _NO_BEAT:
                self.beat_at = self.began_at = self._queue.now
                self._settled_since = -SETTLED_SECONDS
            self._beat(None)
        else:
            self._lost_lock(False)

    def _beat(self, _: object) -> None:
        at = self._queue.now

        def beaten(answer: object) -> None:
            if answer is FAILED:
                self.audit.event(self, "its beat fails")
                self._lost_lock(False)
                return
            if answer is BUSY:
                self.audit.event(self, "its beat finds no life")
                self.audit.counts["beats that found no life"] += 1
                self._fresh_since = self._queue.now
                self.ask(self.database.enrol, self, self._enrolled_again)
            elif at - self.beat_at > self.rules.gate_seconds:
                self._fresh_since = self._queue.now
                self._settled_since = NEVER
            if self._settled_since == NEVER:
                self._settled_since = self._queue.now
            self.beat_at = at
            if answer is DONE:
                self.is_ready = not self.is_drained
                self.after(BEAT_SECONDS, self._beat, None)

        self.ask(self.database.beat, self, beaten, ANSWER_SECONDS)

    def _enrolled_again(self, answer: object) -> None:
        if answer is FAILED:
            self._lost_lock(False)
        else:
            self.after(BEAT_SECONDS, self._beat, None)

    def _lost_lock(self, is_held: bool) -> None:
        """Connect again later. The server ends the session once it hears that it is closed."""
        life, number = self.life, self.session
        self._settled_since = NEVER
        self.session = 0

        def hear(_: object) -> None:
            if self.database.sessions.get(life) == number:
                del self.database.sessions[life]

        if number:
            wait = max(0.0, self.cut_until - self._queue.now)
            self._queue.after(wait + self._latency(), None, hear, None)
        pause = _SOON_SECONDS if self.rules.quick_lock else BEAT_SECONDS
        self.after(pause + (ANSWER_SECONDS if is_held else 0.0), self._connect, None)

    def break_lock(self) -> None:
        """End the session of its lock, which it notices when it beats, or at once with ``quick lock``."""
        if self.database.sessions.pop(self.life, 0):
            self.audit.fault(self, "the connection of its lock breaks")

    # Looks for dead ones.

    def _look(self, _: object) -> None:
        if self.is_drained:
            return
        if self._may_judge:
            self.ask(self.database.suspects, self, self._suspected)
        else:
            self._look_later()

    @property
    def _may_judge(self) -> bool:
        """Whether its own beats say that it can tell dead ones from living ones."""
        now, rules = self._queue.now, self.rules
        if rules.settled_judge and now - self._settled_since < SETTLED_SECONDS:
            return False
        return not rules.fresh_judge or now - self.beat_at < JUDGE_SECONDS

    def _look_later(self) -> None:
        self.after(LOOK_SECONDS, self._look, None)

    def _suspected(self, answer: Any) -> None:
        if answer is FAILED:
            self._look_later()
            return
        suspects: list[Suspect] = answer
        if len(suspects) > MOST_SUSPECTS:
            suspects = self.random.sample(suspects, MOST_SUSPECTS)
        self._check(suspects, 0, [])

    def _check(self, suspects: list[Suspect], at: int, found: list[tuple[Claimed | Queued, float]]) -> None:
        if at == len(suspects) or not self._may_judge:
            self._go_on(found)
            if self.rules.adopts:
                self.ask(self.database.own_runs, self, self._adopt)
                self.ask(self.database.own_queued, self, self._adopt_queued)
            else:
                self._look_later()
            return
        asked_at = self._queue.now

        def claimed(answer: Any) -> None:
            if answer is FAILED:
                if self.rules.keeps_claims:
                    self._go_on(found)
                elif found:
                    self.audit.event(self, f"a failure loses its claims of {len(found)} runs")
                self._look_later()
                return
            found.extend((each, asked_at) for each in answer)
            self._check(suspects, at + 1, found)

        self.ask(self.database.claim, (self, suspects[at]), claimed)

    def _go_on(self, found: list[tuple[Claimed | Queued, float]]) -> None:
        for claimed, asked_at in found:
            if isinstance(claimed, Queued):
                self._wait_on(claimed)
                continue
            worker = Worker(self, claimed, asked_at=asked_at)
            self.workers[claimed.run] = worker
            self.audit.counts["runs continued"] += 1
            worker.go_on(claimed)

    def _wait_on(self, queued: Queued) -> None:
        claimed = Claimed(queued.run, queued.thread, 1, self.number())
        worker = Worker(self, claimed, asked_at=self.now)
        worker.place = queued.position
        self.workers[queued.run] = worker
        self.audit.counts["waiting runs continued"] += 1
        worker.begin(None)

    def _adopt(self, answer: Any) -> None:
        self._look_later()
        if answer is FAILED:
            return
        unknown = {each.claim for each in answer if not self._has(each)}
        for each in answer:
            # Twice: what has just begun or ended is not known here for a moment.
            if each.claim in unknown & self._unknown:
                asked_at = self._queue.now

                def claimed(again: Any, asked_at: float = asked_at) -> None:
                    if again is not FAILED:
                        self._go_on([(one, asked_at) for one in again])

                self.audit.counts["own runs found again"] += 1
                self.ask(self.database.claim_own, (self, each), claimed)
        self._unknown = frozenset(unknown)

    def _adopt_queued(self, answer: Any) -> None:
        if answer is FAILED:
            return
        unknown = frozenset(each.position for each in answer if each.run not in self.workers)
        for each in answer:
            if each.position in unknown & self._unknown_queued:
                self._wait_on(each)
        self._unknown_queued = unknown

    def _has(self, claimed: Claimed) -> bool:
        worker = self.workers.get(claimed.run)
        return worker is not None and worker.claim == claimed.claim

    # Its runs.

    def take(self, run: int, thread: int, caller: int) -> None:
        """Take a message; the runs of a thread begin in order."""
        claimed = Claimed(run, thread, 1, self.number())
        worker = Worker(self, claimed, caller=caller, asked_at=self._queue.now)
        self.workers[run] = worker
        turns = self._waiting.setdefault(thread, [])
        turns.append(worker)
        if len(turns) == 1:
            self.after(0.0005, worker.begin, None)

    def ended(self, worker: Worker) -> None:
        """A worker stopped."""
        if self.workers.get(worker.run) is worker:
            del self.workers[worker.run]
        if worker.caller is None:
            return
        self._tell(worker.caller)
        worker.caller = None
        turns = self._waiting[worker.thread]
        turns.remove(worker)
        if turns:
            self.after(0.0005, turns[0].begin, None)
        else:
            del self._waiting[worker.thread]

    def _write_progress(self, _: object) -> None:
        self.after(1.0, self._write_progress, None)
        if self.workers:
            self.ask(self.database.progress, tuple(self.workers.values()), _nothing)

    # Its end.

    def die(self, *, is_silent: bool = False) -> None:
        """End at once. The server hears of it, unless the machine is gone too."""
        self.is_dead = True
        self.died_at = self._queue.now
        for worker in self.workers.values():
            if worker.caller is not None:
                self._tell(worker.caller)
                worker.caller = None
        life, number = self.life, self.session

        def hear(_: object) -> None:
            if self.database.sessions.get(life) == number:
                del self.database.sessions[life]

        wait = 60.0 if is_silent else max(0.0, self.cut_until - self._queue.now) + 0.002
        self._queue.after(wait, None, hear, None)

    def hand_over(self) -> None:
        """Leave all runs to other replicas."""
        for worker in tuple(self.workers.values()):
            worker.hand_over()

    def drain(self) -> None:
        """Take no more runs, and look for no more."""
        self.is_ready = False
        self.is_drained = True


def _nothing(_: object) -> None:
    """The answer to a write that nothing waits for."""
