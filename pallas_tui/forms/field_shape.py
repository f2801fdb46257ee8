"""What a place in a schema asks for, in the few kinds that a form has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pallas.safe_text import one_line, sanitize

from .form_schema import MAX_PARTS, Node, Schema
from .json_text import brief, same
from .value_paths import ABSENT

MAX_CHOICES: Final = 1_000
_LONG: Final = 2_000


class FieldKind(StrEnum):
    """How a value is entered."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    CHOICE = "choice"
    OBJECT = "object"
    ARRAY = "array"
    VARIANTS = "one of"
    NULL = "null"
    ANY = "any JSON"


_KINDS: Final = {
    "string": FieldKind.TEXT,
    "integer": FieldKind.INTEGER,
    "number": FieldKind.NUMBER,
    "boolean": FieldKind.BOOLEAN,
    "object": FieldKind.OBJECT,
    "array": FieldKind.ARRAY,
    "null": FieldKind.NULL,
}
_TYPES: Final[Mapping[FieldKind, tuple[type, ...]]] = {
    FieldKind.TEXT: (str,),
    FieldKind.INTEGER: (int, float),
    FieldKind.NUMBER: (int, float),
    FieldKind.BOOLEAN: (bool,),
    FieldKind.OBJECT: (dict,),
    FieldKind.ARRAY: (list,),
    FieldKind.NULL: (type(None),),
}


@dataclass(frozen=True, slots=True)
class FieldShape:
    """One place: what it takes, in words that are safe to show. Nodes are parts of the schema, unread.

    ``choices`` are the only values there may be (kind ``choice``); ``titles`` name them where the schema
    does. ``items`` and ``more`` are None where nothing further is allowed; ``first`` are the nodes of a
    list's first places. ``variants`` are nodes of which one applies (kind ``one of``).
    """

    kind: FieldKind
    title: str = ""
    description: str = ""
    nullable: bool = False
    default: Any = ABSENT
    choices: tuple[Any, ...] = ()
    titles: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    more: Any = None
    first: tuple[Any, ...] = ()
    items: Any = None
    variants: tuple[Any, ...] = ()
    limits: str = ""
    secret: bool = False

    def fits(self, value: Any) -> bool:
        """Whether a value is of this kind at all, at a glance."""
        if value is None:
            return (
                self.nullable
                or self.kind in (FieldKind.NULL, FieldKind.ANY)
                or any(one is None for one in self.choices)
            )
        if self.kind is FieldKind.CHOICE:
            return any(same(value, one) for one in self.choices)
        if self.kind in (FieldKind.ANY, FieldKind.VARIANTS):
            return True
        if isinstance(value, bool):
            return self.kind is FieldKind.BOOLEAN
        if self.kind is FieldKind.INTEGER and isinstance(value, float):
            return value.is_integer()
        return isinstance(value, _TYPES[self.kind])


