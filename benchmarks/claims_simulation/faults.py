"""What happens to replicas, to their network and to the server, at random times."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from .audit import Audit
    from .database import Database
    from .event_queue import EventQueue
    from .replica import Replica


class Rates(NamedTuple):
    """Mean seconds between two faults of a kind: for each replica, or of the server."""

    kill: float = 150.0
    stop: float = 200.0
    cut: float = 200.0
    lock: float = 200.0
    drain: float = 400.0
    restart: float = 90.0
    failover: float = 150.0


NO_FAULTS: Final = Rates(*[0.0] * 7)


class Faults:
    """Injects faults until ``stop``."""

    def __init__(
        self,
        rates: Rates,
        *,
        queue: "EventQueue",
        database: "Database",
        audit: "Audit",
        random: Random,
        replicas: "list[Replica]",
        start: Callable[[int], None],
        is_synchronous: bool,
    ) -> None:
        self._queue = queue
        self._database = database
        self._audit = audit
        self._random = random
        self._replicas = replicas
        self._start = start
        self._is_synchronous = is_synchronous
        self._is_over = False
        hosts = len(replicas)
        for seconds, fault in (
            (rates.kill / hosts, self._kill),
            (rates.stop / hosts, self._pause),
            (rates.cut / hosts, self._cut),
            (rates.lock / hosts, self._break_lock),
            (rates.drain / hosts, self._drain),
            (rates.restart, self._restart),
            (rates.failover, self._fail_over),
        ):
            if seconds:
                self._later((seconds, fault))

    def stop(self) -> None:
        """No more faults."""
        self._is_over = True

    def _later(self, fault: tuple[float, Callable[[], None]]) -> None:
        self._queue.after(self._random.expovariate(1.0 / fault[0]), None, self._happen, fault)

    def _happen(self, fault: tuple[float, Callable[[], None]]) -> None:
        if not self._is_over:
            fault[1]()
            self._later(fault)

    def _one(self) -> "Replica | None":
        replica = self._random.choice(self._replicas)
        return None if replica.is_dead or replica.is_drained else replica

    def _kill(self) -> None:
        if (replica := self._one()) is not None:
            is_silent = self._random.random() < 0.1
            self._audit.fault(replica, "its machine is gone" if is_silent else "kill -9")
            replica.die(is_silent=is_silent)
            self._queue.after(self._random.uniform(0.5, 5.0), None, self._start, replica.host)

    def _pause(self) -> None:
        if (replica := self._one()) is not None:
            seconds = self._random.choice((0.5, 2.0, 4.0, 8.0, 20.0, 60.0)) * self._random.uniform(0.7, 1.3)
            self._audit.fault(replica, f"stopped for {seconds:.1f} s")
            replica.stopped_until = self._queue.now + seconds
            replica.hurt_until = max(replica.hurt_until, replica.stopped_until)

    def _cut(self) -> None:
        if (replica := self._one()) is not None:
            seconds = self._random.choice((0.5, 3.0, 7.0, 20.0, 45.0)) * self._random.uniform(0.7, 1.3)
            replica.resets = self._random.random() < 0.5
            how = "with resets" if replica.resets else "in silence"
            self._audit.fault(replica, f"cut off from the database for {seconds:.1f} s, {how}")
            replica.cut_until = self._queue.now + seconds
            replica.hurt_until = max(replica.hurt_until, replica.cut_until)

    def _break_lock(self) -> None:
        if (replica := self._one()) is not None:
            replica.break_lock()
            if self._random.random() < 0.3:
                seconds = self._random.uniform(1.0, 5.0)
                self._audit.fault(replica, f"gets no connection for its lock for {seconds:.1f} s")
                replica.refused_until = self._queue.now + seconds
                replica.hurt_until = max(replica.hurt_until, replica.refused_until)

    def _drain(self) -> None:
        if (replica := self._one()) is not None:
            self._audit.fault(replica, "drained")
            replica.drain()
            self._queue.after(3.0, None, self._hand_over, replica)

    def _hand_over(self, replica: Any) -> None:
        if not replica.is_dead:
            self._audit.event(replica, f"hands over {len(replica.workers)} runs")
            self._audit.counts["runs handed over"] += len(replica.workers)
            replica.hand_over()
            self._queue.after(0.5, None, self._end, replica)

    def _end(self, replica: Any) -> None:
        if not replica.is_dead:
            replica.die()
            self._queue.after(self._random.uniform(0.5, 3.0), None, self._start, replica.host)

    def _restart(self) -> None:
        if self._queue.now > self._database.down_until:
            seconds = self._random.uniform(0.3, 6.0)
            self._audit.server_fault(f"server restart ({seconds:.1f} s)")
            self._database.restart(seconds)

    def _fail_over(self) -> None:
        if self._queue.now > self._database.down_until:
            seconds = self._random.uniform(1.0, 15.0)
            lag = 0.0 if self._is_synchronous else self._random.uniform(0.0, 0.5)
            offset = self._random.uniform(-1.0, 1.0)
            writes = self._database.fail_over(seconds, lag, offset)
            text = f"after {seconds:.1f} s, {writes} writes lost, its clock {offset:+.1f} s off"
            self._audit.server_fault(f"failover to a standby ({text})")
