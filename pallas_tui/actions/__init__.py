"""Every action of the workbench, in one registry. Key bindings, palette, help and docs are made of it.

A widget or a screen takes its bindings from here by its scope; a user's settings file may put any action on
other keys. ``Binding`` is used in this package only.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from textual.binding import Binding, BindingType

from . import (
    app_actions,
    chat_actions,
    fleet_actions,
    form_actions,
    log_actions,
    question_actions,
    run_actions,
    screen_actions,
)
from .action import Action, Scope

__all__ = ["ACTIONS", "BY_ID", "Action", "Scope", "binding", "bindings", "is_navigation", "keys_of"]

ACTIONS: Final[tuple[Action, ...]] = (
    *app_actions.ACTIONS,
    *fleet_actions.ACTIONS,
    *chat_actions.ACTIONS,
    *run_actions.ACTIONS,
    *question_actions.ACTIONS,
    *log_actions.ACTIONS,
    *form_actions.ACTIONS,
    *screen_actions.ACTIONS,
)
BY_ID: Final[Mapping[str, Action]] = {action.id: action for action in ACTIONS}


def bindings(*scopes: Scope) -> list[BindingType]:
    """The bindings of some scopes, for the ``BINDINGS`` of a class: the actions that have keys."""
    return [
        action.binding() for scope in scopes for action in ACTIONS if action.scope == scope and action.keys
    ]


def binding(action_id: str, **changes: Any) -> Binding:
    """The binding of one action, for a class that does the same in its own way.

    ``changes`` replace fields of the binding, but never the id: the user's key for the action holds here too.
    """
    return replace(BY_ID[action_id].binding(), **{**changes, "id": action_id})


def keys_of(action_id: str, chosen: Mapping[str, str]) -> str:
    """The keys of an action, separated by commas: those that the user chose, else the default ones."""
    return chosen.get(action_id, BY_ID[action_id].keys)


def is_navigation(of: Binding) -> bool:
    """Whether a binding only moves about or edits; one of Textual's own does unless it is offered."""
    action = BY_ID.get(of.id or "")
    return action.navigation if action is not None else not of.show
