"""The whole: replicas, callers, faults and the audit."""

from itertools import count
from random import Random
from typing import Final, NamedTuple

from .audit import Audit
from .database import Database
from .event_queue import EventQueue
from .faults import Faults, Rates
from .replica import Replica
from .rows import RUNNING
from .rules import Rules

THREADS_OF_REPLICA: Final = 2
SETTLE_SECONDS: Final = 120.0
"""Seconds without faults and new messages at the end, in which each run ends or finds an owner."""
_LOOK_SECONDS: Final = 5.0


class Options(NamedTuple):
    """What is simulated. ``steps`` are events."""

    seed: int = 1
    steps: int = 1_000_000
    replicas: int = 100
    is_synchronous: bool = True
    without: frozenset[str] = frozenset()
    """The rules that are left out."""
    rates: Rates = Rates()
    loss: float = 0.001
    """The share of transactions whose connection breaks before they happen, and after it."""


class Simulation:
    """One simulation. ``run`` it once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._random = Random(options.seed)
        self.queue = EventQueue()
        self.audit = Audit(self.queue)
        self._rules = Rules(options.without)
        self.database = Database(self._rules, self.queue, self.audit, keeps_undo=not options.is_synchronous)
        self.audit.database = self.database
        self._lives = count(1)
        self._runs = count(1)
        self._numbers = count(1)
        self._is_over = False
        self._replicas = [self._new(host) for host in range(options.replicas)]

    def run(self) -> Audit:
        """Simulate all steps, then let everything come to rest, and check it."""
        options, queue = self._options, self.queue
        for replica in self._replicas:
            queue.after(self._random.random(), None, _start, replica)
        threads = THREADS_OF_REPLICA * options.replicas
        for thread in range(1, threads + 1):
            queue.after(1.0 + 10 * self._random.random(), None, self._speak, thread)
            if thread % 5 == 0:  # two callers in one thread
                queue.after(1.0 + 10 * self._random.random(), None, self._speak, thread)
        faults = Faults(
            options.rates,
            queue=queue,
            database=self.database,
            audit=self.audit,
            random=self._random,
            replicas=self._replicas,
            start=self._start_again,
            is_synchronous=options.is_synchronous,
        )
        queue.after(_LOOK_SECONDS, None, self._look, None)
        queue.run(options.steps)
        faults.stop()
        self._is_over = True
        queue.run(1 << 62, queue.now + SETTLE_SECONDS)
        self.audit.look(is_last=True)
        for run, row in self.database.runs.items():
            if row.status == RUNNING and not self._has_owner(run, row.life):
                self.audit.violate("I5", f"run {run} has no owner at the end", run, (row.life,))
        for thread, held in self.database.threads.items():
            if held.run and not self.audit.is_running(held.run):
                self.audit.violate("I5", f"thread {thread} is held by a run that is over", held.run)
        return self.audit

    def _has_owner(self, run: int, life: int) -> bool:
        return any(each.life == life and each.works_on(run) for each in self._replicas)

    def _new(self, host: int) -> Replica:
        skew = self._random.choice((0.0, 0.0, 0.5, -0.5, 30.0, -30.0))
        return Replica(
            next(self._lives),
            host,
            skew,
            rules=self._rules,
            queue=self.queue,
            database=self.database,
            audit=self.audit,
            random=self._random,
            tell=self._answered,
            number=self._numbers.__next__,
            loss=self._options.loss,
        )

    def _start_again(self, host: int) -> None:
        replica = self._replicas[host] = self._new(host)
        replica.start()

    def _speak(self, thread: int) -> None:
        """Have a caller send a message to a replica that takes it."""
        if self._is_over:
            return
        replica = self._random.choice(self._replicas)
        if replica.is_dead or not replica.is_ready or not replica.serves(thread):
            self.queue.after(0.3, None, self._speak, thread)
        else:
            replica.take(next(self._runs), thread, thread)

    def _answered(self, thread: int) -> None:
        self.queue.after(self._random.expovariate(0.2), None, self._speak, thread)

    def _look(self, _: object) -> None:
        self.database.forget_undo()
        self.audit.look()
        self.audit.forget_dead()
        self.queue.after(_LOOK_SECONDS, None, self._look, None)


def _start(replica: Replica) -> None:
    replica.start()
