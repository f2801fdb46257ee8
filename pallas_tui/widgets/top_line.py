"""The fleet in one sentence, on every screen size."""

from itertools import product

from rich.cells import cell_len

from pallas.model import FleetState, TokenScope

from ..state import Summary, Tone, attached_words, behind
from ..supervision.fleet_trouble import LINGERS, Trouble
from ..text import Glyphs, Line, Part, count, fit, width_of
from .button_bar import Bar, Button
from .tones import DIM, KEY, LEVELS, STRONG, STYLES, shape

_WIDE = 100
_ROOMY = 78
_DETAILED = 116
"""Columns from which on the details of an attached fleet are shown."""
_EVENT_WIDTH = 36
"""Columns reserved for news: the words next to the figures are dropped first."""
_ENDING = (FleetState.DRAINING, FleetState.STOPPING)


class TopLine(Bar):
    """Project, whose fleet, agents by how they are, runs in flight, registry, and the last event.

    The current problem replaces the last event until it is solved; a new failure is shown first for a moment.
    """

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="topline")
        self._glyphs = glyphs
        self._summary: Summary | None = None
        self._trouble: Trouble | None = None
        self._now = 0.0

    def tell(self, summary: Summary, trouble: Trouble | None = None, now: float = 0.0) -> None:
        """Say how the fleet is ``now`` (Unix seconds)."""
        self._summary, self._trouble, self._now = summary, trouble, now
        width = self.content_size.width
        # The current problem matters more than the words next to the figures.
        wide = width >= _WIDE and not self._tells_trouble(summary)
        parts, wide = self._fitting(summary, wide)
        right, todos = _right(wide), self._todos(summary, wide)
        asked = self._asked(summary, wide)
        has_event = summary.last_event is not None or bool(summary.saving)
        if wide and has_event and width - width_of(parts) - width_of(right) < _EVENT_WIDTH:
            parts, right = self._fitting(summary, wide=False)[0], _right(wide=False)
        room = width - width_of(parts) - width_of((*asked, *todos)) - width_of(right) - 3
        event_part = self._event_part(summary, room - 1) if room > 8 else ()
        action = "changes" if self._tells_trouble(summary) else ""
        due = tuple(
            Button(part, action=action) for part, action in ((asked, "questions"), (todos, "todos")) if part
        )
        self.put((Button(parts), *due, Button(event_part, action=action)), right)

    def on_resize(self) -> None:
        """What fits depends on the width."""
        if self._summary is not None:
            self.tell(self._summary, self._trouble, self._now)

    def _tells_trouble(self, summary: Summary) -> bool:
        if self._trouble is None or summary.state is FleetState.FAILED:
            return False
        last = summary.last_event
        new = last is not None and last.at > self._trouble.at and self._now - last.at < LINGERS
        return not (new and last is not None and last.level == "error")

    def _todos(self, summary: Summary, wide: bool) -> Line:
        """How many todos came and were not taken up; nothing while none did."""
        if not summary.raised or summary.stale:
            return ()
        words = count(summary.raised, "todo") + " raised" if wide else f"{summary.raised} todo"
        return ("   " if wide else "  ", ""), (f"{self._glyphs.degraded} {words}", STYLES[Tone.DEGRADED])

    def _asked(self, summary: Summary, wide: bool) -> Line:
        """How many questions to people are open; nothing while none is."""
        if not summary.asked or summary.stale:
            return ()
        words = count(summary.asked, "question") + (" open" if wide else "")
        return ("   " if wide else "  ", ""), (f"{self._glyphs.degraded} {words}", STYLES[Tone.DEGRADED])

    def _event_part(self, summary: Summary, room: int) -> Line:
        gap: Part = ("   ", "")
        if self._tells_trouble(summary) and self._trouble is not None:
            text = fit(self._trouble.text, room - 2, self._glyphs)
            tone = Tone.ERROR if self._trouble.grave else Tone.DEGRADED
            return gap, (f"{shape(tone, self._glyphs)[0]} {text}", STYLES[tone])
        if summary.saving:
            text = f"{self._glyphs.reloading} {summary.saving}{self._glyphs.ellipsis}"
            return gap, (fit(text, room, self._glyphs), STYLES[Tone.STARTING])
        if summary.last_event is None:
            return ()
        text = fit(summary.last_event.text, room, self._glyphs)
        return ((f"   {text}", LEVELS[summary.last_event.level]),)

    def _problem(self, summary: Summary) -> str:
        if self._tells_trouble(summary) and self._trouble is not None:
            return self._trouble.text
        last = summary.last_event
        return last.text if last is not None and last.level == "error" else ""

    def _fitting(self, summary: Summary, wide: bool) -> tuple[Line, bool]:
        """The parts, with as much about the attachment as there is room for; and whether they are wide."""
        width, attachment = self.content_size.width, summary.attachment
        if attachment is None:
            return self._parts(summary, wide), wide
        words = attached_words(attachment, self._now)
        # A problem matters more than where the fleet runs.
        problem = self._problem(summary)
        needed = min(cell_len(problem) + 7, width // 2) if problem and not summary.stale else 1
        ways = product(words if width >= _DETAILED else words[-1:], (True, False) if wide else (False,))
        for text, spaced in ways:
            parts = self._parts(summary, spaced, text)
            whole = not summary.stale or parts[-1][0].strip() == summary.stale
            if whole and width_of(parts) + needed <= width - width_of(_right(spaced)):
                return parts, spaced
        while width_of(parts) > width - width_of(_right(wide=False)) - 1:
            parts = parts[:-1]
        return parts, False

    def _parts(self, summary: Summary, wide: bool, attached: str = "") -> tuple[Part, ...]:
        gap, narrow = "   " if wide else "  ", self.content_size.width < _WIDE
        looks = summary.attachment is not None and summary.attachment.access is not TokenScope.FULL
        parts: list[Part] = [((summary.name or "pallas") + (" (read-only)" if looks else ""), STRONG)]
        if summary.attachment is not None:
            parts.append((f"{gap}{attached}", DIM))
            if late := behind(summary.attachment):
                parts.append((f" {self._glyphs.degraded} {late}", STYLES[Tone.DEGRADED]))
        if summary.state is FleetState.FAILED:
            return (
                *parts,
                (gap, ""),
                shape(Tone.ERROR, self._glyphs),
                (f" {summary.stale or 'did not start'}", STYLES[Tone.ERROR]),
            )
        if summary.stale:  # what is shown below is how it was
            parts += [(gap, ""), shape(Tone.ERROR, self._glyphs), (" ", "")]
            room = max(8, self.content_size.width - width_of(tuple(parts)) - (14 if wide else 4))
            return (*parts, (fit(summary.stale, room, self._glyphs), STYLES[Tone.ERROR]))
        if summary.state in _ENDING and summary.agents:
            flight = count(summary.runs, "run")
            text = (
                f" {summary.state.value}, {flight} in flight" if summary.runs else f" {summary.state.value}"
            )
            return (*parts, (gap, ""), shape(Tone.DEGRADED, self._glyphs), (text, STYLES[Tone.DEGRADED]))
        if not summary.agents:
            return (*parts, (gap, ""), shape(Tone.STARTING, self._glyphs), (f" {summary.state.value}", DIM))
        parts.append((gap + (count(summary.agents, "agent") if wide else ""), ""))
        for tone, number in summary.tones:
            word = f" {number} {tone.value}" if wide else f" {number}"
            parts += [(" " if wide else "", ""), shape(tone, self._glyphs), (word + " ", STYLES[tone])]
        parts.append((gap[1:] + f"{summary.runs_text:<6}", STRONG if summary.runs else DIM))
        if summary.has_faults:
            words = "faults are injected" if wide else "faults"
            parts += [(gap, ""), (f"{self._glyphs.degraded} {words}", STYLES[Tone.DEGRADED])]
        if summary.registry_port is not None and not (narrow and self._tells_trouble(summary)):
            parts.append((f"{gap}{'registry ' if wide else ''}:{summary.registry_port}", DIM))
        if summary.paused:
            parts += [(gap, ""), (self._paused(summary), STYLES[Tone.DEGRADED])]
        return tuple(parts)

    def _paused(self, summary: Summary) -> str:
        text = f" {self._glyphs.dot} ".join(summary.watch_text.split(", "))
        if self.content_size.width >= _ROOMY and not self._tells_trouble(summary):
            return text
        return f"paused{f' {self._glyphs.dot} {len(summary.waiting)}' if summary.waiting else ''}"


def _right(wide: bool) -> tuple[Part, ...]:
    return ("^p", KEY), (" palette" if wide else "", DIM)
