"""What the focused pane is for, and every key that works in it now."""

from collections.abc import Iterable
from typing import ClassVar, Final

from textual.binding import ActiveBinding, BindingType
from textual.content import Content
from textual.dom import DOMNode
from textual.widget import Widget
from textual.widgets import Markdown, Static

from ..actions import bindings, is_navigation
from ..widgets.pane import Pane
from ..widgets.tones import DIM, KEY, STRONG
from .sheet_screen import Sheet

_KEYS_WIDTH: Final = 18
_NARROW: Final = 70
_MOUSE: Final = (
    ("click", "Goes to a pane, selects a line, presses a key of the bottom line"),
    ("double click", "Opens the line"),
    ("wheel", "Scrolls what is below the pointer"),
    ("drag an edge", "Resizes: the right edge of the agents, the title of the dock or its left edge"),
    ("drag over text", "Selects it, where text can be selected; shift leaves that to the terminal"),
)


class HelpScreen(Sheet):
    """Help for the pane that had the focus."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("help_screen")

    def __init__(self, focused: DOMNode | None, active: Iterable[ActiveBinding]) -> None:
        self._node = next(
            (node for node in (focused.ancestors_with_self if focused else ()) if node.HELP), None
        )
        super().__init__(self._node.TITLE if isinstance(self._node, Pane) else "Help")
        self._active = tuple(active)
        self._main = focused.screen if focused is not None else None

    def body(self) -> Iterable[Widget]:
        if self._node is not None and self._node.HELP:
            yield Markdown(self._node.HELP)
        yield Static(self._keys())

    def _keys(self) -> Content:
        """The keys: what the pane does, what works everywhere, and last how one moves and edits."""
        titles = ("Here", "Everywhere", "Moving and editing")
        groups: dict[str, dict[str, list[str]]] = {title: {} for title in titles}
        for active in self._active:
            binding = active.binding
            if not binding.description or not active.enabled or (binding.system and not binding.id):
                continue
            if is_navigation(binding):
                title = "Moving and editing"
            else:
                title = "Everywhere" if active.node in (self.app, self._main) else "Here"
            words = binding.tooltip or binding.description
            groups[title].setdefault(words, []).append(self.app.get_key_display(binding))
        parts: list[tuple[str, str]] = []
        for title, keys_of in groups.items():
            if keys_of:
                rows = [("  ".join(keys), words) for words, keys in keys_of.items()]
                parts += self._section(title, rows)
        parts += self._section("With the mouse", _MOUSE)
        parts.append(("Every action is also in the palette: ", DIM))
        parts += [("^p", KEY), (" finds actions, agents, conversations and runs by a few letters.", DIM)]
        return Content.assemble(*parts)

    def _section(self, title: str, rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        parts = [(f"{title}\n", STRONG)]
        for keys, words in rows:
            # In a narrow terminal the words stand below their keys, where they have room.
            gap = "\n    " if self.app.size.width < _NARROW else " "
            parts += [(f"  {keys:<{_KEYS_WIDTH if gap == ' ' else 0}}", KEY), (f"{gap}{words}\n", "")]
        return [*parts, ("\n", "")]
