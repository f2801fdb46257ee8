"""What servers say of their tools, compared with what ``tools.lock`` says."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

LockMode = Literal["warn", "hold", "off"]
"""What a difference does at run time: it is reported, also withheld from models, or not looked for."""

type LockedKind = Literal["tool", "prompt", "resource", "resource template", "instructions", "server"]
type LockChangeKind = Literal["added", "removed", "renamed", "changed"]


@dataclass(frozen=True, slots=True)
class LockChange:
    """One thing of a server that differs from the lock. All text is sanitised."""

    kind: LockChangeKind
    what: LockedKind
    name: str = ""
    """The name that it has now; of something removed the one it had. Empty for instructions."""
    old_name: str = ""
    """Of something renamed the name it had."""
    details: tuple[str, ...] = ()
    """What changed, in words: ``description``, ``input schema widened``."""
    before: str = ""
    """Its texts as locked, in lines; empty for something added."""
    after: str = ""
    """Its texts as they are now; empty for something removed."""

    def __str__(self) -> str:
        named = f"{self.what} {self.name}" if self.name else self.what
        if self.kind == "renamed":
            return f"{self.what} {self.old_name} renamed to {self.name}"
        why = f" ({', '.join(self.details)})" if self.details else ""
        return f"{named} {self.kind}{why}"


@dataclass(frozen=True, slots=True)
class ToolFinding:
    """Something suspicious in what a server says. ``rule`` names a rule of ``docs/policy.md``."""

    rule: str
    server: str
    what: LockedKind
    name: str
    message: str
    """One line that says what is wrong and what was found."""


@dataclass(frozen=True, slots=True)
class ServerLock:
    """A server compared with the lock."""

    state: Literal["same", "changed", "not locked", "not lockable"]
    changes: tuple[LockChange, ...] = ()
    findings: tuple[ToolFinding, ...] = ()
    digest: str = ""
    """Of all that the server says now: what an acceptance refers to. Empty if that is not known."""
    mode: LockMode = "off"
    problem: str = ""
    """Why it cannot be compared, in one line."""


@dataclass(frozen=True, slots=True)
class ServerChange:
    """How much of a server differs from the lock, as an agent found it."""

    server: str
    tools: int = 0
    prompts: int = 0
    instructions: bool = False
    problem: str = ""
    """Why all of it counts as different, in a few words: ``is not in tools.lock``."""
    is_held: bool = True
    """Whether models do without it."""

    def __str__(self) -> str:
        if self.problem:
            return f"{self.server} {self.problem}"
        counted = ((self.tools, "tool"), (self.prompts, "prompt"))
        parts = [f"{number} {word}{'s' * (number != 1)}" for number, word in counted if number]
        parts += ["its instructions"] * self.instructions
        return f"{self.server} changed {', '.join(parts)}"


def words_of(changes: Iterable[ServerChange]) -> list[str]:
    """Return a line for each server, for the health of an agent."""
    return [str(each) + ("" if each.is_held else " (still offered)") for each in changes]
