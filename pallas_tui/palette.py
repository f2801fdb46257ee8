"""The palette: every action that there is, found by its name."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen

from .actions import ACTIONS
from .screens.main import MainScreen
from .widgets.filter import FilterLine
from .widgets.pane import Pane


def commands(app: App[Any], screen: Screen[Any]) -> Iterable[SystemCommand]:
    """The actions of the registry, and those that any other widget of the panes declares."""
    for action in ACTIONS:
        if action.scope == "app":
            yield SystemCommand(action.title, action.help, partial(app.run_action, action.run))
    yield SystemCommand("Theme", "Choose one of all themes", app.action_change_theme)
    # A moment later, when the palette is gone from the picture.
    save = partial(app.set_timer, 0.1, app.deliver_screenshot)
    yield SystemCommand("Screenshot", "Save the screen as an SVG file", save)
    for pane in screen.query(Pane):
        yield from _commands_of(pane, screen)
    if isinstance(screen, MainScreen):
        for pane in screen.query(Pane):
            for entity in pane.entities():
                yield SystemCommand(entity.title, entity.help, partial(screen.reveal, entity.target))


def own_bindings(widget: DOMNode) -> Iterable[Binding]:
    """The bindings that a widget of ours declares, not Textual's own."""
    for base in type(widget).__mro__:
        if not base.__module__.startswith("textual.") and base is not FilterLine:
            yield from Binding.make_bindings(base.__dict__.get("BINDINGS", ()))


def _commands_of(pane: Pane, screen: Screen[Any]) -> Iterable[SystemCommand]:
    registered = {action.id: action for action in ACTIONS}
    seen: set[str] = set()

    async def run(widget: DOMNode, name: str) -> None:
        if isinstance(screen, MainScreen):
            screen.show(str(pane.id))
        await pane.app.run_action(name, widget)

    for widget in (pane, *pane.query("*")):
        for binding in own_bindings(widget):
            # Without an id and unseen on the bottom line: it only moves about.
            wanted = binding.description and (binding.id or binding.show)
            if not wanted or binding.action in seen:
                continue
            seen.add(binding.action)
            action = registered.get(binding.id or "")
            title = action.title if action else f"{pane.TITLE}: {binding.description}"
            words = binding.tooltip or f"{binding.description}, in {pane.TITLE.lower()}"
            yield SystemCommand(title, words, partial(run, widget, binding.action))
