"""A tool's JSON schema, read for showing it: references followed, parts joined, everything bounded."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from .json_text import JsonMistake, parse

MAX_STEPS: Final = 32
"""References and parts that are followed for one place in the schema."""
MAX_PARTS: Final = 200
"""Parts of an ``allOf``, and variants of a ``oneOf`` or ``anyOf``, that are looked at."""

Node = Mapping[str, Any]


MAX_SCHEMA: Final = 300_000
"""Characters of a schema that is read: more takes longer than a key may wait."""


class Schema:
    """A schema document. ``problem`` says in one line why there is none, or what of it cannot be used."""

    def __init__(self, text: str) -> None:
        self.problem = ""
        document: Any = {}
        try:
            if len(text) > MAX_SCHEMA:
                raise JsonMistake(f"longer than {MAX_SCHEMA:,} characters")
            document = parse(text)
        except JsonMistake as mistake:
            self.problem = f"the tool's schema cannot be read: {mistake}"
        if not isinstance(document, dict | bool):
            document, self.problem = {}, "the tool's schema is not an object"
        self.document: Any = document
        self._resolved: dict[int, tuple[Any, Node]] = {}

    def resolve(self, node: Any) -> Node:
        """Return ``node`` with its ``$ref`` and ``allOf`` joined into one; ``{}`` if it is no schema.

        Always ends: a schema that refers to itself, or takes more than ``MAX_STEPS`` steps, is cut there.
        """
        known = self._resolved.get(id(node))
        if known is None:
            found = self._joined(node, [MAX_STEPS], ())
            # The node is kept as well: an id means something only while its object lives.
            known = self._resolved[id(node)] = (node, found)
        return known[1]

    def _joined(self, node: Any, steps_left: list[int], seen: tuple[int, ...]) -> Node:
        if not isinstance(node, dict) or id(node) in seen or steps_left[0] <= 0:
            return {}
        if "$ref" not in node and "$dynamicRef" not in node and "allOf" not in node:
            return node
        steps_left[0] -= 1
        seen = (*seen, id(node))
        parts = [
            self._joined(self.target(node[keyword]), steps_left, seen)
            for keyword in ("$ref", "$dynamicRef")
            if keyword in node
        ]
        if isinstance(node.get("allOf"), list):
            parts += [self._joined(part, steps_left, seen) for part in node["allOf"][:MAX_PARTS]]
        parts.append({key: value for key, value in node.items() if key not in _JOINED})
        return _merge(parts)

    def target(self, reference: Any) -> Any:
        """What a reference within the document points to; None for any other."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        pointer = unquote(reference[1:])
        if pointer and not pointer.startswith("/"):
            return self._anchored(pointer)
        node = self.document
        for step in pointer.split("/")[1:][:MAX_STEPS]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict):
                node = node.get(step)
            elif isinstance(node, list) and step.isascii() and step.isdigit() and int(step) < len(node):
                node = node[int(step)]
            else:
                return None
        return node

    def _anchored(self, name: str) -> Any:
        for keyword in ("$defs", "definitions"):
            defs = self.document.get(keyword) if isinstance(self.document, dict) else None
            for node in list(defs.values())[:1_000] if isinstance(defs, dict) else ():
                if isinstance(node, dict) and name in (node.get("$anchor"), node.get("$dynamicAnchor")):
                    return node
        return None


_JOINED: Final = ("$ref", "$dynamicRef", "allOf")


def _merge(parts: list[Node]) -> Node:
    """Merge schemas into one. The later one wins where two set the same keyword."""
    merged: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            before = merged.get(key)
            if key == "properties" and isinstance(before, dict) and isinstance(value, dict):
                both = {name: {"allOf": [before[name], value[name]]} for name in before if name in value}
                merged[key] = {**before, **value, **both}
            elif key == "required" and isinstance(before, list) and isinstance(value, list):
                merged[key] = [*before, *(name for name in value if name not in before)]
            elif key in ("anyOf", "oneOf") and isinstance(before, list):
                continue  # two choices at once: the first is offered, the check knows both
            else:
                merged[key] = value
    return merged
