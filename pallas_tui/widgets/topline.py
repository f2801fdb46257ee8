"""The fleet in one sentence, on every screen size."""

from pallas.model import FleetState

from ..state import Summary, Tone
from ..text import Glyphs, Part, count, fit, width_of
from .bar import Bar, Button
from .tones import DIM, KEY, LEVELS, STRONG, STYLES, shape

_WIDE = 100


class TopLine(Bar):
    """Project, agents by how they are, runs in flight, registry, and the last thing that happened."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="topline")
        self._glyphs = glyphs
        self._summary: Summary | None = None

    def tell(self, summary: Summary) -> None:
        """Say how the fleet is now."""
        self._summary = summary
        width = self.content_size.width
        wide = width >= _WIDE
        parts = self._parts(summary, wide)
        right: tuple[Part, ...] = (("^p", KEY), (" palette" if wide else "", DIM))
        room = width - width_of(parts) - width_of(right) - 3
        if summary.headline is not None and room > 8:
            style = LEVELS[summary.headline.level]
            parts = (*parts, ("   " + fit(summary.headline.text, room - 1, self._glyphs), style))
        self.put((Button(parts),), right)

    def on_resize(self) -> None:
        """What fits depends on the width."""
        if self._summary is not None:
            self.tell(self._summary)

    def _parts(self, summary: Summary, wide: bool) -> tuple[Part, ...]:
        gap = "   " if wide else "  "
        parts: list[Part] = [(summary.name or "pallas", STRONG)]
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
        if not summary.agents:
            return (*parts, (gap, ""), shape(Tone.STARTING, self._glyphs), (f" {summary.state.value}", DIM))
        parts.append((gap + (count(summary.agents, "agent") if wide else ""), ""))
        for tone, number in summary.tones:
            word = f" {number} {tone.value}" if wide else f" {number}"
            parts += [(" " if wide else "", ""), shape(tone, self._glyphs), (word + " ", STYLES[tone])]
        parts.append((gap[1:] + f"{summary.runs_text:<6}", STRONG if summary.runs else DIM))
        if summary.registry_port is not None:
            parts.append((f"{gap}{'registry ' if wide else ''}:{summary.registry_port}", DIM))
        return tuple(parts)
