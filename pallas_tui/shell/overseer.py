"""The part of the workbench that has the fleet do something as a whole: watch, reload, and end."""

from functools import partial
from time import monotonic
from typing import Any, Final

from pallas.model import Fault, FleetVerb, RunningFleet
from pallas.model.operations import READ_ONLY
from pallas_tui.placeholder_fleet import outlives

from ..settings import Settings
from ..text import count
from .error_boundary import Bounded

_TWICE: Final = 2.0
_NAMED: Final = 4
"""Agents that are named when one is asked whether to leave their runs."""
_NO_WATCH: Final = "The files of this fleet are not watched: it was started without --watch."


class Overseer(Bounded):
    """``fleet`` is the one that runs, None when none was started."""

    settings: Settings

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.fleet: RunningFleet | None = None
        self._pressed_at = float("-inf")
        self._asked_to_quit = ""

    # Versions and watching

    def action_watch(self) -> None:
        """Pause or resume looking after the files."""
        watch = self.fleet.snapshot().watch if self.fleet is not None else None
        if watch is None:
            self._refuse(_NO_WATCH if self.fleet is not None else "The fleet is not running.")
            return
        verb: FleetVerb = "resume" if watch.mode == "paused" else "pause"
        if self._control(verb):
            paused = "Saved files are ignored until you resume watching."
            self.notify(paused if verb == "pause" else "Saved files are watched again.", markup=False)

    def action_reload_all(self) -> None:
        """Reload every agent from the saved files."""
        watch = self.fleet.snapshot().watch if self.fleet is not None else None
        if self._control("reload"):
            files = f" {count(len(watch.waiting), 'file')}" if watch is not None and watch.waiting else ""
            self.notify(f"Reloading what changed{':' if files else ''}{files}.", markup=False)

    def action_ask_models(self) -> None:
        """Ask models what becomes of the runs of the last verdict."""
        fleet = self.fleet
        if fleet is None or not fleet.can_control:
            self._refuse(READ_ONLY if fleet is not None else "The fleet is not running.")
        else:
            self.run_worker(
                self._ask_models(fleet), group="verdict", description="ask models for the verdict"
            )

    async def _ask_models(self, fleet: RunningFleet) -> None:
        try:
            said = await fleet.ask_models()
        except Fault as fault:
            self.notify(fault.message, severity="warning", timeout=15, markup=False)
        else:
            self.notify(said, markup=False)

    def _control(self, verb: FleetVerb) -> bool:
        """Send the verb to the fleet; show why and return False if it cannot run."""
        fleet = self.fleet
        if fleet is None:
            self._refuse("The fleet is not running.")
        elif not fleet.can_control:
            self._refuse(READ_ONLY)
        else:
            try:
                fleet.control_fleet(verb)
            except Fault as fault:
                self.notify(fault.message, severity="error", timeout=15, markup=False)
            else:
                return True
        return False

    def _refuse(self, problem: str) -> None:
        self.notify(problem, severity="warning", markup=False)

    # The end

    async def action_quit(self) -> None:
        """Leave; with runs in flight ask once, unless the settings say otherwise."""
        asked = bool(self._asked_to_quit) and self.main.asking == self._asked_to_quit
        if asked or not self.settings.ask_quit or not self._question():
            self.exit(0)
            return
        while self.screen is not self.main:
            await self.pop_screen()
        self.main.ask(self._question(), partial(self.exit, 0), lambda: (self._question(), ""))

    def _question(self) -> str:
        """Return the question to confirm quitting; empty if no run is in flight."""
        snapshot = self.fleet.snapshot() if self.fleet is not None else None
        busy = [agent for agent in snapshot.agents if agent.runs_active] if snapshot is not None else []
        busy.sort(key=lambda agent: -agent.runs_active)
        runs = sum(agent.runs_active for agent in busy)
        # A fleet elsewhere goes on; only runs started from here end with the connection.
        which = "; those of this chat" if outlives(self.fleet) else " and"
        names = [f"{agent.name} {agent.runs_active}" if runs > 1 else agent.name for agent in busy[:_NAMED]]
        names += [f"{len(busy) - _NAMED} more"] if len(busy) > _NAMED else []
        question = f"{count(runs, 'run is', 'runs are')} in flight{which} will be cancelled. Quit?"
        self._asked_to_quit = f"{question} ({', '.join(names)})" if runs else ""
        return self._asked_to_quit

    async def action_quit_twice(self) -> None:
        """Leave on the second ctrl+c within two seconds."""
        now = monotonic()
        if now - self._pressed_at < _TWICE:
            self._pressed_at = float("-inf")
            await self.action_quit()
        else:
            self._pressed_at = now
            self.notify("Press ctrl+c again to quit.", timeout=_TWICE)
