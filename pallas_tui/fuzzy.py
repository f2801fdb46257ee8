"""Finding things by a few letters of their names, fast enough for thousands at each keystroke."""

from typing import Final

_LONGEST: Final = 200
"""Characters of a query, and of a name, that are looked at."""


class FuzzyQuery:
    """A typed query, as words. All must match a name, whole or as letters in their order.

    Words found whole count more than scattered letters, those at the start of a word of the name more than
    those inside one, and short names more than long ones.
    """

    def __init__(self, text: str) -> None:
        self.words = tuple(text[:_LONGEST].lower().split())

    def score(self, name: str, kind: str = "") -> float:
        """From 0 (no match) to 1. A word may also be the beginning of ``kind``, when others are there too."""
        if not self.words:
            return 0.0
        name = name[:_LONGEST].lower()
        total = 0.0
        for word in self.words:
            at = name.find(word)
            if at >= 0:
                begins = at == 0 or not name[at - 1].isalnum() or f" {word}" in name
                total += (1.0 if begins else 0.7) + (0.2 if at == 0 else 0.0)
            elif kind and kind.startswith(word) and len(self.words) > 1:
                total += 0.3
            elif spans := _scattered(word, name):
                total += 0.4 / len(spans)
            else:
                return 0.0
        share = sum(map(len, self.words)) / max(1, len(name))
        return min(1.0, total / len(self.words) / 1.2 * 0.9 + min(1.0, share) * 0.1)

    def spans(self, name: str) -> list[tuple[int, int]]:
        """The parts of ``name`` that matched, as start and end."""
        lower = name[:_LONGEST].lower()
        if len(lower) != len(name[:_LONGEST]):  # a letter whose small form has another length
            return []
        spans: list[tuple[int, int]] = []
        for word in self.words:
            at = lower.find(word)
            spans += [(at, at + len(word))] if at >= 0 else _scattered(word, lower)
        return spans


def _scattered(word: str, name: str) -> list[tuple[int, int]]:
    """Where the letters of ``word`` stand in ``name`` one after the other, neighbours joined."""
    spans: list[tuple[int, int]] = []
    at = 0
    for letter in word:
        found = name.find(letter, at)
        if found < 0:
            return []
        if spans and spans[-1][1] == found:
            spans[-1] = (spans[-1][0], found + 1)
        else:
            spans.append((found, found + 1))
        at = found + 1
    # Letters that are all over the place match everything and mean nothing.
    return spans if len(spans) <= max(1, len(word) // 2 + 1) else []
