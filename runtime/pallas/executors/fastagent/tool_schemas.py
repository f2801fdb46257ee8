"""The nearest schemas that the chat completions, Responses and Messages APIs take for a tool.

Their functions take an object by its properties. A choice next to them (``anyOf`` of two sets of required
ones) is ordinary JSON Schema, and fails the whole request; so do a list without the type of its items, and
in the Messages API a property whose name has other characters than theirs.
"""

import logging
import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, Final
from urllib.parse import unquote

from pallas.safe_text import one_line

from .schema_keywords import DROPPED, LISTED, NAMED, NAMED_OR_LISTED, SINGLE, fitted_value, is_pattern

log = logging.getLogger(__name__)

_Schema = dict[str, Any]
_NOT_AT_TOP: Final = ("$ref", "allOf", "anyOf", "oneOf", "not", "enum", "const")
_OWN_NAMES: Final = ("$id", "$anchor", "$dynamicAnchor")
_MAX_DEPTH: Final = 60
_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def local_reference(root: Any, reference: str) -> Any:
    """Return what a reference into the same document names; None if there is no such place."""
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return None
    found = root
    for part in unquote(reference[2:]).split("/"):
        key: Any = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdecimal():
            key = int(key)
            found = dict(enumerate(found))
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found


def as_object(schema: _Schema) -> _Schema:
    """Return the schema as an object with properties; itself if it is one.

    Choices at its top become optional properties, and its description says which sets belong together.
    """
    if schema.get("type") == "object" and not any(key in schema for key in _NOT_AT_TOP):
        return schema
    properties, required, choices = _combined(schema, schema, set(), 0)
    found = {key: value for key, value in schema.items() if key not in _NOT_AT_TOP}
    found |= {"type": "object", "properties": properties}
    found.pop("required", None)
    if required:
        found["required"] = required
    if choices:
        said = schema.get("description")
        found["description"] = " ".join([*([said] if isinstance(said, str) else []), *choices])
    return found


def _combined(root: _Schema, schema: Any, seen: set[str], depth: int) -> tuple[_Schema, list[str], list[str]]:
    """Return the properties that a schema has with its combinations, the required ones, and its choices.

    Each reference is followed once: ``seen`` are those that were.
    """
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return {}, [], []
    own = schema.get("properties")
    properties = dict(own) if isinstance(own, dict) else {}
    required = [each for each in _list(schema.get("required")) if isinstance(each, str)]
    said: list[str] = []
    parts = list(_list(schema.get("allOf")))
    if isinstance(reference := schema.get("$ref"), str) and reference not in seen:
        seen.add(reference)
        parts.append(local_reference(root, reference))
    for part in parts:
        more, needed, choices = _combined(root, part, seen, depth + 1)
        properties = {**more, **properties}
        required += needed
        said += choices
    for key in ("anyOf", "oneOf"):
        branches = [_combined(root, each, seen, depth + 1) for each in _list(schema.get(key))]
        for more, _, _ in branches:
            properties = _either(properties, more)
        sets = [needed for _, needed, _ in branches]
        if sets:
            required += [each for each in sets[0] if all(each in other for other in sets)]
        named = list(dict.fromkeys(" and ".join(needed) for needed in sets if needed))
        if len(named) > 1:
            said.append(f"Give {'one' if key == 'oneOf' else 'at least one'} of: {'; '.join(named)}.")
    return properties, list(dict.fromkeys(required)), said


def _either(properties: _Schema, more: _Schema) -> _Schema:
    found = dict(properties)
    for name, schema in more.items():
        held = found.setdefault(name, schema)
        if held != schema:
            found[name] = {"anyOf": [held, schema]}
    return found


def chat_schema(schema: Any) -> _Schema:
    """Return the nearest schema for chat completions and Responses; the same object if it fits."""
    root = as_object(schema if isinstance(schema, dict) else {})
    found: _Schema = _plain(root, _Document(root), 0)
    return found