class Shapes:
    """The shapes of one schema, each made once."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._made: dict[int, tuple[Any, FieldShape]] = {}

    def of(self, node: Any) -> FieldShape:
        """The shape of a node; kind ``any JSON`` for what says nothing that a form could use."""
        known = self._made.get(id(node))
        if known is None:
            known = self._made[id(node)] = (node, self._shape(self.schema.resolve(node)))
        return known[1]

    def _shape(self, node: Node) -> FieldShape:
        node, nullable = self._without_null(node)
        words: dict[str, Any] = {
            "title": one_line(_text(node, "title"), 80),
            "description": sanitize(_text(node, "description"), _LONG).strip(),
            "nullable": nullable,
            "default": node.get("default", ABSENT),
            "limits": _limits(node),
            "secret": node.get("writeOnly") is True or node.get("format") == "password",
        }
        if "const" in node:
            return FieldShape(FieldKind.CHOICE, choices=(node["const"],), **words)
        if isinstance(node.get("enum"), list):
            choices = tuple(node["enum"][:MAX_CHOICES])
            # Null may be one of the choices although the type forbids it: pydantic does so.
            return FieldShape(FieldKind.CHOICE, choices=choices, **words)
        variants = self._variants(node)
        if named := self._named_choices(variants):
            return FieldShape(FieldKind.CHOICE, choices=named[0], titles=named[1], **words)
        if variants:
            return FieldShape(FieldKind.VARIANTS, variants=variants, **words)
        kind = _kind(node)
        if kind is FieldKind.OBJECT:
            more = node.get("additionalProperties", True)
            return FieldShape(
                kind,
                properties=_mapping(node.get("properties")),
                required=frozenset(name for name in _list(node.get("required")) if isinstance(name, str)),
                more=None if more is False else more,
                **words,
            )
        if kind is FieldKind.ARRAY:
            items, first = node.get("items", True), node.get("prefixItems")
            if isinstance(items, list):  # as it was before 2020-12
                first, items = items, node.get("additionalItems", True)
            return FieldShape(
                kind, first=tuple(_list(first)), items=None if items is False else items, **words
            )
        return FieldShape(kind, **words)

    def _without_null(self, node: Node) -> tuple[Node, bool]:
        """``node`` without the null that it also allows, and whether it does."""
        kinds = node.get("type")
        if isinstance(kinds, list) and "null" in kinds and len(kinds) > 1:
            left = [kind for kind in kinds if kind != "null"]
            return {**node, "type": left[0] if len(left) == 1 else left}, True
        for keyword in ("anyOf", "oneOf"):
            options = node.get(keyword)
            if not isinstance(options, list) or len(options) < 2 or len(options) > MAX_PARTS:
                continue
            left = [one for one in options if not self._is_null(one)]
            if len(left) == len(options) or not left:
                continue
            rest = {key: value for key, value in node.items() if key != keyword}
            if len(left) > 1:
                return {**rest, keyword: left}, True
            # The keywords next to the choice describe it better than those inside.
            inner, _ = self._without_null(self.schema.resolve({"allOf": [left[0], rest]}))
            return inner, True
        return node, node.get("nullable") is True

    def _is_null(self, node: Any) -> bool:
        found = self.schema.resolve(node)
        return found.get("type") == "null" or ("const" in found and found["const"] is None)

    def _variants(self, node: Node) -> tuple[Any, ...]:
        for keyword in ("oneOf", "anyOf"):
            options = _list(node.get(keyword))[:MAX_PARTS]
            base = {key: value for key, value in node.items() if key != keyword}
            found = [self.schema.resolve(option) for option in options]
            # Options that only say which fields are required leave the fields as they are.
            if found and any(not one.keys().isdisjoint(_SAYS_KIND) for one in found):
                bare = {
                    key: value
                    for key, value in base.items()
                    if key not in ("title", "description", "default")
                }
                return tuple({"allOf": [bare, option]} for option in options)
        kinds = node.get("type")
        if isinstance(kinds, list) and len(kinds) > 1:
            return tuple({**node, "type": kind, "title": ""} for kind in kinds if isinstance(kind, str))
        return ()

    def _named_choices(self, variants: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[str, ...]] | None:
        found = [self.schema.resolve(variant) for variant in variants]
        if not found or any("const" not in one for one in found):
            return None
        return tuple(one["const"] for one in found), tuple(one_line(_text(one, "title"), 80) for one in found)


_SAYS_KIND: Final = frozenset(
    ("type", "properties", "items", "prefixItems", "enum", "const", "anyOf", "oneOf", "$ref", "allOf")
)


def _kind(node: Node) -> FieldKind:
    kinds = node.get("type")
    if isinstance(kinds, list):
        kinds = kinds[0] if kinds else None
    if isinstance(kinds, str) and kinds in _KINDS:
        return _KINDS[kinds]
    if isinstance(node.get("properties"), dict):
        return FieldKind.OBJECT
    if "items" in node or "prefixItems" in node:
        return FieldKind.ARRAY
    return FieldKind.ANY


def _limits(node: Node) -> str:
    """Return the limits that the schema sets for a value, in a few words."""
    found = []
    for keyword, words in _LIMITS.items():
        value = node.get(keyword)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            found.append(f"{words} {brief(value, 60) if not isinstance(value, str) else one_line(value, 60)}")
    if node.get("uniqueItems") is True:
        found.append("no two the same")
    return ", ".join(found)


_LIMITS: Final = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
    "multipleOf": "a multiple of",
    "minLength": "characters at least",
    "maxLength": "characters at most",
    "format": "format",
    "pattern": "matching",
    "minItems": "items at least",
    "maxItems": "items at most",
}


def _text(node: Node, key: str) -> str:
    value = node.get(key)
    return value if isinstance(value, str) else ""


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
