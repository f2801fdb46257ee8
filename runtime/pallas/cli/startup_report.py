"""What a person who started a fleet without a workbench reads: a line each, on stdout or stderr."""

import os
from contextlib import suppress
from typing import Final

from pallas.fleet.reload.reload_report import more_mistakes, report_line
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
    """Tells what such a person waits for. With ``logged`` stderr is the log's, and nothing of it is repeated.

    Where a line cannot be written (a terminal that is gone, a closed pipe, a full disk) it is lost, and the
    fleet goes on.
    """

    def __init__(self, project: str, *, logged: bool = False) -> None:
        self._project = project
        self._logged = logged
        self._broken: set[str] = set()  # agents whose last attempt at a new version failed

    def say(self, text: str) -> None:
        """A line on stdout."""
        _write(1, f"[{self._project}] {text}")

    def warn(self, text: str, *, bare: bool = False) -> None:
        """A line on stderr; ``bare`` as it stands."""
        _write(2, text if bare else f"[{self._project}] {text}")

    def hear(self, event: Event) -> None:
        """Tell of an event what matters."""
        match event:
            case AgentChanged(state=AgentState.CRASH_LOOP):
                pass  # a Notice tells it
            case AgentChanged(state=AgentState.READY, detail=detail) if detail.startswith("version "):
                pass  # Reloaded tells it, and what is different
            case AgentChanged(state=state) if state is AgentState.READY or state in FAILED_STATES:
                self.say(f"{event.agent}: {event.detail or state.value}")
            case Notice(level=level) if level != "info":
                self._complain(f"{level}: {event.text}")
            case LoopBlocked(over=False):
                where = f" at {event.place}" if event.place else ""
                culprit = event.agent or "something"
                self._complain(f"warning: {culprit} blocks the event loop of all agents{where}")
            case Reloaded():
                self._reloaded(event)
            case FleetChanged(state=state) if state in _TOLD:
                self.say(f"{state.value}: {event.detail}" if event.detail else state.value)
            case _:
                pass

    def _complain(self, text: str) -> None:
        if not self._logged:
            self.warn(text)

    def _reloaded(self, event: Reloaded) -> None:
        if event.outcome == "failed":
            self._broken.add(event.agent)
            self._complain(f"error: {report_line(event)}; the version before goes on")
            for mistake in more_mistakes(event):
                self._complain(f"error: {mistake}")
            return
        # Of the whole somebody has asked; and who took a mistake back wants to know that it is gone.
        if event.outcome == "live" or not event.agent or event.agent in self._broken:
            self.say(report_line(event))
        self._broken.discard(event.agent)


def _write(descriptor: int, line: str) -> None:
    # Not by way of Python's own streams: those keep what could not be written, and fail again at the end.
    with suppress(OSError):
        os.write(descriptor, line.encode("utf-8", "replace") + b"\n")
