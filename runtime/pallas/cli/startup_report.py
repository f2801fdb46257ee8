"""Lines on stdout and stderr for a person who started a fleet without a workbench."""

from typing import Final

from pallas.fleet.reload.reload_report import more_mistakes, report_line, verdict_line
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
    VerdictReached,
)
from pallas.telemetry.log.unread_output import STDERR, STDOUT

_TOLD: Final = (FleetState.RUNNING, FleetState.DRAINING, FleetState.STOPPED)


class Narrator:
    """Reports what such a person waits for.

    With ``logged`` stderr belongs to the log, and nothing is repeated.

    If a line cannot be written (a closed terminal or pipe, one that is not read, a full disk) it is lost, and
    the fleet goes on.

    Worker processes leave to their parent to say that the fleet runs and ends. Each says what becomes of its
    runs, and the first one everything else; from the others, which have the same files, only what goes wrong
    is shown. ``worker`` is the number of this one, 0 without any.
    """

    def __init__(self, project: str, *, logged: bool = False, worker: int = 0) -> None:
        self._process = f"{project} worker {worker}"
        self._project = self._process if worker > 1 else project
        self._logged = logged
        self._worker = worker
        self._is_started = worker < 2  # Before that, others report what the first one has reported.
        self._broken: set[str] = set()  # Agents whose last attempt at a new version failed, or is held back.

    def say(self, text: str) -> None:
        """Write a line to stdout."""
        if self._worker < 2:
            STDOUT.write(_line(f"[{self._project}] {text}"))

    def warn(self, text: str, *, bare: bool = False) -> None:
        """Write a line to stderr; ``bare`` as it is."""
        STDERR.write(_line(text if bare else f"[{self._project}] {text}"))

    def hear(self, event: Event) -> None:
        """Report what matters of an event."""
        match event:
            case AgentChanged(state=AgentState.CRASH_LOOP):
                pass  # A Notice reports it.
            case AgentChanged(state=AgentState.READY, detail=detail) if detail.startswith("version "):
                pass  # Reloaded reports it, with the differences.
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
            case VerdictReached(is_same=True):
                self.say(verdict_line(event))
            case VerdictReached():
                self._complain(f"warning: {verdict_line(event)}")
            case FleetChanged(state=state, detail=detail) if self._worker and (
                state is FleetState.RUNNING or not detail
            ):
                self._is_started = self._is_started or state is FleetState.RUNNING
            case FleetChanged(state=FleetState.DRAINING, detail=detail) if self._worker:
                STDOUT.write(_line(f"[{self._process}] draining: {detail}"))
            case FleetChanged(state=state) if state in _TOLD:
                self.say(f"{state.value}: {event.detail}" if event.detail else state.value)
            case _:
                pass

    def _complain(self, text: str) -> None:
        if not self._logged and self._is_started:
            self.warn(text)

    def _reloaded(self, event: Reloaded) -> None:
        if event.outcome == "failed":
            self._broken.add(event.agent)
            self._complain(f"error: {report_line(event)}; the previous version still answers")
            for mistake in more_mistakes(event):
                self._complain(f"error: {mistake}")
            return
        if event.outcome == "held":
            self._broken.add(event.agent)
            self._complain(f"warning: {report_line(event)}")
            return
        # The user asked for a full reload, and a user who fixed a mistake wants to see that it is gone.
        if event.outcome == "live" or not event.agent or event.agent in self._broken:
            self.say(report_line(event))
        self._broken.discard(event.agent)


def _line(text: str) -> bytes:
    return text.encode("utf-8", "replace") + b"\n"
