"""The agent library's own form of a message, while it is in a process that has no use for it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Packed:
    """A message's native form as JSON text, from an agent in a process of its own."""

    json: str


def packed_of(native: Any) -> str | None:
    """The JSON of a native form, whichever kind of executor made it; None where there is none."""
    if isinstance(native, Packed):
        return native.json
    dump = getattr(native, "model_dump_json", None)
    return str(dump(by_alias=True)) if dump is not None else None
