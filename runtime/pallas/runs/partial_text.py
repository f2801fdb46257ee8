"""The text that a run has written so far. It is what a caller gets when the run is cut short."""

from typing import Final

from pallas.model import Event, StepStarted, TextDelta, ToolEvent
from pallas.model.redaction import redact_text

MAX_PARTIAL: Final = 64 * 1024
"""Bytes of text that are kept of a run that is cut short; later text is lost."""
_MORE: Final = "…"


class PartialText:
    """Collects the answer text from the events of one run of ``agent``.

    The texts of separate steps stay separate, as in an answer. Left out: reasoning, text of agents further
    down, and text of an attempt that was rolled back. Holds at most ``MAX_PARTIAL`` characters.
    """

    __slots__ = ("_agent", "_blocks", "_full", "_pieces", "_room")

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._blocks: list[str] = []
        self._pieces: list[str] = []
        self._room = MAX_PARTIAL
        self._full = False

    def hear(self, event: Event) -> None:
        """Take one event. Returns at once."""
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
        """The collected text, masked and at most ``MAX_PARTIAL`` bytes; it ends in … if some is missing."""
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
        accepted = text[: self._room]
        self._pieces.append(accepted)
        self._room -= len(accepted)

    def _end_block(self) -> None:
        if self._pieces:
            self._blocks.append("".join(self._pieces))
            self._pieces.clear()
