"""Bounds the expansion of references in a tool's schema, which fast-agent does for Gemini.

A schema whose references each refer twice to another expands to more than any memory holds, and one that
refers to itself never ends. Such a schema loses its references. ``tests/contract/test_mcp_seam.py`` fails
when the wrapped code changes.
"""

import logging
from typing import Any, Final

from pallas.mcp_client.library_hooks import Hook

log = logging.getLogger(__name__)

MAX_UNFOLDED: Final = 20_000
"""Objects, arrays and values of a schema whose references are written out."""


def references() -> Hook:
    """Return the hook on the function that expands references. Imports Google's library."""
    from fast_agent.llm.provider.google.google_converter import GoogleConverter

    return Hook(
        "bounded-references", GoogleConverter, "_resolve_refs", ("self", "schema", "root_schema"), _bounded
    )


def _bounded(original: Any) -> Any:
    def _resolve_refs(self: Any, schema: Any, root_schema: Any) -> Any:
        if schema is not root_schema:
            return original(self, schema, root_schema)
        if not _fits(schema):
            log.warning("a schema refers to itself, or unfolds to more than %d values", MAX_UNFOLDED)
            return _without(schema)
        # Otherwise dangling references remain, and Gemini would refuse the request.
        return _without(original(self, schema, root_schema))

    return _resolve_refs


def _fits(schema: Any) -> bool:
    try:
        return _Sizes(schema).of(schema) <= MAX_UNFOLDED
    except RecursionError:
        return False


class _Sizes:
    """The expanded sizes of the parts of a schema."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[str, int] = {}
        self._open: set[str] = set()

    def of(self, node: Any) -> int:
        if isinstance(node, list):
            return 1 + sum(map(self.of, node))
        if not isinstance(node, dict):
            return 1
        size = 1 + sum(self.of(value) for key, value in node.items() if key != "$ref")
        reference = node.get("$ref")
        return size + self._target(reference) if isinstance(reference, str) else size

    def _target(self, reference: str) -> int:
        from fast_agent.llm.structured_schema import resolve_local_ref

        if reference in self._open:
            return MAX_UNFOLDED + 1
        if reference not in self._known:
            self._open.add(reference)
            self._known[reference] = self.of(resolve_local_ref(self._root, reference))
            self._open.discard(reference)
        return self._known[reference]


def _without(node: Any) -> Any:
    if isinstance(node, list):
        return [_without(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {key: _without(value) for key, value in node.items() if key != "$ref"}
