"""The conversations as tabs, on one line."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from ...targets import Spot
from ...text import UNICODE, Glyphs, Part

_NEW = "+ "


@dataclass(frozen=True, slots=True)
class Tab:
    """One conversation: the shape of its agent, its name, and its marks."""

    shape: Part
    name: str
    mark: str = ""

    def parts(self, style: str = "") -> tuple[Part, ...]:
        """Return the parts between two separators, the name in that style."""
        mark = f" {self.mark}" if self.mark else ""
        return ((" ", ""), self.shape, (" ", ""), (self.name, style), (mark, "dim"), ("  ", ""))

    @property
    def width(self) -> int:
        """The width in cells."""
        return sum(cell_len(text) for text, _ in self.parts())


class TabStrip(Widget):
    """One line: the tabs around the active one, and a plus. Takes no focus; the pane has its keys."""

    class TabChosen(Message):
        """A tab was clicked."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    class NewTabWanted(Message):
        """The plus was clicked."""

    def __init__(self, glyphs: Glyphs = UNICODE) -> None:
        super().__init__(id="chat-tabs")
        self._glyphs = glyphs
        self._tabs: tuple[Tab, ...] = ()
        self._active = 0
        self._spans: list[tuple[int, int, int]] = []

    def show(self, tabs: tuple[Tab, ...], active: int) -> None:
        """Draw these, if they changed."""
        if (tabs, active) != (self._tabs, self._active):
            self._tabs, self._active = tabs, active
            self.refresh()

    def render(self) -> Content:
        first, end = self._window(self.size.width)
        parts: list[Part] = []
        self._spans = []
        at = 0

        def add(*new: Part) -> None:
            nonlocal at
            parts.extend(new)
            at += sum(cell_len(text) for text, _ in new)

        if first:
            add((self._glyphs.ellipsis, "dim"))
        for index in range(first, end):
            start = at
            style = "bold underline" if index == self._active else "dim"
            add(*self._tabs[index].parts(style))
            self._spans.append((start, at, index))
        if end < len(self._tabs):
            add((self._glyphs.ellipsis, "dim"))
        start = at
        add((_NEW, "dim"))
        self._spans.append((start, at, -1))
        return Content.assemble(*parts)

    def _window(self, width: int) -> tuple[int, int]:
        """Return the range of tabs that fit around the active one."""
        if not self._tabs:
            return 0, 0
        room = width - len(_NEW) - 2
        first = end = min(self._active, len(self._tabs) - 1)
        used = self._tabs[first].width
        end += 1
        while True:
            if end < len(self._tabs) and used + self._tabs[end].width <= room:
                used += self._tabs[end].width
                end += 1
            elif first > 0 and used + self._tabs[first - 1].width <= room:
                first -= 1
                used += self._tabs[first].width
            else:
                return first, end

    def jump_spots(self) -> Iterator[Spot]:
        """Yield each visible tab, and the plus, for the jump mode."""
        for start, _, index in self._spans:
            message = self.NewTabWanted() if index < 0 else self.TabChosen(index)
            yield Spot(start, partial(self.post_message, message))

    def on_click(self, event: events.Click) -> None:
        """Choose the tab under the pointer."""
        for start, end, index in self._spans:
            if start <= event.x < end:
                self.post_message(self.NewTabWanted() if index < 0 else self.TabChosen(index))
