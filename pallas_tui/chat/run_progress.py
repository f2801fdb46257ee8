"""The meaning of an agent's progress messages. Their numbers are ignored."""

import re
from dataclasses import dataclass
from typing import Final

_TEXT: Final = re.compile(r"^(\S+) » (.*)$", re.DOTALL)
_STEP: Final = re.compile(r"^(\S+) step (\d+) \((llm|tool)\)$")
_TOOL: Final = re.compile(r"^([^/]+)/(.+): (started|completed|failed)$")


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of the model's text, to be appended unchanged to the pieces before it."""

    actor: str
    text: str


@dataclass(frozen=True, slots=True)
class LoopStep:
    """The agent's loop made a step; ``kind`` is ``llm`` or ``tool``."""

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
    """Any other message: shown as it is."""

    text: str


Progress = TextPiece | LoopStep | ToolProgress | ProgressNote


def parse(message: str) -> Progress:
    """Return the meaning of one message; one that fits no pattern is a ``ProgressNote``, never an error."""
    # First: a piece of text may itself look like one of the others.
    if found := _TEXT.match(message):
        return TextPiece(found[1], found[2])
    if found := _STEP.match(message):
        return LoopStep(found[1], int(found[2]), found[3])
    if found := _TOOL.match(message):
        return ToolProgress(f"{found[1]}/{found[2]}", found[3])
    return ProgressNote(message)
