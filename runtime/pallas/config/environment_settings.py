"""Settings of fast-agent in the environment: ``OPENAI__API_KEY`` is ``openai.api_key``.

As pydantic-settings reads them: names in any case, with two underscores between keys, below what files say;
the value of a mapping or list is JSON.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .models import Where
from .tree import Entry, Items, Leaf, Node, Table, merge
from .upstream import TOP_KEYS

_BETWEEN: Final = "__"
_OURS: Final = "model_capabilities"
_USUAL: Final = frozenset({_OURS, "home", "default_model"})
"""Keys whose variables say nothing that could be wrong."""
_DEEPEST: Final = 32


def has_settings(environ: Mapping[str, str]) -> bool:
    """Whether fast-agent takes a variable for one of its settings, also for one that it cannot read."""
    return any(name.lower().partition(_BETWEEN)[0] in TOP_KEYS - _USUAL for name in environ)


def environment_settings(environ: Mapping[str, str]) -> Table:
    """Return the settings that variables have for keys with more than one part, or as JSON."""
    found = Table({}, Where("environment"))
    # A mapping as a whole is laid below what has a variable of its own.
    for name, value in sorted(environ.items(), key=lambda each: (each[0].count(_BETWEEN), each[0])):
        keys = name.lower().split(_BETWEEN)
        if keys[0] not in TOP_KEYS or keys[0] == _OURS or not all(keys) or len(keys) > _DEEPEST:
            continue
        where = Where(name)
        node = _node(name, value, where)
        if len(keys) == 1 and not isinstance(node, Table):
            continue  # a setting that is no mapping, or no setting
        for key in reversed(keys):
            node = Table({key: Entry(where, node)}, where)
        assert isinstance(node, Table)
        found = merge(found, node)
    return found


def _node(name: str, value: str, where: Where) -> Node:
    """Return a JSON mapping or list as such, and any other value as if a file referred to it."""
    if value.lstrip()[:1] in ("{", "["):
        try:
            return _of_json(json.loads(value), where)
        except (ValueError, RecursionError):
            pass
    return Leaf(value, f"${{{name}}}", where, expanded=True)


def _of_json(value: Any, where: Where) -> Node:
    if isinstance(value, dict):
        return Table(dict(_entries(value, where)), where)
    if isinstance(value, list):
        return Items(tuple(_of_json(each, where) for each in value), where)
    return Leaf(value, str(value), where)


def _entries(value: Mapping[str, Any], where: Where) -> Iterator[tuple[str, Entry]]:
    for key, each in value.items():
        yield key, Entry(where, _of_json(each, where))
