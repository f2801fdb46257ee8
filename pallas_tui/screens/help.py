"""What the focused pane is for, and every key that works in it now."""

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import ModalScreen
from textual.widgets import Markdown, Static

from ..widgets.pane import Pane
from ..widgets.status import StatusLine
from ..widgets.tones import DIM, KEY, STRONG

_KEYS_WIDTH = 18


class HelpScreen(ModalScreen[None]):
    """Help for the pane that had the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f1,question_mark", "dismiss", "back")]

    def __init__(self, focused: DOMNode | None, active: Iterable[ActiveBinding]) -> None:
        super().__init__()
        self._node = next(
            (node for node in (focused.ancestors_with_self if focused else ()) if node.HELP), None
        )
        self._active = tuple(active)
        self._main = focused.screen if focused is not None else None

    def compose(self) -> ComposeResult:
        title = self._node.TITLE if isinstance(self._node, Pane) else "Help"
        with Vertical(classes="sheet"):
            yield Static(f" {title}", classes="title -focused", markup=False)
            with VerticalScroll():
                if self._node is not None and self._node.HELP:
                    yield Markdown(self._node.HELP)
                yield Static(self._keys())
            yield StatusLine()

    def on_mount(self) -> None:
        """Arrow keys scroll."""
        self.query_one(VerticalScroll).focus()

    def _keys(self) -> Content:
        """The keys: what the pane does, what works everywhere, and last how one moves and edits."""
        titles = ("Here", "Everywhere", "Moving and editing")
        groups: dict[str, dict[str, list[str]]] = {title: {} for title in titles}
        for active in self._active:
            binding = active.binding
            if not binding.description or not active.enabled or (binding.system and not binding.id):
                continue
            if active.node in (self.app, self._main):
                title = "Everywhere" if binding.id else "Moving and editing"
            else:
                title = "Here" if binding.id or binding.show else "Moving and editing"
            words = binding.tooltip or binding.description
            groups[title].setdefault(words, []).append(self.app.get_key_display(binding))
        parts: list[tuple[str, str]] = []
        for title, keys_of in groups.items():
            if keys_of:
                parts.append((f"{title}\n", STRONG))
                for words, keys in keys_of.items():
                    parts += [(f"  {'  '.join(keys):<{_KEYS_WIDTH}}", KEY), (f" {words}\n", "")]
                parts.append(("\n", ""))
        parts.append(("Every action is also in the palette: ^p", DIM))
        return Content.assemble(*parts)
