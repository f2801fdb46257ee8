"""Checks the keys that a user gave to actions."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import combinations
from typing import Final

from textual.binding import Binding, InvalidBinding

from pallas.safe_text import one_line

from . import ACTIONS, BY_ID, keys_of
from .action import Action, Scope

_SHARED: Final[tuple[tuple[Scope, ...], ...]] = (
    ("app", "vim"),
    ("sheet", "help_screen", "vim"),
    ("settings_screen", "vim"),
    ("settings_screen", "list"),
    ("picture", "vim"),
    ("files", "vim"),
    ("files", "list"),
    ("side", "vim"),
    ("tool", "send"),
    ("tool", "list"),
    ("send", "list"),
    ("exchange", "list"),
    ("step", "list"),
    ("diff", "list"),
    ("lock", "list"),
    ("envelope", "list"),
    *(
        (pane, "list")
        for pane in (
            "agents",
            "agent",
            "feed",
            "run",
            "credentials",
            "messages",
            "replay",
            "threads",
            "tasks",
        )
    ),
    ("tests", "list"),
    ("test_recording", "list"),
    ("todos", "list"),
    ("replicas", "list"),
    ("questions", "list"),
    ("questions", "question_card"),
    ("question_form", "tool"),
    ("question_form", "list"),
    ("changes", "list"),
    ("instances", "list"),
    ("logs", "log_list", "list"),
    ("record", "list"),
)
"""Scopes whose keys work at the same time: in all of them together a key does one thing.

Others may share keys: a pane's key comes before the same key of the whole workbench.
"""


def keymap_mistakes(keys: Mapping[str, str]) -> list[str]:
    """A line for each id that is no action, and for each key that another action needs."""
    return [*_unknown(keys), *_conflicts(keys)]


def _unknown(keys: Mapping[str, str]) -> Iterator[str]:
    for action_id in keys:
        if action_id not in BY_ID:
            close = get_close_matches(action_id, BY_ID, 1)
            hint = f"; did you mean {close[0]}?" if close else "; docs/workbench.md#keys leads to the list"
            yield f"{one_line(action_id, 40)}: no such action{hint}"


def _conflicts(keys: Mapping[str, str]) -> Iterator[str]:
    """The user may take one of several keys from an action; its only one is missed there."""
    if keys.keys().isdisjoint(BY_ID):
        return  # the pairs below take several milliseconds, before the first paint
    for first, second in combinations(ACTIONS, 2):
        changed, other = (second, first) if second.id in keys else (first, second)
        if changed.id not in keys or not _meet(first.scope, second.scope):
            continue
        theirs = _keys_of(other, keys)
        taken = _keys_of(changed, keys) & theirs
        if taken and (other.id in keys or taken == theirs):
            yield (
                f"{changed.id}: {', '.join(sorted(taken))} is the key of {other.id}; "
                f"choose another key, or another one for {other.id}"
            )


def _meet(one: Scope, other: Scope) -> bool:
    return one == other or any(one in scopes and other in scopes for scopes in _SHARED)


def _keys_of(action: Action, keys: Mapping[str, str]) -> set[str]:
    """The names of an action's keys, with the user's in place of the default ones."""
    written = keys_of(action.id, keys)
    try:
        return {each.key for each in Binding.make_bindings([Binding(written, "")])} if written else set()
    except InvalidBinding:
        return set()
