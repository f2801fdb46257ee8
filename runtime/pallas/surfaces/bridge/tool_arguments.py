"""The arguments of a call, checked against the tool's own schema; an error names the argument."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from pallas.model import NO_PARAMS, Fault, FaultType, Params
from pallas.safe_text import one_line

from .tool_schemas import ToolListing

_KINDS: Final[Mapping[str, tuple[str, Any]]] = {
    "string": ("a string", lambda value: isinstance(value, str)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "object": ("an object", lambda value: isinstance(value, Mapping)),
    "integer": ("a whole number", lambda value: _is_integer(value)),
}
_LONGEST: Final = 365 * 86_400_000
"""The longest timeout in milliseconds; a larger one is no deadline."""


class Arguments:
    """The arguments of one call of a bridge tool; null counts as left out.

    The constructor raises Fault (PROTOCOL) that names the argument which is wrong, missing or unknown.
    """

    def __init__(self, about: ToolListing, given: Mapping[str, Any]) -> None:
        self._about = about
        self._values = {name: value for name, value in given.items() if value is not None}
        known: Mapping[str, Mapping[str, Any]] = about.schema["properties"]
        for name in given:
            if name not in known:
                raise self._wrong(one_line(name, 80), self._unknown(name, tuple(known)))
        for name in about.schema.get("required", ()):
            if name not in self._values:
                raise self._wrong(name, "is missing")
        for name, value in self._values.items():
            what, fits = _KINDS[known[name]["type"]]
            if not fits(value):
                raise self._wrong(name, f"is not {what}")

    def text(self, name: str, default: str = "") -> str:
        """Return a string."""
        return str(self._values.get(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean, ``default`` if it is left out."""
        return bool(self._values.get(name, default))

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        """Return an object; None if it is left out."""
        found: Mapping[str, Any] | None = self._values.get(name)
        return found

    def seconds(self, name: str) -> float | None:
        """Return milliseconds of the wire as seconds; None if they are left out."""
        value = self._values.get(name)
        if value is None:
            return None
        if value <= 0:
            raise self._wrong(name, "is not above 0; it is in milliseconds")
        return float(min(value, _LONGEST)) / 1000

    def params(self, name: str) -> Params:
        """Return the model's parameters, read strictly."""
        found = self.mapping(name)
        return NO_PARAMS if found is None else Params.read_runtime(found)

    def agent(self) -> str | None:
        """Return the agent's id, by either name of the argument; None for the default."""
        new, old = self._values.get("agentId"), self._values.get("workerId")
        if new is not None and old is not None and new != old:
            raise self._wrong("workerId", "is the old name of agentId and has another value; leave it out")
        found = new if new is not None else old
        return None if found is None else str(found)

    def _unknown(self, name: str, known: tuple[str, ...]) -> str:
        if not known:
            return f"is not an argument; {self._about.name} takes none"
        near = get_close_matches(name, known, 1, 0.6)
        hint = f"did you mean {near[0]}?" if near else f"{self._about.name} takes {', '.join(known)}"
        return f"is not an argument; {hint}"

    def _wrong(self, name: str, problem: str) -> Fault:
        text = f"{self._about.name}: {name} {problem}"
        return Fault(FaultType.PROTOCOL, text, data={"key": name, "stage": "arguments"})


def _is_integer(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
