"""``params:`` of an agent: what its runs ask of the model unless a call says otherwise."""

from typing import Annotated, Any, Final

from pydantic import WithJsonSchema

from pallas.model import NO_PARAMS, Fault, Params
from pallas.model.params import KEYS, PER_CALL_KEYS

from .notes import allowed
from .section import Section
from .tree import Items, Leaf, Node, Table, plain

DEFAULT_KEYS = tuple(key for key in KEYS if key not in PER_CALL_KEYS)
"""The keys that may be defaults."""
_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "temperature": {
        "type": ["number", "null"],
        "minimum": 0,
        "maximum": 2,
        "description": "How varied answers are.",
    },
    "top_p": {
        "type": ["number", "null"],
        "minimum": 0,
        "maximum": 1,
        "description": "Chooses only among the most likely words that have this share of the probability.",
    },
    "top_k": {
        "type": ["integer", "null"],
        "minimum": 0,
        "description": "Chooses only among this many likely words.",
    },
    "max_tokens": {"type": ["integer", "null"], "minimum": 1, "description": "The most tokens of an answer."},
    "stop": {
        "type": ["string", "array", "null"],
        "items": {"type": "string"},
        "maxItems": 4,
        "description": "Texts that end an answer.",
    },
    "presence_penalty": {
        "type": ["number", "null"],
        "minimum": -2,
        "maximum": 2,
        "description": "How strongly words that already occur are avoided.",
    },
    "frequency_penalty": {
        "type": ["number", "null"],
        "minimum": -2,
        "maximum": 2,
        "description": "How strongly words that occur often are avoided.",
    },
    "seed": {"type": ["integer", "null"], "description": "The same seed gives the same answer, mostly."},
    "response_format": {
        "type": ["object", "null"],
        "description": "The form of an answer.",
    },
    "tool_choice": {
        "type": ["string", "object", "null"],
        "description": "auto, none, required, or one function.",
    },
    "tools_allowlist": {
        "type": ["array", "null"],
        "items": {"type": "string"},
        "description": "The only tools that the model is offered.",
    },
    "extra": {"type": ["object", "null"], "description": "Parameters that only one provider knows."},
}
_SYNONYMS: Final = {
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "stop_sequences": "stop",
}


def _spellings(key: str) -> tuple[str, ...]:
    """The key as it is shown, and in camelCase."""
    first, *others = key.split("_")
    return tuple(dict.fromkeys((key, first + "".join(each.title() for each in others))))


PARAMS: Final = "Params"
"""The name of their JSON Schema."""
PARAMS_SCHEMA: Final[dict[str, Any]] = {
    "type": ["object", "null"],
    "additionalProperties": False,
    "description": "Parameters of a run; null clears a value from a lower level.",
    "properties": {
        each: _SCHEMAS[_SYNONYMS.get(key, key)]
        for key in (*DEFAULT_KEYS, *_SYNONYMS)
        for each in _spellings(key)
    },
}
ParamsMapping = Annotated[Any, WithJsonSchema({"$comment": PARAMS})]
"""The mapping in a file, read by ``read_params``."""


def read_params(section: Section) -> Params:
    """The ``params`` of an agent's entry, in either spelling; what is wrong is noted with its line.

    A key without a value is null: it clears what the model's endpoint or the agent's code has.
    """
    inner = section.section("params")
    if inner is None:
        return NO_PARAMS
    found: dict[str, Any] = {}
    for key, entry in inner.table.entries.items():
        if (leaf := _date_in(entry.node)) is not None:
            inner.error(key, f"is a date to YAML ({leaf.raw})", f'quote it: "{leaf.raw}"', where=leaf.where)
            continue
        try:
            params = _read(key, entry.node)
        except Fault as fault:
            problem, _, hint = fault.message.partition(": ")[2].partition("; ")
            hint = hint if not hint.startswith("known: ") else allowed(DEFAULT_KEYS)
            inner.error(key, problem, hint)
            continue
        (name,) = params.values
        if name in found:
            inner.error(key, "is given twice, in two spellings", "leave one out")
        found.update(params.values)
    return Params(found)


def _read(key: str, node: Node) -> Params:
    """One key. Raises Fault (PROTOCOL)."""
    value = plain(node)
    try:
        return Params.read({key: value}, strict=True, refused=PER_CALL_KEYS)
    except Fault:
        # The text of a variable may be a number.
        if not isinstance(node, Leaf) or not node.expanded or (number := _number(str(value))) is None:
            raise
        return Params.read({key: number}, strict=True, refused=PER_CALL_KEYS)


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _date_in(node: Node) -> Leaf | None:
    match node:
        case Table(entries):
            below = [entry.node for entry in entries.values()]
        case Items(items):
            below = list(items)
        case Leaf(value):
            return node if value is not None and not isinstance(value, str | int | float) else None
    return next((found for each in below if (found := _date_in(each)) is not None), None)
