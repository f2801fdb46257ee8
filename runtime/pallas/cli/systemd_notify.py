"""Notifications to systemd, as in ``sd_notify(3)``: one datagram per message, no library."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, MutableMapping
from time import CLOCK_MONOTONIC, clock_gettime_ns
from typing import Final

from pallas.model import AgentChanged, Event, FleetChanged, FleetSnapshot, FleetState
from pallas.safe_text import one_line

log = logging.getLogger(__name__)

_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
_LEEWAY: Final = 10.0


class Notifier:
    """Sends to the socket that the environment names; without one it does nothing. Never raises.

    It removes the variables from ``environ``, so that a child process cannot send in our name. ``watchdog``
    is the seconds within which systemd wants a sign of life, 0 if it wants none from this process.
    """

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        address, microseconds, pid = (environ.pop(name, "") for name in _VARIABLES)
        self._address = _address(address)
        mine = not pid or pid == str(os.getpid())
        self.watchdog = (
            int(microseconds) / 1e6 if self._address and mine and microseconds.isdecimal() else 0.0
        )
        self._failed = False

    @property
    def is_enabled(self) -> bool:
        """Whether systemd listens."""
        return bool(self._address)

    def send(self, **news: str | int) -> None:
        """Send a message: ``send(READY=1, STATUS="3 ready")``, one line each."""
        if not self._address:
            return
        message = "\n".join(f"{name}={value}" for name, value in news.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.sendto(message.encode(), self._address)
        except OSError as error:
            if not self._failed:  # Once: the next failure would say the same.
                log.warning("systemd cannot be notified of this service: %s", error.strerror or error)
            self._failed = True
        else:
            self._failed = False


class ParentNotifier(Notifier):
    """Of a worker process: reports to the parent of all of them, which tells systemd."""

    def __init__(self, report: Callable[[Mapping[str, str | int]], None], watchdog: float) -> None:
        super().__init__({})
        self._report = report
        self.watchdog = watchdog

    @property
    def is_enabled(self) -> bool:
        """The parent always listens."""
        return True

    def send(self, **news: str | int) -> None:
        """Report to the parent."""
        self._report(news)


def _address(name: str) -> str:
    """Return the socket's address; empty for none, and for one that is not a local socket."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else ""


class ServiceReport:
    """Reports the fleet's state: ``hear`` takes its events. Belongs to the fleet's loop.

    ``drain_timeout`` returns the seconds that the fleet may take to stop, in addition to the usual time.
    """

    def __init__(
        self, notifier: Notifier, snapshot: Callable[[], FleetSnapshot], drain_timeout: Callable[[], float]
    ) -> None:
        self._notifier = notifier
        self._snapshot = snapshot
        self._drain_timeout = drain_timeout
        self._status = ""
        self._reloading = False

    def hear(self, event: Event) -> None:
        """Handle one event; returns at once."""
        if not self._notifier.is_enabled or not isinstance(event, AgentChanged | FleetChanged):
            return
        status = status_of(self._snapshot())
        if isinstance(event, FleetChanged) and event.state is FleetState.DRAINING:
            left = int((self._drain_timeout() + _LEEWAY) * 1e6)
            detail = one_line(event.detail, 200)
            status = f"draining: {detail}" if detail else status
            self._notifier.send(STOPPING=1, EXTEND_TIMEOUT_USEC=left, STATUS=status)
        elif isinstance(event, FleetChanged) and event.state is FleetState.STOPPING:
            self._notifier.send(STOPPING=1, STATUS=status)
        elif isinstance(event, FleetChanged) and event.state is FleetState.RUNNING:
            self._notifier.send(READY=1, STATUS=status)
        elif status != self._status:
            self._notifier.send(STATUS=status)
        self._status = status

    def reloading(self) -> None:
        """Report that the configuration is being read."""
        microseconds = clock_gettime_ns(CLOCK_MONOTONIC) // 1_000
        self._notifier.send(RELOADING=1, MONOTONIC_USEC=microseconds, STATUS="reloading")
        self._status = "reloading"

    def reloaded(self) -> None:
        """Report the end of a reload, successful or not: the fleet serves."""
        self._status = status_of(self._snapshot())
        self._notifier.send(READY=1, STATUS=self._status)

    async def signs_of_life(self) -> None:
        """Send a sign of life twice per watchdog interval, until cancelled; returns if none is wanted.

        It runs on the fleet's own loop: if that is blocked, nothing is sent, and systemd acts.
        """
        if not self._notifier.watchdog:
            return
        while True:
            self._notifier.send(WATCHDOG=1)
            await asyncio.sleep(self._notifier.watchdog / 2)


def status_of(fleet: FleetSnapshot) -> str:
    """Return how many agents are in which state, in one line: ``3 ready, 1 crash-loop``."""
    counts: dict[str, int] = {}
    for agent in fleet.agents:
        counts[agent.state.value] = counts.get(agent.state.value, 0) + 1
    agents = ", ".join(f"{count} {state}" for state, count in counts.items()) or "no agents"
    return agents if fleet.state is FleetState.RUNNING else f"{fleet.state.value}: {agents}"
