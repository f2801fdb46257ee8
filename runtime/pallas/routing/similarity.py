"""Compares texts by their distinctive words, well enough to find the example that a question resembles.

Nothing is learned and no model is asked: the same texts always give the same scores.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

MAX_READ: Final = 8_000
"""Characters of a text that are read. Its subject is usually at the beginning."""
# Words that occur in any question, in the two most frequent languages of examples.
_SAID_ANYWHERE: Final = """
a about an and any are as at be been but by can could did do does for from had has have help how i
if in into is it its just let like me my need no not of on or our out please she should so some than
that the their them then there these they this to up us want was we were what when where which who
whom whose why will with would you your aber als am an auf aus bei bin bis bitte da das dass dem den
der des die doch du ein eine einem einen einer er es für hat haben ich ihr im in ist kann kannst man
mein meine mich mir mit nach nicht noch nur ob oder sich sie sind so über um und uns von vom war was
wenn wer wie wird wir wo zu zum zur
"""
_COMMON: Final = frozenset(_SAID_ANYWHERE.split())
_ENDINGS: Final = (
    "ations", "ation", "ingly", "ings", "ing", "ers", "ies", "ied", "er", "es", "ed", "en", "s", "e",
)  # fmt: skip
_SHORTEST: Final = 3
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORD: Final = re.compile(r"[^\W_]+")
# Scripts without spaces between words: pairs of characters are used in place of words.
_UNSPACED: Final = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]{2,}")


def words(text: str) -> frozenset[str]:
    """The stems of a text's words in lower case, without the most common words."""
    found: set[str] = set()
    for word in _WORD.findall(_CAMEL.sub(" ", text[:MAX_READ]).lower()):
        if _UNSPACED.fullmatch(word):
            found.update(word[at : at + 2] for at in range(len(word) - 1))
        elif word not in _COMMON:
            found.add(_stem(word))
    return frozenset(found)


class Similarity:
    """Compares questions with ``texts``. A word weighs more the fewer texts have it."""

    def __init__(self, texts: Iterable[Collection[str]]) -> None:
        known = [frozenset(text) for text in texts]
        self._count = len(known)
        counted = Counter(word for text in known for word in text)
        self._weights = {word: self._rarity(times) for word, times in counted.items()}
        self._unknown = self._rarity(0)
        self._lengths = {text: self._measure(text) for text in known}

    def of(self, question: Collection[str], text: Collection[str]) -> float:
        """The similarity from 0, nothing in common, to 1, the same words."""
        question, text = frozenset(question), frozenset(text)
        if not (common := question & text):
            return 0.0
        shared = sum(self._weights.get(word, self._unknown) for word in common)
        return shared / (self._length(question) * self._length(text))

    def best(self, question: Collection[str], texts: Sequence[Collection[str]]) -> tuple[float, int]:
        """The highest similarity to one of ``texts``, and its index: ``(0.0, -1)`` if there is none."""
        found = [(self.of(question, text), -at) for at, text in enumerate(texts)]
        score, at = max(found, default=(0.0, 1))
        return (score, -at) if score else (0.0, -1)

    def _rarity(self, times: int) -> float:
        return math.log(1 + (self._count + 1) / (1 + times)) ** 2

    def _length(self, text: frozenset[str]) -> float:
        known = self._lengths.get(text)
        return self._measure(text) if known is None else known

    def _measure(self, text: frozenset[str]) -> float:
        return math.sqrt(sum(self._weights.get(word, self._unknown) for word in text))


def _stem(word: str) -> str:
    """The word without its ending, so that ``tests``, ``tested`` and ``testing`` are one word."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            word = word.removesuffix(ending)
            break
    return word[:-1] if len(word) > _SHORTEST and word[-1] == word[-2] else word
