"""The nearest schema that Gemini takes, for any JSON Schema of a tool.

Gemini's functions have a part of OpenAPI 3.0: one type for each value, a choice as ``anyOf``, no schema that
is true or false, only texts in an ``enum``. One keyword that it does not know fails the whole request, and
with it every run. So only known keywords are sent, and what they cannot say is added to the description.
References are written out, within ``MAX_UNFOLDED``.

``tests/contract/test_mcp_seam.py`` fails when the wrapped code changes.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from pallas.mcp_client.library_hooks import Hook

from .tool_schemas import as_object, local_reference

MAX_UNFOLDED: Final = 20_000
"""Schemas within a schema whose references are written out; any further one is any value."""
_MAX_DEPTH: Final = 60
_Schema = dict[str, Any]

_TEXTS: Final = ("title", "description")
_COUNTS: Final = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_BOUNDS: Final = ("minimum", "maximum")
_OF_TYPE: Final = {
    "string": frozenset({"pattern", "format", "minLength", "maxLength", "enum"}),
    "number": frozenset({"format", "minimum", "maximum"}),
    "integer": frozenset({"format", "minimum", "maximum"}),
    "boolean": frozenset[str](),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "minProperties", "maxProperties"}),
}
"""The keywords that say something of a type, beside those of all types."""
_FORMATS: Final = {
    "string": frozenset({"date-time", "enum"}),
    "number": frozenset({"float", "double"}),
    "integer": frozenset({"int32", "int64"}),
}
_SIMPLE: Final = ("string", "number", "boolean")
_TYPE_OF: Final = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}


def schema_hook() -> Hook:
    """Return the hook on the function that prepares schemas. Imports Google's library."""
    from fast_agent.llm.provider.google.google_converter import GoogleConverter

    return Hook("google-schemas", GoogleConverter, "_clean_schema_for_google", ("self", "schema"), _nearest)


def _nearest(_: Any) -> Any:
    def _clean_schema_for_google(_: Any, schema: Any) -> _Schema:
        return google_schema(schema)

    return _clean_schema_for_google


def google_schema(schema: Any) -> _Schema:
    """Return the nearest schema of an object that Gemini takes."""
    found = _Conversion(schema).of(as_object(schema if isinstance(schema, dict) else {}), 0)
    return found if found.get("type") == "object" else {"type": "object"}


