"""Notifications for a user who looks elsewhere, and the terminal sequences that send them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from shutil import which
from typing import Final, Literal

from pallas.model import QuestionAsked, Reloaded, RunFinished, RunStarted
from pallas.safe_text import one_line

from ..frame import FleetFrame
from ..isolate import LineAllowance
from ..records.question_text import subject_of
from ..settings import Notify
from ..state import FAILED_TONES, Summary, Tone, reason_of, tone_of
from ..supervision.reload_words import is_open, name_of, what_failed
from ..text import count, duration

RATE: Final = 0.2
"""Notifications a second in the long run."""
BURST: Final = 3
"""Notifications at once."""
_MANY: Final = 2
"""From more than so many of a kind in one frame, one notification tells of all."""
_MAX_RUNS: Final = 5_000
_WELL: Final = frozenset({Tone.OK})
_BAD: Final = frozenset({Tone.DEGRADED, *FAILED_TONES})
_WORDS: Final = {
    Tone.DEGRADED: "is degraded",
    Tone.ERROR: "is in error",
    Tone.BACKOFF: "failed and is started again",
    Tone.CRASH_LOOP: "is in a crash loop",
}

_BECAME: Final = {"failed": "failed", "held": "is held back"}
_ANY: Final = ("agents", "chat", "feed", "logs", "credentials")
_RUN_PANES: Final = ("chat", "feed")
_QUESTION_PANES: Final = ("questions",)
_SHOW: Final = "show.questions"

# Sequences for the terminal. The text in them has to be sanitised; it is made so once more here, since
# one escape in a title is a command.
PUSH_TITLE: Final = "\x1b[22;2t"
POP_TITLE: Final = "\x1b[23;2t"
BELL: Final = "\a"
_TITLE_LENGTH: Final = 80


@dataclass(frozen=True, slots=True)
class DesktopNotification:
    """One notification, clean and short. ``panes`` are those in which one would see it happen.

    ``action`` is the id of the action that shows more, if there is one, ``run_id`` the run that it is about.
    """

    title: str
    text: str
    grave: bool
    panes: tuple[str, ...]
    action: str = ""
    run_id: str = ""


class NotificationSource:
    """Frames in, notifications out: long runs that ended, agents that broke or recovered, questions.

    A run that another run of the fleet asked for is part of that one and not told. How agents are when the
    workbench first sees them is not news.
    """

    def __init__(self) -> None:
        self._running: dict[str, RunStarted] = {}
        self._traces: Counter[str] = Counter()
        self._nested: set[str] = set()
        self._tones: dict[str, Tone] = {}

    def absorb(self, frame: FleetFrame, wanted: Notify) -> list[DesktopNotification]:
        """What of a frame is to be told."""
        ended = self._runs(frame, wanted.after)
        changed = [*self._agents(frame), *_edits(frame)]
        asked = _questions(frame) if wanted.questions else []
        return asked + (ended if wanted.runs else []) + (changed if wanted.agents else [])

    def _runs(self, frame: FleetFrame, after: float) -> list[DesktopNotification]:
        ended: list[DesktopNotification] = []
        for event in frame.events:
            if isinstance(event, RunStarted):
                if self._traces[event.trace_id]:
                    self._nested.add(event.run_id)
                self._running[event.run_id] = event
                if event.trace_id:
                    self._traces[event.trace_id] += 1
                if len(self._running) > _MAX_RUNS:  # their ends were lost
                    self._forget(next(iter(self._running)))
            elif isinstance(event, RunFinished):
                began, nested = self._running.get(event.run_id), event.run_id in self._nested
                self._forget(event.run_id)
                if event.seconds >= after and not nested:
                    ended.append(_of_run(event, began))
        if len(ended) > _MANY:
            bad = any(one.grave for one in ended)
            return [
                DesktopNotification(
                    f"{len(ended)} runs ended", _names(one.title for one in ended), bad, _RUN_PANES
                )
            ]
        return ended

    def _forget(self, run: str) -> None:
        began = self._running.pop(run, None)
        if began is not None and began.trace_id:
            self._traces[began.trace_id] -= 1
            if not self._traces[began.trace_id]:
                del self._traces[began.trace_id]
        self._nested.discard(run)

    def _agents(self, frame: FleetFrame) -> list[DesktopNotification]:
        agents = (*frame.snapshot.agents, *frame.attached)
        changed: list[DesktopNotification] = []
        tones: dict[str, Tone] = {}
        for agent in agents:
            before, now = self._tones.get(agent.name), tone_of(agent)
            # Starting and stopping are the user's doing; what counts is how it was before.
            tones[agent.name] = now if now in _WELL | _BAD else before or now
            if before is None or now is before:
                continue
            broke = now in _BAD and before not in _BAD | {Tone.STOPPED}
            worse = now in FAILED_TONES and (before is Tone.DEGRADED or now is Tone.CRASH_LOOP)
            if broke or worse:
                changed.append(_of_agent(f"{agent.name} {_WORDS[now]}", reason_of(agent), True))
            elif now in _WELL and before in _BAD:
                changed.append(_of_agent(f"{agent.name} has recovered", "", False))
        self._tones = tones
        if len(changed) > _MANY:
            bad = any(one.grave for one in changed)
            title = f"{len(changed)} agents changed"
            return [_of_agent(title, _names(one.title for one in changed), bad)]
        return changed


class NotificationLimit:
    """Lets through so many notifications and counts the rest, which the next one tells of."""

    def __init__(self) -> None:
        self._allowance = LineAllowance(RATE, BURST)
        self._held = 0

    def pass_on(self, telling: DesktopNotification, now: float) -> DesktopNotification | None:
        """Return the notification, joined with those held back before; None when it is held back itself."""
        if not self._allowance.take(now):
            self._held += 1
            return None
        held, self._held = self._held, 0
        if not held:
            return telling
        more = count(held, "other notification")
        text = f"{telling.text} (and {more})".lstrip()
        return DesktopNotification(telling.title, text, telling.grave, telling.panes)


def _questions(frame: FleetFrame) -> list[DesktopNotification]:
    """Return notifications of questions to people; one tells of all where there are many."""
    asked = [event for event in frame.events if isinstance(event, QuestionAsked) and not event.relayed]
    if len(asked) > _MANY:
        agents = _names(f"{name} asks" for name in dict.fromkeys(event.agent for event in asked))
        return [
            DesktopNotification(f"{len(asked)} questions wait for you", agents, False, _QUESTION_PANES, _SHOW)
        ]
    return [
        DesktopNotification(
            title=_clean(f"{event.agent} asks you", 100),
            text=_clean(subject_of(event), 200),
            grave=False,
            panes=_QUESTION_PANES,
            action=_SHOW,
            run_id=event.run_id,
        )
        for event in asked
    ]


def _edits(frame: FleetFrame) -> list[DesktopNotification]:
    """Return notifications of edits that failed or are held back. The top line shows them on every screen."""
    return [
        DesktopNotification(
            _clean(f"{name_of(event)}: the edit {_BECAME[event.outcome]}", 100),
            _clean(what_failed(event), 200),
            event.outcome == "failed",
            _ANY,
        )
        for event in frame.events
        if isinstance(event, Reloaded) and is_open(event)
    ][-_MANY:]


def _of_run(event: RunFinished, began: RunStarted | None) -> DesktopNotification:
    word = {"ok": "answered", "error": "failed", "cancelled": "was cancelled"}[event.outcome]
    text = event.fault or (began.preview if began is not None else "")
    title = f"{event.agent} {word} after {duration(event.seconds)}"
    return DesktopNotification(_clean(title, 100), _clean(text, 200), event.outcome == "error", _RUN_PANES)


def _of_agent(title: str, text: str, grave: bool) -> DesktopNotification:
    return DesktopNotification(_clean(title, 100), _clean(text, 200), grave, ("agents",))


def _names(titles: Iterable[str]) -> str:
    return _clean("; ".join(titles), 200)


def _clean(text: str, length: int) -> str:
    return one_line(text, length)


def title_of(summary: Summary | None, name: str) -> str:
    """Return the terminal's title: the project, and its problem or its activity."""
    project = (summary.name if summary is not None else "") or name or "pallas"
    parts: list[str] = []
    if summary is not None:
        numbers = dict(summary.tones)
        if summary.state.value == "failed":
            parts.append("did not start")
        if summary.state.value == "draining":
            parts.append("draining")
        bad = (Tone.CRASH_LOOP, Tone.ERROR, Tone.BACKOFF, Tone.DEGRADED)
        parts += [f"{numbers[tone]} {tone.value}" for tone in bad if numbers.get(tone)]
        if summary.runs:
            parts.append(count(summary.runs, "run"))
    return _clean(f"{project} - {', '.join(parts)}" if parts else f"{project} - pallas", _TITLE_LENGTH)


