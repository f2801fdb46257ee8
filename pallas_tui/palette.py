"""The palette: every action there is, then every agent, conversation, run and tool, found by their names.

Agents whose names begin with what is typed come before all.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from time import perf_counter
from typing import Any, Final

from textual.app import App
from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Provider
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import Screen

from .actions import ACTIONS, BY_ID, Action, binding, is_navigation, keys_of
from .fuzzy import FuzzyQuery
from .screens.main_screen import MainScreen
from .targets import (
    MAX_ENTITIES,
    AgentTarget,
    ConversationTarget,
    Entity,
    FilterTarget,
    RunTarget,
    ThreadTarget,
    ToolTarget,
)
from .widgets.filter_line import FilterLine
from .widgets.pane import Pane
from .widgets.tones import KEY

MOST: Final = 60
"""Entities that one search lists."""
_SLICE: Final = 0.004
"""Seconds of work between two looks at the keyboard."""
_KIND_WIDTH: Final = 14
_KINDS: Final = {
    AgentTarget: "agent",
    ToolTarget: "tool",
    RunTarget: "run",
    ConversationTarget: "conversation",
    ThreadTarget: "thread",
    FilterTarget: "filter",
}
_EVERYWHERE: Final = frozenset(action.title for action in ACTIONS if action.scope == "app")
_logger = logging.getLogger("pallas_tui")


@dataclass(frozen=True, slots=True)
class PaletteCommand:
    """An entry of the palette: ``kind`` is empty for an action, else the kind of thing found."""

    title: str
    help: str
    run: Callable[[], Any]
    kind: str = ""
    keys: str = ""
    """The keys of an action, as they are written on screen."""


def commands(app: App[Any], screen: Screen[Any]) -> Iterable[PaletteCommand]:
    """The actions of the registry, and those that any other widget of the panes declares; each once."""
    for action in ACTIONS:
        if action.scope == "app":
            run = partial(app.run_action, action.run)
            yield PaletteCommand(action.title, action.help, run, keys=_keys(app, action))
    # A moment later, when the palette is gone from the picture.
    save = partial(app.set_timer, 0.1, app.deliver_screenshot)
    yield PaletteCommand("Screenshot", "Save the screen as an SVG file", save)
    for pane in screen.query(Pane):
        yield from _commands_of(pane, screen)


def entities(screen: Screen[Any]) -> Iterable[PaletteCommand]:
    """What the panes know by name, as they list it; a pane that fails at that is passed over."""
    if not isinstance(screen, MainScreen):
        return
    left = MAX_ENTITIES
    for pane in screen.query(Pane):
        try:
            for entity in pane.entities():
                if (left := left - 1) < 0:
                    return
                yield PaletteCommand(
                    entity.title, entity.help, partial(screen.reveal, entity.target), kind_of(entity)
                )
        except Exception:  # the palette must open even then
            _logger.exception("the %s pane could not say what it has", pane.id)


def kind_of(entity: Entity) -> str:
    """One word for what an entity is."""
    own: str = getattr(entity, "kind", "")
    return own or _KINDS.get(type(entity.target), "")


class PaletteProvider(Provider):
    """Agents that begin so, then actions, then entities, the best matches of each first.

    Entities are collected when the first letter is typed, and looked through in slices, so that no
    keystroke waits for them however many there are.
    """

    async def startup(self) -> None:
        """Actions are few and stay the same while the palette is open."""
        self._actions = list(commands(self.app, self.screen))
        self._entities: list[PaletteCommand] | None = None

    async def discover(self) -> AsyncIterator[DiscoveryHit]:
        """Before anything is typed: the actions."""
        for command in self._actions:
            title = _with_keys(Content(command.title), command)
            yield DiscoveryHit(title, command.run, command.title, _help(command))

    async def search(self, query: str) -> AsyncIterator[Hit]:
        """What matches ``query``."""
        wanted = FuzzyQuery(query)
        for command, score in await _best(self._actions, wanted):
            yield self._hit(command, 1 + score, wanted)
        if self._entities is None:
            self._entities = await _collect(entities(self.screen))
        start = query.strip().lower()
        for command, score in await _best(self._entities, wanted):
            is_first = command.kind == _KINDS[AgentTarget] and command.title.lower().startswith(start)
            yield self._hit(command, score + 2 if is_first else score, wanted)

    def _hit(self, command: PaletteCommand, score: float, wanted: FuzzyQuery) -> Hit:
        title = Content(command.title)
        style = self.match_style or "bold underline"
        for start, end in wanted.spans(command.title):
            title = title.stylize(style, start, end)
        if command.kind:
            title = Content.assemble((f"{command.kind:<{_KIND_WIDTH}}", "dim"), title)
        return Hit(score, _with_keys(title, command), command.run, command.title, _help(command))


def _keys(app: App[Any], action: Action) -> str:
    """The keys that an action has now, those of the user's settings before its own."""
    settings = getattr(app, "settings", None)
    keys = keys_of(action.id, settings.keys if settings is not None else {})
    made = Binding.make_bindings([binding(action.id, key=keys)] if keys else [])
    return " ".join(app.get_key_display(binding) for binding in made)


def _with_keys(title: Content, command: PaletteCommand) -> Content:
    return Content.assemble(title, "  ", (command.keys, KEY)) if command.keys else title


def _help(command: PaletteCommand) -> Any:
    """As Content: a help may hold what others wrote, which must not be markup."""
    indent = " " * _KIND_WIDTH if command.kind else ""
    return Content(indent + command.help) if command.help else None


async def _collect(source: Iterable[PaletteCommand]) -> list[PaletteCommand]:
    found: list[PaletteCommand] = []
    since = perf_counter()
    for command in source:
        found.append(command)
        if perf_counter() - since > _SLICE:
            await asyncio.sleep(0)
            since = perf_counter()
    return found


async def _best(among: Sequence[PaletteCommand], wanted: FuzzyQuery) -> list[tuple[PaletteCommand, float]]:
    """The best matches, best first; equal ones in the order they were given in."""
    scored: list[tuple[float, int]] = []
    since = perf_counter()
    for index, command in enumerate(among):
        if (score := wanted.score(command.title, command.kind)) > 0:
            scored.append((score, -index))
        if not index % 64 and perf_counter() - since > _SLICE:
            await asyncio.sleep(0)
            since = perf_counter()
    return [(among[-index], score) for score, index in nlargest(MOST, scored)]


def own_bindings(widget: DOMNode) -> Iterable[Binding]:
    """The bindings that a widget of ours declares, not Textual's own."""
    for base in type(widget).__mro__:
        if not base.__module__.startswith("textual.") and base is not FilterLine:
            yield from Binding.make_bindings(base.__dict__.get("BINDINGS", ()))


def _commands_of(pane: Pane, screen: Screen[Any]) -> Iterable[PaletteCommand]:
    seen: set[str] = set()

    async def run(widget: DOMNode, name: str) -> None:
        if isinstance(screen, MainScreen):
            screen.show(str(pane.id))
        await pane.app.run_action(name, widget)

    for widget in (pane, *pane.query("*")):
        for own in own_bindings(widget):
            if is_navigation(own) or own.action in seen:
                continue
            seen.add(own.action)
            action = BY_ID[own.id or ""]
            title = f"{pane.TITLE}: {action.title}" if action.title in _EVERYWHERE else action.title
            work: Callable[[], Awaitable[None]] = partial(run, widget, own.action)
            yield PaletteCommand(title, action.help, work, keys=_keys(pane.app, action))
