"""What a run has written so far: all that is left of it when it is cut short."""

from typing import Final

from pallas.model import Event, StepStarted, TextDelta, ToolEvent
from pallas.telemetry.log import redact_text

MAX_PARTIAL: Final = 64 * 1024
"""Bytes of text that are kept of a run that is cut short; what it wrote after them is lost."""
_MORE: Final = "…"


class PartialText:
    """Hears the events of one run of ``agent`` and keeps the text that would be its answer.

    The texts of its steps stand apart, as in an answer. What a model thought, what agents further down wrote
    and what an attempt took back are not in it. Holds ``MAX_PARTIAL`` characters at most, whatever comes.
    """

    __slots__ = ("_agent", "_blocks", "_full", "_pieces", "_room")

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._blocks: list[str] = []
        self._pieces: list[str] = []
        self._room = MAX_PARTIAL
        self._full = False

    def hear(self, event: Event) -> None:
        """Take one event; returns at once."""
        if isinstance(event, TextDelta):
            if event.reasoning or event.actor not in ("", self._agent):
                return
            if event.rollback:
                self._room += sum(map(len, self._pieces))
                self._pieces.clear()
                self._full = False
            self._add(event.text)
        elif (isinstance(event, StepStarted) and event.actor == self._agent) or (
            isinstance(event, ToolEvent) and event.phase == "started" and not event.nested
        ):
            self._end_block()

    def text(self) -> str:
        """All of it, masked and at most ``MAX_PARTIAL`` bytes; it ends in … where some is missing."""
        whole = redact_text("\n\n".join(block for block in (*self._blocks, "".join(self._pieces)) if block))
        raw = whole.encode()
        if len(raw) <= MAX_PARTIAL and not self._full:
            return whole
        room = MAX_PARTIAL - len(_MORE.encode())
        return raw[:room].decode(errors="ignore") + _MORE

    def _add(self, text: str) -> None:
        if not text or self._full:
            return
        self._full = len(text) > self._room
        kept = text[: self._room]
        self._pieces.append(kept)
        self._room -= len(kept)

    def _end_block(self) -> None:
        if self._pieces:
            self._blocks.append("".join(self._pieces))
            self._pieces.clear()
