"""Versions, terminal, paths, limits and counts, to look at and to copy for a report."""

from collections.abc import Iterable
from typing import Final

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from ..diagnostics import Section, as_text
from ..widgets.tones import DIM, STRONG
from .sheet_screen import Sheet

_NAME_WIDTH: Final = 20


class AboutScreen(Sheet):
    """What a report of a mistake should say."""

    def __init__(self, sections: tuple[Section, ...]) -> None:
        super().__init__("About and diagnostics")
        self._sections = sections

    def body(self) -> Iterable[Widget]:
        parts: list[tuple[str, str]] = [("y copies this for a report; nothing in it is secret.\n", DIM)]
        for title, lines in self._sections:
            parts.append((f"\n{title}\n", STRONG))
            for name, value in lines:
                parts += [(f"  {name:<{_NAME_WIDTH}} ", DIM), (f"{value}\n", "")]
        yield Static(Content.assemble(*parts))

    def plain(self) -> str:
        return as_text(self._sections)
