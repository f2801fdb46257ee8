"""The title above a pane, or above several that share a place."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from textual import events

from ..actions import binding, keys_of
from ..targets import Spot
from ..text import Glyphs, Line, width_of
from .button_bar import Bar, Button
from .drag_edges import Edge
from .setting_watch import follow
from .tones import DIM, KEY, STRONG


class TitleBar(Bar):
    """Key and name of each pane; the one in view stands out, and a mark says where the keys go.

    ``titles`` are the pane, the id of the action that goes there, and the name. While it
    ``drags`` the title is also an edge that can be dragged up and down.
    """

    def __init__(
        self,
        titles: Sequence[tuple[str, str, str]],
        glyphs: Glyphs,
        *,
        id: str,  # noqa: A002 - Textual's word
    ) -> None:
        super().__init__(id=id, classes="title")
        self._titles = titles
        self._glyphs = glyphs
        self._shown = titles[0][0]
        self._focused = False
        self._caption = ""
        self.drags = False
        self._held = Edge(self)
        self._keys: Mapping[str, str] = {}

    def on_mount(self) -> None:
        """Draw it with the keys that the user chose, and again when they change."""
        follow(self, "keys", self._keys, self._take_keys)

    def _take_keys(self, keys: Mapping[str, str]) -> None:
        self._keys = keys
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
        for pane, key, title in self._keyed():
            shown = pane == self._shown
            mark = self._glyphs.focus if shown and self._focused else " "
            style = STRONG if shown else DIM
            buttons.append(Button(((mark, KEY), (f"{key} ", DIM), (f"{title}  ", style))))
        right: Line = ((f"{self._caption} ", DIM),) if self._caption else ()
        self.put(tuple(buttons), right)

    def _keyed(self) -> Iterator[tuple[str, str, str]]:
        """The titles, each with the first key of its action instead of the id."""
        for pane, action_id, title in self._titles:
            first = binding(action_id, key=keys_of(action_id, self._keys).split(",")[0])
            yield pane, self.app.get_key_display(first), title

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Take hold of the edge."""
        if self.drags:
            self._held.take(event.screen_y)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move the edge along."""
        self._held.move(event.screen_y)

    def on_mouse_up(self) -> None:
        """Let it go."""
        self._held.drop()

    def on_click(self, event: events.Click) -> None:
        """Go to the pane whose title was clicked; a drag is not a click."""
        event.stop()
        if self._held.moved:
            self._held.moved = False
            return
        hit = [spot for spot in self.jump_spots() if spot.x <= event.x - self.gutter.left]
        if hit and event.x < self._end():
            hit[-1].go()

    def jump_spots(self) -> Iterator[Spot]:
        """Each title, for the jump mode."""
        x = 0
        for pane, key, title in self._keyed():
            yield Spot(x, partial(self._show, pane))
            x += _width(key, title)

    def _end(self) -> int:
        return self.gutter.left + sum(_width(key, title) for _, key, title in self._keyed())

    def _show(self, pane: str) -> None:
        if (show := getattr(self.screen, "show", None)) is not None:
            show(pane)


def _width(key: str, title: str) -> int:
    """Cells of a title with its mark and its key."""
    return 1 + width_of(((f"{key} ", ""), (f"{title}  ", "")))
