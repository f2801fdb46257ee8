"""Masks secrets in texts of a conversation that had them before, also when they are known no more.

A caller's token is forgotten with its run, but a text in which a model or a caller repeated it stays in the
conversation and is sent with each later question. Only fingerprints are kept, with a key of this process, and
lost with it.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from secrets import token_bytes
from typing import Final

from pallas.model.redaction import MASK, Spellings

MAX_SCOPES: Final = 1_000
MAX_SECRETS: Final = 16
"""Fingerprints of one conversation; the oldest are dropped."""
_WORD: Final = re.compile(rb"[A-Za-z0-9._~+/=-]{6,}")
"""What a bearer token consists of (RFC 6750)."""
_INSIDE: Final = re.compile(rb"[._~+/=-]+")
"""Behind these a token may begin in the middle of such a word: ``token=...``."""

type _Mark = tuple[int, bytes]


class ForgottenSecrets:
    """Fingerprints of the secrets in texts, by conversation. One event loop only."""

    def __init__(self) -> None:
        self._key = token_bytes(32)
        self._scopes: OrderedDict[str, OrderedDict[_Mark, None]] = OrderedDict()

    def note(self, scope: str, text: str, known: Spellings) -> None:
        """Take in a text of a conversation, not masked yet; ``known`` are the spellings of secrets now."""
        for spelling in known.found(text):
            word = spelling.encode()
            if _WORD.fullmatch(word) is not None:
                marks = self._scopes.setdefault(scope, OrderedDict())
                marks[len(word), self._digest(word)] = None
                marks.move_to_end((len(word), self._digest(word)))
                while len(marks) > MAX_SECRETS:
                    marks.popitem(last=False)
                self._scopes.move_to_end(scope)
        while len(self._scopes) > MAX_SCOPES:
            self._scopes.popitem(last=False)

    def masked(self, scope: str, text: bytes) -> bytes:
        """A text of the conversation without the secrets that earlier ones had."""
        marks = self._scopes.get(scope)
        if not marks:
            return text
        lengths = {length for length, _ in marks}
        pieces, at = [], 0
        for start, end in self._found(text, marks, lengths):
            pieces += [text[at:start], MASK.encode()]
            at = end
        return b"".join((*pieces, text[at:])) if at else text

    def masked_text(self, scope: str, text: str) -> str:
        """As ``masked``."""
        if scope not in self._scopes:
            return text
        return self.masked(scope, text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def _found(
        self, text: bytes, marks: OrderedDict[_Mark, None], lengths: set[int]
    ) -> Iterator[tuple[int, int]]:
        """The places of secrets, in order, without overlaps."""
        longest_first, done = sorted(lengths, reverse=True), 0
        for word in _WORD.finditer(text):
            starts = [word.start(), *(inside.end() for inside in _INSIDE.finditer(text, *word.span()))]
            for start in starts:
                if start < done:
                    continue
                for length in longest_first:
                    end = start + length
                    if end <= word.end() and (length, self._digest(text[start:end])) in marks:
                        done = end
                        yield start, end
                        break

    def _digest(self, word: bytes) -> bytes:
        return blake2b(word, key=self._key, digest_size=16).digest()
