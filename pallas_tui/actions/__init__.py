"""Everything that can be done, in one registry: the keys, the palette and the help are made of it.

One module for each scope; a user's file may put any action on other keys (``settings``).
"""

from collections.abc import Mapping
from typing import Final

from textual.binding import BindingType

from . import (
    agent,
    agents,
    app,
    broken,
    changes,
    chat,
    chat_parts,
    failure,
    feed,
    instances,
    messages,
    run,
    tasks,
    threads,
    todos,
    tool,
    traces,
)
from .action import Action, Scope

__all__ = ["ACTIONS", "DEFAULT_KEYS", "Action", "Scope", "bindings"]

ACTIONS: Final[tuple[Action, ...]] = (
    *app.ACTIONS,
    *agents.ACTIONS,
    *agent.ACTIONS,
    *tool.ACTIONS,
    *chat.ACTIONS,
    *chat_parts.ACTIONS,
    *feed.ACTIONS,
    *run.ACTIONS,
    *traces.ACTIONS,
    *instances.ACTIONS,
    *changes.ACTIONS,
    *threads.ACTIONS,
    *tasks.ACTIONS,
    *messages.ACTIONS,
    *todos.ACTIONS,
    *failure.ACTIONS,
    *broken.ACTIONS,
)

DEFAULT_KEYS: Final[Mapping[str, str]] = {action.id: action.keys for action in ACTIONS}
"""Keys by the id of an action."""


def bindings(scope: Scope) -> list[BindingType]:
    """The bindings of one scope, for a ``BINDINGS`` of a widget or the app: those that have keys."""
    return [action.binding() for action in ACTIONS if action.scope == scope and action.keys]
