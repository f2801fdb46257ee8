"""SIGHUP: reload the configuration, the log and the certificate; never ends the process."""

import asyncio
import logging
from typing import Final

from pallas.fleet.fleet import Fleet
from pallas.model import Event, Fault, Notice, Reloaded
from pallas.telemetry.log import reopen_logging

from .startup_report import Narrator
from .systemd_notify import ServiceReport

log = logging.getLogger(__name__)

DEADLINE: Final = 95.0
"""Seconds after which a reload counts as over, whatever it still does."""


class SighupReloads:
    """Runs one reload at a time, for any number of signals. ``request`` belongs to the fleet's loop."""

    def __init__(self, narrator: Narrator) -> None:
        self._narrator = narrator
        self._requested = asyncio.Event()
        self.requested_early = False

    def request(self) -> None:
        """Note a signal; returns at once. Several during one reload cause one more."""
        self._requested.set()

    async def run(self, fleet: Fleet, report: ServiceReport, starting: "asyncio.Task[None]") -> None:
        """Reload when asked, until cancelled. A request during the start waits until the start is over."""
        if self.requested_early:
            self.request()
        while True:
            await self._requested.wait()
            self._reopen()
            await asyncio.wait({starting})
            self._requested.clear()
            report.reloading()
            try:
                await self._reload(fleet)
            except Exception:
                log.exception("the reload failed")
                self._narrator.warn("error: the reload failed; the log has the details")
            finally:
                report.reloaded()

    def _reopen(self) -> None:
        path = reopen_logging()
        log.info("SIGHUP: the log goes to %s", path)
        self._narrator.say(f"reloading (SIGHUP); log {path}")

    async def _reload(self, fleet: Fleet) -> None:
        self._certificate(fleet)
        over = asyncio.Event()

        def hear(event: Event) -> None:
            if _ends(event):
                over.set()

        unlisten = fleet.hub.listen(hear)
        try:
            fleet.control_fleet("reload")
            async with asyncio.timeout(DEADLINE):
                await over.wait()
        except TimeoutError:
            self._narrator.warn(f"warning: the reload did not end within {DEADLINE:.0f} s")
        finally:
            unlisten()

    def _certificate(self, fleet: Fleet) -> None:
        """Load the certificate again, if there is one; a bad one leaves the previous one in use."""
        try:
            problem, level = fleet.ports.reload_certificate(), logging.WARNING
        except Fault as fault:
            problem, level = fault.message, logging.ERROR
        if problem:
            log.log(level, "%s", problem)
            self._narrator.warn(f"{logging.getLevelName(level).lower()}: {problem}")


def _ends(event: Event) -> bool:
    """Return whether the event reports the end of a requested reload."""
    if isinstance(event, Reloaded):
        return not event.agent
    return isinstance(event, Notice) and event.text.startswith(("reload was not done", "changed files could"))
