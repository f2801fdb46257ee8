"""A recording of the workbench: an SVG that plays by itself. It has no script and loads nothing.

The frames lie side by side, and CSS shows one after the other. A line that several frames have is in it once.
"""

from collections.abc import Sequence
from html import escape
from itertools import accumulate
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME
from textual.strip import Strip

_CELL: Final = 12.2
_LINE: Final = 24.4
_MARGIN: Final = 10.0
_GROUND: Final = "#121212"


def _look(style: Style | None) -> tuple[str, str, str]:
    """Foreground, background and font of a style, as in SVG."""
    style = style or Style()
    theme = SVG_EXPORT_THEME
    front = style.color.get_truecolor(theme) if style.color else theme.foreground_color
    back = style.bgcolor.get_truecolor(theme, foreground=False) if style.bgcolor else theme.background_color
    if style.reverse:
        front, back = back, front
    font = (' font-weight="bold"' if style.bold else "") + (
        ' text-decoration="underline"' if style.underline else ""
    )
    return front.hex, back.hex, font


def _line(strip: Strip) -> str:
    """One line of the screen: its areas of one colour, then its texts."""
    areas: list[tuple[str, int]] = []
    texts = []
    x = 0
    for segment in Segment.simplify(strip):
        front, back, font = _look(segment.style)
        text, width = segment.text, segment.cell_length
        if areas and areas[-1][0] == back:
            width += areas.pop()[1]
        areas.append((back, width))
        if bare := text.strip():
            start = x + len(text) - len(text.lstrip())
            place = f'x="{start * _CELL:g}" y="18.5" textLength="{cell_len(bare) * _CELL:g}"'
            texts.append(f'<text fill="{front}"{font} {place}>{escape(bare, quote=False)}</text>')
        x += segment.cell_length
    ends = accumulate((width for _, width in areas), initial=0)
    size = f'height="{_LINE + 0.4:g}"'
    boxes = (
        f'<rect fill="{back}" x="{x * _CELL:g}" width="{width * _CELL + 0.4:g}" {size}/>'
        for (back, width), x in zip(areas, ends, strict=False)
        if back != _GROUND
    )
    return "".join((*boxes, *texts))


class Recording:
    """Frames and how long each of them is shown."""

    def __init__(self) -> None:
        self._frames: list[tuple[tuple[str, ...], float]] = []

    def add(self, strips: Sequence[Strip], seconds: float) -> None:
        """Add what the screen shows; what it shows already is shown for longer."""
        lines = tuple(map(_line, strips))
        if self._frames and self._frames[-1][0] == lines:
            seconds += self._frames.pop()[1]
        self._frames.append((lines, seconds))

    def svg(self, columns: int, poster: int = -1) -> str:
        """The recording. Where nothing may move, the frame ``poster`` is shown."""
        known: dict[str, str] = {}
        height = max(len(lines) for lines, _ in self._frames) * _LINE + 2 * _MARGIN
        width = columns * _CELL + 2 * _MARGIN
        frames = []
        for number, (lines, _) in enumerate(self._frames):
            uses = (
                f'<use href="#{known.setdefault(line, f"l{len(known)}")}" y="{row * _LINE:g}"/>'
                for row, line in enumerate(lines)
            )
            frames.append(f'<g transform="translate({number * width:g})">{"".join(uses)}</g>')
        whole = sum(seconds for _, seconds in self._frames)
        starts = accumulate((seconds for _, seconds in self._frames[:-1]), initial=0.0)
        steps = "".join(
            f"{100 * start / whole:.3f}%{{transform:translateX({-number * width:g}px)}}"
            for number, start in enumerate(starts)
        )
        still = (poster % len(self._frames)) * -width
        style = (
            f"@keyframes film{{{steps}}}#film{{animation:film {whole:g}s step-end infinite}}"
            f"@media (prefers-reduced-motion){{#film{{animation:none;transform:translateX({still:g}px)}}}}"
            "text{white-space:pre}"
        )
        inner = f'width="{width - 2 * _MARGIN:g}" height="{height - 2 * _MARGIN:g}"'
        lines = "".join(f'<g id="{name}">{line}</g>' for line, name in known.items())
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">'
            f"<style>{style}</style><defs>{lines}</defs>"
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{_GROUND}"/>'
            f'<svg x="{_MARGIN:g}" y="{_MARGIN:g}" {inner}>'
            f'<g id="film" font-family="Fira Code,DejaVu Sans Mono,Menlo,Consolas,monospace" font-size="20">'
            f"{''.join(frames)}</g></svg></svg>\n"
        )
