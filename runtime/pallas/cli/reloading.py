"""SIGHUP: the configuration, the log and the certificate anew, and never an end."""

import asyncio
import logging
from typing import Final

from pallas.fleet.fleet import Fleet
from pallas.log import reopen_logging
from pallas.model import Event, Notice, Reloaded

from .narrator import Narrator
from .notify import ServiceReport

log = logging.getLogger(__name__)

DEADLINE: Final = 95.0
"""Seconds after which a reload counts as over, whatever it does."""


class Reloading:
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
        if (certificate := getattr(fleet, "reload_certificate", None)) is not None:
            certificate()
        over = asyncio.Event()

        def hear(event: Event) -> None:
            if (isinstance(event, Reloaded) and not event.agent) or (
                isinstance(event, Notice) and event.text.startswith("reload")
            ):
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
