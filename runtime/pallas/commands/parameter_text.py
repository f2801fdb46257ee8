"""Parameters of the model as a person types them: parse, change and show them (UN-5)."""

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from pallas.model import Fault, FaultType, Params
from pallas.model.params import KEYS
from pallas.safe_text import one_line, sanitize

PER_CALL: Final = frozenset({"messages"})
"""Parameters for one call, which make no sense for a whole conversation."""
_TEXTS: Final = frozenset({"systemOverride", "systemAppend"})
_LISTS: Final = frozenset({"stop", "tools_allowlist"})
_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "temperature": ("0", "0.2", "0.7", "1"),
    "tool_choice": ("auto", "none", "required"),
    "response_format": ('{"type":"text"}', '{"type":"json_object"}'),
}
_ABOUT: Final[Mapping[str, str]] = {
    "temperature": "0 to 2",
    "top_p": "0 to 1",
    "top_k": "a whole number; only for Anthropic",
    "max_tokens": "a whole number",
    "stop": 'a text, or a list such as ["END","STOP"], at most 4',
    "presence_penalty": "-2 to 2",
    "frequency_penalty": "-2 to 2",
    "seed": "a whole number",
    "response_format": '{"type":"json_object"}',
    "tool_choice": "auto, none, required",
    "tools_allowlist": "names of tools, for example docs__search shop__orders_of",
    "systemOverride": "replaces the agent's instruction",
    "systemAppend": "follows the instruction",
    "model": "another model of the provider that answers",
    "extra": "what goes to the provider as it is: a JSON object",
}


def parsed(text: str) -> Any:
    """Parse a value: JSON if it is valid JSON, else text."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return text


def key_of(name: str) -> str | None:
    """Return the key for ``name`` in any spelling; None for one that goes below ``extra``."""
    try:
        found = Params.read({name: None}, strict=True).values
    except Fault:
        return None
    return next(iter(found))


def near(name: str) -> str:
    """Return a key of similar spelling; empty if there is none."""
    close = get_close_matches(name.lower().replace("-", "_"), [key.lower() for key in KEYS], 1, 0.75)
    return next((key for key in KEYS if close and key.lower() == close[0]), "")


def changed(params: Params, name: str, text: str) -> Params:
    """Return ``params`` with one of them set to ``text``; ``null`` clears the agent's own value.

    Raises Fault (PROTOCOL).
    """
    key = key_of(name)
    if key is None:
        below = dict(params.get("extra", {}))
        if not (inner := name.removeprefix("extra.")):
            raise Fault(FaultType.PROTOCOL, "extra. needs a name after it, for example extra.top_a")
        below[inner] = parsed(text)
        return Params.read({**params.to_json(), "extra": below}, strict=True)
    new = Params.read({name: _value(key, text)}, strict=True, refused=PER_CALL)
    return new.over(params.without(frozenset({"extra"}))) if key == "extra" else new.over(params)


def unset(params: Params, name: str) -> Params:
    """Return ``params`` without one of them, so that the agent's value applies.

    Raises Fault if it is not set.
    """
    key = key_of(name)
    below = dict(params.get("extra", {}))
    if key is not None and key in params.values:
        return params.without(frozenset({key}))
    if key is None and name.removeprefix("extra.") in below:
        del below[name.removeprefix("extra.")]
        rest = params.without(frozenset({"extra"}))
        return Params.read({**rest.to_json(), "extra": below}, strict=True) if below else rest
    raise Fault(FaultType.PROTOCOL, f"{one_line(name, 60)} is not set in this conversation.")


def lines(params: Params) -> list[tuple[str, str]]:
    """Return the set parameters, as names and values to show; keys below ``extra`` one by one."""
    found: list[tuple[str, str]] = []
    for key in KEYS:
        if key not in params.values:
            continue
        value = params.values[key]
        if key == "extra" and isinstance(value, Mapping):
            found += [(f"extra.{sanitize(name, 60)}", shown(each)) for name, each in value.items()]
        else:
            found.append((key, shown(value)))
    return found


def value_of(params: Params, name: str) -> str | None:
    """Return one of them, to show; None if it is not set."""
    key = key_of(name)
    return dict(lines(params)).get(key or f"extra.{name.removeprefix('extra.')}")


def about(name: str) -> str:
    """Return what values it accepts; empty for one below ``extra``."""
    return _ABOUT.get(key_of(name) or "", "")


def some_values(name: str) -> Iterable[str]:
    """Return some of its values, for completion."""
    return _VALUES.get(key_of(name) or "", ())


def names() -> tuple[str, ...]:
    """Return the keys that can be set for a conversation."""
    return tuple(key for key in KEYS if key not in PER_CALL)


def shown(value: Any) -> str:
    """Return a value in one line of at most 300 characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(text, 300) or '""'


def _value(key: str, text: str) -> Any:
    if text.strip().lower() == "null":
        return None
    value = parsed(text)
    if key in _TEXTS:
        # A number is text here; quotes around a value are removed.
        return value if isinstance(value, str) else text
    if key in _LISTS and not isinstance(value, list):
        if key == "stop":
            return value if isinstance(value, str) else text
        return [word for word in text.replace(",", " ").split() if word]
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(name)  # NaN and Infinity are not JSON.
