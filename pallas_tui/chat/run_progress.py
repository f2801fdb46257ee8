"""What a progress message of an agent says (SPEC 4.1). The numbers beside it are not looked at."""

import re
from dataclasses import dataclass
from typing import Final

_TEXT: Final = re.compile(r"^(\S+) » (.*)$", re.DOTALL)
_STEP: Final = re.compile(r"^(\S+) step (\d+) \((llm|tool)\)$")
_TOOL: Final = re.compile(r"^([^/]+)/(.+): (started|completed|failed)$")


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Some of the model's text: to be joined to the pieces before it as it is."""

    actor: str
    text: str


@dataclass(frozen=True, slots=True)
class LoopStep:
    """The agent's loop went on; ``kind`` is ``llm`` or ``tool``."""

    actor: str
    number: int
    kind: str


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """A downstream call began or ended; ``phase`` is ``started``, ``completed`` or ``failed``."""

    label: str
    phase: str


@dataclass(frozen=True, slots=True)
class ProgressNote:
    """Anything else: shown, not understood."""

    text: str


Progress = TextPiece | LoopStep | ToolProgress | ProgressNote


def parse(message: str) -> Progress:
    """The meaning of one message; whatever fits no pattern is a ``ProgressNote``, never an error."""
    # First: a piece of text may itself look like one of the others.
    if found := _TEXT.match(message):
        return TextPiece(found[1], found[2])
    if found := _STEP.match(message):
        return LoopStep(found[1], int(found[2]), found[3])
    if found := _TOOL.match(message):
        return ToolProgress(f"{found[1]}/{found[2]}", found[3])
    return ProgressNote(message)
