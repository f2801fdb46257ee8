"""The agent library's native form of a message, for processes that only pass it on."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Packed:
    """A message's native form as JSON text, from an agent in another process."""

    json: str


def packed_of(native: Any) -> str | None:
    """The JSON of a native form from any kind of executor, None if there is none."""
    if isinstance(native, Packed):
        return native.json
    dump = getattr(native, "model_dump_json", None)
    return str(dump(by_alias=True)) if dump is not None else None
