"""Versions, terminal, paths, limits and counts, to look at and to copy for a report."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from pallas_tui.diagnostics import Section, as_text, paths, process, terminal, versions

from ..palette import MAX_ENTITIES
from ..pump import PERIOD
from ..runs.feed import MAX_RUNS, MAX_STEPS
from ..text import ASCII, count, duration
from ..widgets.tones import DIM, STRONG
from .sheet import Sheet

if TYPE_CHECKING:
    from ..app import Workbench

_NAME_WIDTH: Final = 20


def sections_of(app: "Workbench") -> tuple[Section, ...]:
    """All that is told, taken now. Nothing in it is secret: no token, no message, no variable's value."""
    size = app.size
    return (
        versions(),
        terminal(
            (size.width, size.height),
            str(app.console.color_system or "none"),
            plain=app.glyphs is ASCII,
            theme=app.theme,
        ),
        paths(app.paths),
        (
            "Limits",
            (
                ("looks at the fleet", f"every {PERIOD:g} s"),
                ("runs in the feed", f"{MAX_RUNS}, with {MAX_STEPS:,} steps"),
                ("names in the palette", f"{MAX_ENTITIES:,}"),
            ),
        ),
        ("Fleet", _fleet(app)),
        process(),
    )


def _fleet(app: "Workbench") -> tuple[tuple[str, str], ...]:
    counts = app.counts
    snapshot = app.fleet.snapshot() if app.fleet is not None else None
    agents = snapshot.agents if snapshot is not None else ()
    return (
        ("state", snapshot.state.value if snapshot is not None else "none"),
        ("agents", f"{len(agents)}, and {count(len(app.instances.agents()), 'agent')} elsewhere"),
        (
            "runs",
            f"{sum(one.runs_total for one in agents)}, {sum(one.runs_active for one in agents)} in flight",
        ),
        ("events", f"{counts.events:,} read, {counts.dropped:,} missed"),
        ("frames", f"{counts.frames:,}"),
        ("up for", duration(app.uptime, running=True)),
    )


class AboutScreen(Sheet):
    """What a report of a mistake should say."""

    app: "Workbench"

    def __init__(self) -> None:
        super().__init__("About and diagnostics")
        self._sections: tuple[Section, ...] = ()

    def body(self) -> Iterable[Widget]:
        self._sections = sections_of(self.app)
        parts: list[tuple[str, str]] = [("y copies this for a report; nothing in it is secret.\n", DIM)]
        for title, lines in self._sections:
            parts.append((f"\n{title}\n", STRONG))
            for name, value in lines:
                parts += [(f"  {name:<{_NAME_WIDTH}} ", DIM), (f"{value}\n", "")]
        yield Static(Content.assemble(*parts))

    def plain(self) -> str:
        return as_text(self._sections)
