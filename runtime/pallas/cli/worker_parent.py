"""The parent of worker processes: it binds the ports, starts the processes, and has no fleet of its own.

Each worker is this command again, with a link to the parent in its environment (``fleet.worker_process``).
The parent binds a port when the first worker asks for it and passes the same socket to all of them. It ends
when the first worker cannot start, so that every mistake of a project is reported once. The other workers
import their code at the same time and start once the first one is ready.
"""

import logging
import os
import secrets
import selectors
import signal
import socket
import subprocess
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from pallas.fleet.child_processes import adopting, children, end_children
from pallas.fleet.worker_process import VARIABLE, receive, send
from pallas.model import Fault
from pallas.surfaces.connection_shares import ConnectionShares
from pallas.surfaces.port_binding import bind
from pallas.surfaces.session_seal import MAX_ENDED

from .exit_status import BLOCKED, CLEAN, CUT, SECOND_SIGNAL, UNUSABLE
from .process_signals import RELOAD_SIGNAL, STOP_SIGNALS, Signals
from .startup_report import Narrator
from .systemd_notify import Notifier

log = logging.getLogger(__name__)

FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 30.0
WELL_AFTER: Final = 60.0
"""Seconds before a dead worker is started again: doubled at each death, unless it was ready for so long."""
LEEWAY: Final = 25.0
"""Seconds that a worker has to end, beside the drain timeout; it watches over its own end with less."""
ORPHANS_AFTER: Final = 2.0
"""Seconds that the children of a dead worker have to notice that; then they are killed."""

_AT_ONCE: Final = 200
"""Ended sessions in one message."""
_WORST_FIRST: Final = (BLOCKED, UNUSABLE, CUT, CLEAN)


@dataclass(slots=True, eq=False)
class _Worker:
    """One worker process while it runs."""

    number: int
    process: subprocess.Popen[bytes]
    link: socket.socket
    pidfd: int
    is_ready: bool = False
    is_reloading: bool = False
    began: float = field(default_factory=monotonic)
    beat: float = field(default_factory=monotonic)

    @property
    def shown(self) -> str:
        return f"worker {self.number} (process {self.process.pid})"


@dataclass(slots=True)
class _Port:
    """A bound port and the workers that serve it."""

    sock: socket.socket
    workers: set[int] = field(default_factory=set)


