"""Jump mode: letters on everything one can go to, and one keystroke to go there."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, runtime_checkable

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.geometry import Region
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static

from ..targets import Spot
from ..widgets.pane import Pane

LETTERS: Final = "asdfghjklqwertyuiopzxcvbnm"
_WIDTH: Final = 3


@runtime_checkable
class Jumpable(Protocol):
    """A widget with several places in it, for example a line of tabs."""

    def jump_spots(self) -> Iterable[Spot]:
        """The places that can be seen now, from left to right."""
        ...


@dataclass(frozen=True, slots=True)
class Label:
    """A letter on the screen, and what it does."""

    letter: str
    x: int
    y: int
    go: Callable[[], object]


def labels(screen: Screen[object]) -> list[Label]:
    """A letter for each place in view, from the top left on; no more than there are letters."""
    places: list[tuple[int, int, Callable[[], object]]] = []
    for widget in screen.query("*"):
        region = _seen(widget, screen)
        if region is None:
            continue
        if isinstance(widget, Jumpable):
            places += [(region.y, region.x + spot.x, spot.go) for spot in widget.jump_spots()]
        elif widget.focusable and widget is not screen.focused:
            places.append((region.y, region.x, lambda widget=widget: screen.set_focus(widget)))  # type: ignore[misc]
    taken: set[tuple[int, int]] = set()
    found: list[Label] = []
    for y, x, go in sorted(places, key=lambda place: place[:2]):
        x = max(0, min(x, screen.size.width - _WIDTH))
        # Two letters in one place could not be told apart: the next goes below.
        while any((x + step, y) in taken for step in range(_WIDTH)):
            y += 1
        if y >= screen.size.height or len(found) == len(LETTERS):
            continue
        taken |= {(x + step, y) for step in range(_WIDTH)}
        found.append(Label(LETTERS[len(found)], x, y, go))
    return found


def _seen(widget: Widget, screen: Screen[object]) -> Region | None:
    """Where a widget is on the screen, if a person can see it."""
    if not widget.is_on_screen or not all(node.display for node in widget.ancestors_with_self if node.parent):
        return None
    if any(isinstance(node, Pane) and not node.is_showing for node in widget.ancestors_with_self):
        return None
    region = widget.region.intersection(screen.region)
    return region if region.area else None


class JumpScreen(ModalScreen[None]):
    """The letters, over the screen below. A letter goes to a pane; any other key, or a click, stays."""

    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, found: Sequence[Label]) -> None:
        super().__init__(id="jump")
        self._found = {label.letter: label for label in found}

    def compose(self) -> ComposeResult:
        for label in self._found.values():
            tag = Static(f" {label.letter} ", classes="jump-label", markup=False)
            tag.styles.offset = (label.x, label.y)
            yield tag

    def on_key(self, event: events.Key) -> None:
        """Go, or not."""
        event.stop()
        event.prevent_default()
        label = self._found.get(event.character or event.key)
        self.dismiss()
        if label is not None:
            self.app.call_later(label.go)

    def on_click(self) -> None:
        """Away with the letters."""
        self.dismiss()

    def on_resize(self, event: events.Resize) -> None:
        """Nothing is any more where it was."""
        if event.size != self.app.size or self._opened_at not in (None, event.size):
            self.dismiss()
        self._opened_at = event.size

    _opened_at: object = None