class _Conversion:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._made = 0
        self._open: list[str] = []

    def of(self, schema: Any, depth: int) -> _Schema:
        """Return the nearest schema; one that cannot be read is any value."""
        if not isinstance(schema, dict) or depth > _MAX_DEPTH or self._made > MAX_UNFOLDED:
            return _any_value()
        opened = len(self._open)
        try:
            return self._of(self._flat(schema, depth), depth)
        finally:
            del self._open[opened:]

    def _flat(self, schema: _Schema, depth: int) -> _Schema:
        """Return a schema with the reference and the ``allOf`` at its top written out.

        Its references are open until the schema is made: one that refers to itself has no end.
        """
        self._made += 1
        parts = list(_list(schema.get("allOf")))
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in self._open:
            self._open.append(reference)
            parts.append(local_reference(self._root, reference))
        found = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        for part in parts:
            if isinstance(part, dict) and depth < _MAX_DEPTH and self._made <= MAX_UNFOLDED:
                found = _merged(found, self._flat(part, depth + 1))
        return found

    def _of(self, schema: _Schema, depth: int) -> _Schema:
        notes: list[str] = []
        types, nullable = _types_of(schema)
        choices = [each for key in ("anyOf", "oneOf") for each in _list(schema.get(key))]
        made: list[_Schema]
        if choices:
            rest = [each for each in choices if isinstance(each, dict) and not _is_null(each)]
            nullable = nullable or any(_is_null(each) for each in choices)
            shared = {key: schema[key] for key in schema if key not in ("anyOf", "oneOf", *_TEXTS)}
            made = [self.of(_merged(shared, each), depth + 1) for each in rest]
        else:
            made = [self._typed(schema, kind, notes, depth) for kind in types]
        made = _unique(made)
        found: _Schema = made[0] if len(made) == 1 else {"anyOf": made} if made else _any_value()
        for key in _TEXTS:
            if isinstance(schema.get(key), str):
                found = {**found, key: schema[key]}
        if notes:
            said = found.get("description")
            found = {**found, "description": "; ".join([said, *notes] if said else notes)}
        return {**found, "nullable": True} if nullable else found

    def _typed(self, schema: _Schema, kind: str, notes: list[str], depth: int) -> _Schema:
        """Return what a schema says of values of one type."""
        found: _Schema = {"type": kind}
        for key in _COUNTS:
            if type(schema.get(key)) is int and schema[key] >= 0:
                found[key] = schema[key]
        for key in _BOUNDS:
            if type(schema.get(key)) in (int, float):
                found[key] = schema[key]
        for key, bound, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
            limit = schema.get(key)
            if isinstance(limit, int | float) and not isinstance(limit, bool):
                found.setdefault(
                    bound, limit + step if kind == "integer" and float(limit).is_integer() else limit
                )
        if isinstance(schema.get("pattern"), str):
            found["pattern"] = schema["pattern"]
        if schema.get("format") in _FORMATS.get(kind, ()):
            found["format"] = schema["format"]
        self._add_values(found, schema, kind, notes)
        if kind == "array":
            found["items"] = self._items(schema, depth)
        elif kind == "object":
            self._add_properties(found, schema, depth)
        return {key: value for key, value in found.items() if key == "type" or key in _OF_TYPE[kind]}

    def _add_values(self, found: _Schema, schema: _Schema, kind: str, notes: list[str]) -> None:
        values = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
        fitting = [each for each in values if _is_of(each, kind)]
        if not fitting:
            return
        if kind == "string":
            found["enum"] = list(dict.fromkeys(fitting))
            return
        if kind in ("integer", "number"):
            found.setdefault("minimum", min(fitting))
            found.setdefault("maximum", max(fitting))
        notes.append(f"one of {', '.join(json.dumps(each) for each in fitting[:50])}")

    def _items(self, schema: _Schema, depth: int) -> _Schema:
        items = schema.get("items")
        parts = [*_list(schema.get("prefixItems")), *(items if isinstance(items, list) else [])]
        if isinstance(items, dict):
            parts.append(items)
        made = _unique(self.of(each, depth + 1) for each in parts)
        return {"anyOf": made} if len(made) > 1 else made[0] if made else _any_value(is_nested=True)

    def _add_properties(self, found: _Schema, schema: _Schema, depth: int) -> None:
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return
        shown = {name: self.of(each, depth + 1) for name, each in properties.items() if each is not False}
        required = [each for each in _list(schema.get("required")) if isinstance(each, str) and each in shown]
        if shown:
            found["properties"] = shown
        if required:
            found["required"] = required


def _types_of(schema: _Schema) -> tuple[list[str], bool]:
    """Return the types that a schema names or implies, and whether null is one of its values."""
    named = schema.get("type")
    kinds = [named] if isinstance(named, str) else _list(named)
    values = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
    nullable = schema.get("nullable") is True or "null" in kinds or (not kinds and None in values)
    kinds = [each for each in kinds if isinstance(each, str) and each in _OF_TYPE]
    if not kinds and values:
        kinds = [kind for each in values if (kind := _TYPE_OF.get(type(each)))]
    if not kinds:
        implied = {"object": ("properties", "required"), "array": ("items", "prefixItems")}
        kinds = [kind for kind, keys in implied.items() if any(key in schema for key in keys)]
    return list(dict.fromkeys(kinds)), nullable


def _is_of(value: Any, kind: str) -> bool:
    made = _TYPE_OF.get(type(value))
    return made == kind or (kind == "number" and made == "integer")


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (
        schema.get("type") in ("null", ["null"]) or ("const" in schema and schema["const"] is None)
    )


def _merged(schema: _Schema, other: _Schema) -> _Schema:
    """Return a schema that says what both say, as far as one object can."""
    found = dict(schema)
    for key, value in other.items():
        held = found.get(key)
        if (
            key in ("properties", "$defs", "definitions")
            and isinstance(held, dict)
            and isinstance(value, dict)
        ):
            found[key] = {**value, **held}
        elif key in ("required", "allOf") and isinstance(held, list):
            found[key] = [*held, *_list(value)]
        else:
            found.setdefault(key, value)
    return found


def _any_value(*, is_nested: bool = False) -> _Schema:
    """Return a schema of any value; of any simple one within a list, which needs a type of its items."""
    kinds: list[_Schema] = [{"type": kind} for kind in _SIMPLE]
    if not is_nested:
        kinds += [{"type": "object"}, {"type": "array", "items": _any_value(is_nested=True)}]
    return {"anyOf": kinds}


def _unique(schemas: Iterable[_Schema]) -> list[_Schema]:
    return list({json.dumps(each, sort_keys=True): each for each in schemas}.values())


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
