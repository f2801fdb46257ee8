"""The title above a pane, or above several that share a place."""

from collections.abc import Sequence

from ..text import Glyphs, Line
from .bar import Bar, Button
from .tones import DIM, KEY, STRONG


class TitleBar(Bar):
    """Number and name of each pane; the one in view stands out, and a mark says where the keys go."""

    def __init__(self, titles: Sequence[tuple[str, str, str]], glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id, classes="title")
        self._titles = titles
        self._glyphs = glyphs
        self._shown = titles[0][0]
        self._focused = False
        self._caption = ""

    def on_mount(self) -> None:
        """Draw it once."""
        self._draw()

    def tell(
        self, *, shown: str | None = None, focused: bool | None = None, caption: str | None = None
    ) -> None:
        """What changed: which pane is in view, whether the focus is in it, the words on the right."""
        self._shown = self._shown if shown is None else shown
        self._focused = self._focused if focused is None else focused
        self._caption = self._caption if caption is None else caption
        self._draw()

    def _draw(self) -> None:
        self.set_class(self._focused, "-focused")
        buttons = []
        for pane, key, title in self._titles:
            shown = pane == self._shown
            mark = self._glyphs.focus if shown and self._focused else " "
            style = STRONG if shown else DIM
            buttons.append(Button(((mark, KEY), (f"{key} ", DIM), (f"{title}  ", style)), key))
        right: Line = ((f"{self._caption} ", DIM),) if self._caption else ()
        self.put(tuple(buttons), right)
