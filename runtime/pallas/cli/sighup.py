"""SIGHUP: the configuration, the log and the certificate anew, and never an end."""

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
"""Seconds after which a reload counts as over, whatever it does."""


class SighupReloads:
    """Does one reload after the other, for as many signals as came. ``ask`` belongs to the fleet's loop."""

    def __init__(self, narrator: Narrator) -> None:
        self._narrator = narrator
        self._asked = asyncio.Event()
        self.asked_early = False

    def ask(self) -> None:
        """A signal came; returns at once. Several that come during one reload are one more."""
        self._asked.set()

    async def run(self, fleet: Fleet, report: ServiceReport, starting: "asyncio.Task[None]") -> None:
        """Reload when it is asked for, until cancelled; what is asked during the start waits for its end."""
        if self.asked_early:
            self.ask()
        while True:
            await self._asked.wait()
            self._reopen()
            await asyncio.wait({starting})
            self._asked.clear()
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
            self._narrator.warn(f"warning: the reload was not over within {DEADLINE:.0f} s")
        finally:
            unlisten()

    def _certificate(self, fleet: Fleet) -> None:
        """The certificate anew, where there is one; a bad one leaves that of before."""
        try:
            problem, level = fleet.ports.reload_certificate(), logging.WARNING
        except Fault as fault:
            problem, level = fault.message, logging.ERROR
        if problem:
            log.log(level, "%s", problem)
            self._narrator.warn(f"{logging.getLevelName(level).lower()}: {problem}")


def _ends(event: Event) -> bool:
    """Whether this tells of the end of a reload that was asked for."""
    if isinstance(event, Reloaded):
        return not event.agent
    return isinstance(event, Notice) and event.text.startswith(("reload was not done", "changed files could"))
