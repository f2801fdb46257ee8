"""The text of one block of an answer as its readers get it, after any number of attempts of a model."""

from dataclasses import dataclass
from typing import Final

BEGINS_AGAIN: Final = "[the answer broke off and begins again]"
"""The line between the texts of two attempts, for readers that cannot take text back."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text to send. With ``voids`` the text of the block so far does not count: the answer begins again."""

    text: str
    voids: bool = False


class RetriedText:
    """Tracks what was sent of a block. Text that an attempt only repeats is not sent a second time.

    ``sent`` is what readers have of the block.
    """

    __slots__ = ("_again", "sent")

    def __init__(self) -> None:
        self.sent = ""
        # The text of this attempt, while it is the beginning of what was sent.
        self._again: str | None = None

    def add(self, text: str, *, rollback: bool = False) -> TextPart | None:
        """Take a piece of text, after a ``rollback`` if it says so; returns what to send of it."""
        if rollback:
            self._again = ""
        if not text:
            return None
        if self._again is None:
            self.sent += text
            return TextPart(text)
        self._again += text
        if self.sent.startswith(self._again):
            return None
        written, self._again = self._again, None
        if written.startswith(self.sent):
            more, self.sent = written[len(self.sent) :], written
            return TextPart(more)
        self.sent = written
        return TextPart(written, voids=True)

    def settle(self) -> TextPart | None:
        """End an attempt: if it wrote less than the one before, what to send in place of that."""
        again, self._again = self._again, None
        if again is None or again == self.sent:
            return None
        self.sent = again
        return TextPart(again, voids=True)