def title_sequence(title: str) -> str:
    """Sets the title (OSC 2). tmux takes it for the pane; nothing needs to be wrapped."""
    return f"\x1b]2;{_safe(title)}\a"


def desktop_sequence(telling: DesktopNotification, environ: Mapping[str, str]) -> str:
    """Asks the terminal to notify: OSC 777 where that is known, else OSC 9; wrapped where tmux is between."""
    title, text = _safe(telling.title), _safe(telling.text)
    if _knows_777(environ):
        body = text.replace(";", ",") or " "
        sequence = f"\x1b]777;notify;{title.replace(';', ',')};{body}\a"
    else:
        sequence = f"\x1b]9;{title}: {text}\a" if text else f"\x1b]9;{title}\a"
    if "TMUX" in environ:
        doubled = sequence.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{doubled}\x1b\\"
    return sequence


def _knows_777(environ: Mapping[str, str]) -> bool:
    term = environ.get("TERM", "")
    return term.startswith(("foot", "rxvt", "urxvt")) or "VTE_VERSION" in environ


def _safe(text: str) -> str:
    return _clean(text, 300)


def program(telling: DesktopNotification, platform: str, environ: Mapping[str, str]) -> Sequence[str] | None:
    """Return the command that notifies on this desktop, None where there is none. No shell runs it."""
    title, text = _safe(telling.title), _safe(telling.text)
    urgency: Literal["critical", "normal"] = "critical" if telling.grave else "normal"
    if platform == "darwin":
        script = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run"
        command = ["osascript", "-e", script, title, text]
    elif "DISPLAY" in environ or "WAYLAND_DISPLAY" in environ:
        command = ["notify-send", "-a", "Pallas", "-u", urgency, "--", title, text]
    else:
        return None
    found = which(command[0], path=environ.get("PATH"))
    return [found, *command[1:]] if found else None