def messages_schema(schema: Any) -> _Schema:
    """Return the nearest schema for the Messages API; the same object if it fits.

    Raises ValueError if a required property has a name that the API refuses.
    """
    found = chat_schema(schema)
    properties = found.get("properties")
    if not isinstance(properties, dict):
        return found
    refused = [name for name in properties if not _PROPERTY.fullmatch(name)]
    if not refused:
        return found
    for name in refused:
        if name in _list(found.get("required")):
            raise ValueError(f"the name of its property {one_line(name, 80)!r} is not one that the API takes")
    return {**found, "properties": {name: each for name, each in properties.items() if name not in refused}}


class _Document:
    """A schema that references are within: no provider looks elsewhere."""

    def __init__(self, root: _Schema) -> None:
        self._root = root

    def has(self, reference: str) -> bool:
        """Return whether a reference leads to a schema."""
        there = isinstance(local_reference(self._root, reference), dict | bool)
        return there or reference.removeprefix("#") in self._names

    @cached_property
    def _names(self) -> frozenset[str]:
        """The names that its schemas give themselves."""
        found: set[str] = set()
        nodes: list[Any] = [self._root]
        while nodes:
            node = nodes.pop()
            if isinstance(node, dict):
                found.update(name for key in _OWN_NAMES if isinstance(name := node.get(key), str))
            nodes += node.values() if isinstance(node, dict) else _list(node)
        return frozenset(found)


def _plain(schema: Any, document: _Document, depth: int) -> Any:
    """Return a schema whose keywords have values that they can have; the same object if it is one.

    A list has items, and each part is an object.
    """
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return {}
    changes: _Schema = {}
    for key, value in schema.items():
        if (made := _fitted(key, value, document, depth)) is not value:
            changes[key] = made
    kind = schema.get("type")
    if "items" not in schema and (kind == "array" or (isinstance(kind, list) and "array" in kind)):
        changes["items"] = {}
    if not changes:
        return schema
    return {key: value for key, value in {**schema, **changes}.items() if value is not DROPPED}


def _fitted(key: str, value: Any, document: _Document, depth: int) -> Any:
    """Return the nearest value that a keyword can have, the same object if it can have it, or DROPPED."""
    if key in SINGLE:
        if isinstance(value, dict):
            return _plain(value, document, depth + 1)
        if key == "items":  # true, or a list of schemas as before prefixItems
            return {}
        return value if isinstance(value, bool) else DROPPED
    if key in LISTED:
        if not isinstance(value, list) or not value:
            return DROPPED
        listed = [_plain(each, document, depth + 1) for each in value]
        return value if all(a is b for a, b in zip(listed, value, strict=True)) else listed
    if key in NAMED:
        if not isinstance(value, dict):
            return DROPPED
        names = filter(is_pattern, value) if key == "patternProperties" else value
        named = {name: _part(key, value[name], document, depth + 1) for name in names}
        named = {name: each for name, each in named.items() if each is not DROPPED}
        is_same = len(named) == len(value) and all(named[name] is value[name] for name in named)
        return value if is_same else named
    if key == "$ref" and isinstance(value, str) and not document.has(value):
        return DROPPED
    return fitted_value(key, value)


def _part(key: str, part: Any, document: _Document, depth: int) -> Any:
    """Return the nearest one of the schemas that a keyword has by name; DROPPED if nothing fits it."""
    if part is False:
        return DROPPED
    if key == NAMED_OR_LISTED and isinstance(part, list):
        return fitted_value("required", part)
    return _plain(part, document, depth)


def fit_tools(
    tools: list[Any], place: Callable[[Any], tuple[Any, str]], nearest: Callable[[Any], _Schema]
) -> None:
    """Replace the schemas of a request's tools by the nearest ones; drop a tool that has none.

    ``place`` returns the object that holds a tool's schema, and its key there.
    """
    kept = []
    for tool in tools:
        holder, key = place(tool)
        if isinstance(holder, dict) and key in holder:  # no tool of the provider's own
            try:
                holder[key] = nearest(holder[key])
            except ValueError as error:
                _report(str(holder.get("name")), str(error))
                continue
        kept.append(tool)
    tools[:] = kept


@lru_cache(maxsize=1_000)
def _report(name: str, why: str) -> None:
    """Say once which tool a model does not get."""
    log.warning("the tool %s is left out for this model: %s", one_line(name, 100), why)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
