"""The connections of an agent to its servers, as values."""

from dataclasses import dataclass
from typing import Final, Literal

MAX_NAMED: Final = 5
"""Things that cannot be used of one server, named in a line of text."""


@dataclass(frozen=True, slots=True)
class ServerConnection:
    """The connections of all instances of an agent to one server, taken together. All text is one line."""

    server: str
    is_open: bool = False
    """Whether at least one is open."""
    since: float = 0.0
    """When the first of them was opened, or the last one lost, in Unix seconds; 0 if there was none."""
    error: str = ""
    """Why none is open, or how the last check failed."""
    version: str = ""
    """Of the protocol that was negotiated last."""
    tools: int = 0
    """How many of its tools can be used."""
    left_out: tuple[str, ...] = ()
    """What it lists and cannot be used, with reasons, at most ``MAX_NAMED``."""
    left_out_count: int = 0
    problem: str = ""
    """Why none of its tools can be used: ``lists no tool that can be used: ...``."""
    checked: Literal["", "answers", "silent", "failed"] = ""
    """What the last check of an open one found; empty before the first."""
    needs_caller: bool = False
    """Whether only a caller's bearer opens it, so that it says nothing of other callers."""
    open_count: int = 0
    """How many are open."""
    failed_count: int = 0
    """How many conversations are without it while others have it, because their connection failed."""
    failure: str = ""
    """Why the last of those failed, without a word on the caller."""
    failed_at: float = 0.0
    """When that was, in Unix seconds; 0 if none has failed."""

    def __str__(self) -> str:
        if not self.is_open:
            return self.error
        counted = f"{self.tools} tool{'s' * (self.tools != 1)}"
        parts = [f"connected, {self.version}" if self.version else "connected", counted]
        if self.needs_caller:
            parts.append(f"{self.open_count} connection{'s' * (self.open_count != 1)} with callers' tokens")
        if self.failed_count:
            parts.append(f"{self.failed_count} without it: {self.failure}")
        if self.left_out_count:
            parts.append(f"{self.left_out_count} left out: {named(self.left_out, self.left_out_count)}")
        return ", ".join(parts)


def named(texts: tuple[str, ...], count: int) -> str:
    """Return the first of ``count`` texts in one line, and how many there are beyond."""
    shown = texts[:MAX_NAMED]
    return "; ".join(shown) + (f"; {count - len(shown)} more" if count > len(shown) else "")
