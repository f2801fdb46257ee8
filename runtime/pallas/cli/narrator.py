"""What a person who started a fleet without a workbench reads: a line each, on stdout or stderr."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from pallas.fleet.reload.reloader import story_line
from pallas.model import (
    FAILED_STATES,
    AgentChanged,
    AgentState,
    Event,
    FleetChanged,
    FleetState,
    LoopBlocked,
    Notice,
    Reloaded,
)

_TOLD: Final = (FleetState.RUNNING, FleetState.DRAINING, FleetState.STOPPED)


class Narrator:
    """Tells what such a person waits for. A stream that takes nothing any more (a terminal that is gone, a
    closed pipe, a full disk) gets nothing any more; the fleet goes on."""

    def __init__(self, project: str) -> None:
        self._project = project

    def say(self, text: str) -> None:
        """A line on stdout."""
        try:
            print(f"[{self._project}] {text}", flush=True)
        except (OSError, ValueError):
            sys.stdout = _nowhere()

    def warn(self, text: str, *, bare: bool = False) -> None:
        """A line on stderr; ``bare`` as it stands."""
        try:
            print(text if bare else f"[{self._project}] {text}", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            sys.stderr = _nowhere()

    def hear(self, event: Event) -> None:
        """Tell of an event what matters."""
        match event:
            case AgentChanged(state=state) if state is AgentState.READY or state in FAILED_STATES:
                self.say(f"{event.agent}: {event.detail or state.value}")
            case Notice(level=level) if level != "info":
                self.warn(f"{level}: {event.text}")
            case LoopBlocked(over=False):
                where = f" at {event.place}" if event.place else ""
                culprit = event.agent or "something"
                self.warn(f"warning: {culprit} blocks the event loop of all agents{where}")
            case Reloaded():
                self._reloaded(event)
            case FleetChanged(state=state) if state in _TOLD:
                self.say(f"{state.value}: {event.detail}" if event.detail else state.value)
            case _:
                pass

    def _reloaded(self, event: Reloaded) -> None:
        if event.outcome == "failed":
            self.warn(f"error: {story_line(event)}; the version before goes on")
        elif event.outcome == "live" or not event.agent:  # of the whole somebody has asked
            self.say(story_line(event))


def _nowhere() -> TextIO | None:
    with suppress(OSError):
        return Path(os.devnull).open("w")
    return None