class WorkerParent:
    """Serves a project from ``workers`` processes; ``command`` starts one in ``environ``. ``run`` once."""

    def __init__(
        self,
        name: str,
        workers: int,
        command: Sequence[str],
        signals: Signals,
        notifier: Notifier,
        *,
        environ: Mapping[str, str],
        drain_timeout: float,
    ) -> None:
        self._workers = workers
        self._command = tuple(command)
        self._signals = signals
        self._notifier = notifier
        self._environ = dict(environ)
        self._drain_timeout = drain_timeout
        self._narrator = Narrator(name)
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, _Worker] = {}
        self._restart_at: dict[int, float] = {}
        self._failures: dict[int, int] = {}
        self._has_failed: set[int] = set()  # those whose first start failed
        self._ports: dict[tuple[str, int], _Port] = {}
        self._key, self._token = secrets.token_hex(32), secrets.token_urlsafe(32)
        self._table = _table(workers)
        self._shares = ConnectionShares(self._table, workers, 1)
        self._ended_sessions: OrderedDict[str, None] = OrderedDict()
        self._is_started = False
        self._stopping_until: float | None = None
        self._orphans_at: float | None = None
        self._second: signal.Signals | None = None
        self._status = CLEAN
        self._beat = 0.0
        self._others: frozenset[int] = frozenset()

    def run(self) -> int:
        """Serve until a signal or the failure of the first start; returns the exit status."""
        for number in range(1, self._workers + 1):
            self._shares.clear(number)
        self._others = children()
        with adopting():
            try:
                self._selector.register(self._signals, selectors.EVENT_READ, ("signal", None))
                for number in range(1, self._workers + 1):
                    self._start(number)
                pids = ", ".join(str(each.process.pid) for each in self._running.values())
                self._narrator.say(f"{self._workers} workers: processes {pids}")
                while self._running or self._restart_at:
                    self._attend()
            finally:
                end_children(but=self._others)
                self._selector.close()
        if self._second is not None:
            return SECOND_SIGNAL + self._second
        if self._stopping_until is not None and self._is_started:
            self._narrator.say("stopped")
        return self._status

    def _attend(self) -> None:
        """Handle what happens until the next deadline."""
        for key, _ in self._selector.select(self._until_due()):
            about, worker = key.data
            if worker is None:
                self._heed()
            elif self._running.get(worker.number) != worker:
                pass  # an earlier event of this round was its end
            elif about == "link":
                self._hear(worker)
            else:
                self._ended(worker)
        now = monotonic()
        for number in [number for number, due in self._restart_at.items() if due <= now]:
            del self._restart_at[number]
            self._start(number)
        if self._orphans_at is not None and self._orphans_at <= now:
            self._orphans_at = None
            self._end_orphans()
        if self._stopping_until is not None and self._stopping_until <= now:
            self._kill("did not end in time and was killed")
        self._give_sign_of_life(now)

    def _until_due(self) -> float | None:
        due = [*self._restart_at.values()]
        due += [each for each in (self._orphans_at, self._stopping_until) if each is not None]
        if self._notifier.watchdog:
            due.append(self._beat + self._notifier.watchdog / 2)
        return max(0.0, min(due) - monotonic()) if due else None

    def _heed(self) -> None:
        """A signal to the parent is an order to all workers."""
        number = self._signals.wait(0)
        if number == RELOAD_SIGNAL:
            self._tell("reload")
        elif number in STOP_SIGNALS and self._stopping_until is None:
            self._stop()
        elif number in STOP_SIGNALS:
            self._second = signal.Signals(number)
            self._tell("now")
            self._stopping_until = monotonic() + FIRST_DELAY * 4

    def _stop(self) -> None:
        left = self._drain_timeout + LEEWAY
        self._notifier.send(STOPPING=1, EXTEND_TIMEOUT_USEC=int(left * 1e6), STATUS="draining")
        self._narrator.say("draining")
        self._stopping_until = monotonic() + left
        self._restart_at.clear()
        for port in self._ports.values():  # the port is free as soon as no worker serves it
            port.sock.close()
        self._ports.clear()
        self._tell("stop")

    def _drain_for(self, seconds: float) -> None:
        """Give the workers as long as their files say now."""
        if self._stopping_until is not None and self._second is None:
            left = seconds + LEEWAY
            self._stopping_until = max(self._stopping_until, monotonic() + left)
            self._notifier.send(EXTEND_TIMEOUT_USEC=int(left * 1e6))

    def _kill(self, why: str) -> None:
        for worker in self._running.values():
            if self._second is None:
                self._warn(f"{worker.shown} {why}")
                self._status = BLOCKED
            worker.process.kill()
        self._stopping_until = monotonic() + LEEWAY

    def _tell(self, order: str) -> None:
        for worker in self._running.values():
            with suppress(OSError):
                send(worker.link, {"order": order})

    def _start(self, number: int) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                self._command,
                env={**self._environ, VARIABLE: str(theirs.fileno())},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,  # so that Ctrl-C at a terminal reaches the parent alone
            )
        worker = _Worker(number, process, ours, os.pidfd_open(process.pid))
        self._running[number] = worker
        self._selector.register(ours, selectors.EVENT_READ, ("link", worker))
        self._selector.register(worker.pidfd, selectors.EVENT_READ, ("end", worker))
        setup = {
            "number": number,
            "workers": self._workers,
            "key": self._key,
            "token": self._token,
            "watchdog": self._notifier.watchdog,
            "parent": os.getpid(),
        }
        with suppress(OSError):
            send(ours, setup, [self._table])
            if number == 1 or self._is_first_ready:
                send(ours, {"order": "go"})

    @property
    def _is_first_ready(self) -> bool:
        first = self._running.get(1)
        return self._is_started or (first is not None and first.is_ready)

    def _hear(self, worker: _Worker) -> None:
        found = receive(worker.link)
        if found is None:
            self._selector.unregister(worker.link)
            return
        message, _ = found
        if "bind" in message:
            self._pass_socket(worker, message["id"], *message["bind"])
        elif "ended" in message:
            self._sessions_ended(worker, message["ended"])
        elif "tell" in message:
            self._tell_others(worker, message)
        elif "drains" in message:
            self._drain_for(message["drains"])
        elif "listens" in message:
            ended = [*self._ended_sessions]
            with suppress(OSError):
                for first in range(0, len(ended), _AT_ONCE):
                    send(worker.link, {"ended": ended[first : first + _AT_ONCE]})
        elif "closed" in message:
            host, number = message["closed"]
            if (port := self._ports.get((host, number))) is not None:
                port.workers.discard(worker.number)
                if not port.workers:
                    self._ports.pop((host, number)).sock.close()
        else:
            self._report(worker, message.get("report", {}))

    def _sessions_ended(self, worker: _Worker, conversations: list[str]) -> None:
        """Tell the other workers, and those that start later, that these sessions have ended."""
        self._ended_sessions.update(dict.fromkeys(conversations))
        while len(self._ended_sessions) > MAX_ENDED:
            self._ended_sessions.popitem(last=False)
        self._tell_others(worker, {"ended": conversations})

    def _tell_others(self, worker: _Worker, message: dict[str, Any]) -> None:
        for each in self._running.values():
            if each is not worker:
                with suppress(OSError):
                    send(each.link, message)

    def _pass_socket(self, worker: _Worker, question: int, host: str, number: int, owner: str) -> None:
        answer: dict[str, Any] = {"id": question}
        port = self._ports.get((host, number))
        try:
            if self._stopping_until is not None:
                answer["problem"] = f"{owner}: port {number}: the fleet is stopping"
            elif port is None:
                port = self._ports[host, number] = _Port(bind(host, number, owner))
        except Fault as fault:
            answer["problem"] = fault.message
        with suppress(OSError):
            if port is None:
                send(worker.link, answer)
            else:
                port.workers.add(worker.number)
                send(worker.link, answer, [port.sock.fileno()])

    def _report(self, worker: _Worker, news: dict[str, str | int]) -> None:
        worker.beat = monotonic()
        if "RELOADING" in news and not worker.is_reloading:
            is_first = not any(each.is_reloading for each in self._running.values())
            worker.is_reloading = True
            if is_first:
                self._notifier.send(**news)
        elif "READY" in news and worker.is_reloading:
            worker.is_reloading = False
            if not any(each.is_reloading for each in self._running.values()):
                self._notifier.send(READY=1, STATUS=self._shown(news))
        elif "READY" in news:
            self._is_ready(worker, news)
        elif "STATUS" in news and worker.number == 1 and self._stopping_until is None:
            self._notifier.send(STATUS=self._shown(news))

    def _shown(self, news: dict[str, str | int]) -> str:
        ready = sum(each.is_ready for each in self._running.values())
        return f"{news.get('STATUS', '')}; {ready} of {self._workers} workers"

    def _is_ready(self, worker: _Worker, news: dict[str, str | int]) -> None:
        worker.is_ready = True
        if self._is_started:
            self._narrator.say(f"{worker.shown} is ready")
        elif worker.number == 1:
            self._tell("go")
        self._have_started(news)

    def _have_started(self, news: dict[str, str | int]) -> None:
        """Report once that the fleet runs: every worker is ready, or could not start at once."""
        if self._is_started or self._stopping_until is not None or not self._is_first_ready:
            return
        if {number for number, each in self._running.items() if each.is_ready} | self._has_failed == set(
            range(1, self._workers + 1)
        ):
            self._is_started = True
            self._notifier.send(READY=1, STATUS=self._shown(news))
            self._narrator.say("running")

    def _ended(self, worker: _Worker) -> None:
        status = worker.process.wait()
        del self._running[worker.number]
        with suppress(KeyError):
            self._selector.unregister(worker.link)
        self._selector.unregister(worker.pidfd)
        worker.link.close()
        os.close(worker.pidfd)
        self._shares.clear(worker.number)
        for port in self._ports.values():  # kept for the worker that takes its place
            port.workers.discard(worker.number)
        if self._stopping_until is not None:
            self._note(status)
        elif worker.number == 1 and not self._is_first_ready and not worker.is_ready:
            self._status = status if status >= 0 else SECOND_SIGNAL - status
            self._stop_quietly()
        else:
            self._start_later(worker, status)

    def _stop_quietly(self) -> None:
        """End the workers that wait for the first one, which could not start."""
        self._stopping_until = monotonic() + LEEWAY
        self._restart_at.clear()
        self._tell("stop")

    def _note(self, status: int) -> None:
        """Make the exit status that of the worker that ended worst."""
        known = status if status in _WORST_FIRST else BLOCKED
        self._status = min(self._status, known, key=_WORST_FIRST.index)

    def _start_later(self, worker: _Worker, status: int) -> None:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        if not self._is_started:
            self._has_failed.add(worker.number)
        lived_well = worker.is_ready and monotonic() - worker.began > WELL_AFTER
        failures = 0 if lived_well else self._failures.get(worker.number, 0)
        self._failures[worker.number] = failures + 1
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2**failures)
        self._restart_at[worker.number] = monotonic() + delay
        self._orphans_at = monotonic() + ORPHANS_AFTER
        self._warn(f"warning: {worker.shown} {how}; it is started again in {delay:g} s")
        self._have_started({})

    def _end_orphans(self) -> None:
        """Kill what the children of dead workers left behind: it came to this process."""
        living = {each.process.pid for each in self._running.values()}
        below = living.union(self._others, *map(children, living))
        if killed := end_children(but=below):
            log.warning("%d processes that a dead worker left were killed", killed)

    def _give_sign_of_life(self, now: float) -> None:
        """Tell systemd that all workers are alive, if all of them said so within the watchdog's time."""
        every = self._notifier.watchdog
        if not every or now - self._beat < every / 2:
            return
        self._beat = now
        if all(now - each.beat < every for each in self._running.values() if each.is_ready):
            self._notifier.send(WATCHDOG=1)

    def _warn(self, text: str) -> None:
        log.warning("%s", text)
        self._narrator.warn(text)


def _table(workers: int) -> int:
    """A file in memory for the table of connections."""
    table = os.memfd_create("pallas-workers", os.MFD_CLOEXEC)
    os.ftruncate(table, ConnectionShares.size_of(workers))
    return table
