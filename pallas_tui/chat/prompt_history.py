"""The prompts that were sent, and a walk through them."""

from typing import Final

HISTORY_LIMIT: Final = 200


class PromptHistory:
    """The prompts that were sent, newest last, at most 200; ``older`` and ``newer`` walk through them."""

    def __init__(self, limit: int = HISTORY_LIMIT) -> None:
        self._limit = limit
        self._sent: list[str] = []

    def add(self, text: str) -> None:
        """Add ``text``; a repeat of the last prompt is kept once."""
        if text.strip() and self._sent[-1:] != [text]:
            self._sent.append(text)
            del self._sent[: -self._limit]

    def walk(self) -> "Walk":
        """Return a walk from the draft towards older prompts."""
        return Walk(tuple(self._sent))


class Walk:
    """One walk through the history. Its newest end is the draft it began with."""

    def __init__(self, sent: tuple[str, ...]) -> None:
        self._sent = sent
        self._at = len(sent)
        self._draft = ""

    def older(self, current: str) -> str | None:
        """Return the prompt before, None at the oldest. ``current`` is kept when it is the draft."""
        if self._at == len(self._sent):
            self._draft = current
        if self._at == 0:
            return None
        self._at -= 1
        return self._sent[self._at]

    def newer(self) -> str | None:
        """Return the prompt after, the draft at the end, None when already there."""
        if self._at == len(self._sent):
            return None
        self._at += 1
        return self._draft if self._at == len(self._sent) else self._sent[self._at]
