"""How many tokens a model's provider counts for a byte, learned from the last requests by least squares."""

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pallas.model.token_estimate import CHARACTERS_A_TOKEN

from .part_size import PartSize

SAMPLES: Final = 64
"""The last requests of a model that count."""
MAX_MODELS: Final = 200
_LEAST: Final = 0.02
_MOST: Final = 3.0
"""Fewest and most tokens of a byte that are believed."""
_TOGETHER: Final = 0.002
"""How strongly prose and structure are held to one ratio while requests do not tell them apart."""


@dataclass(frozen=True, slots=True)
class TokenRatio:
    """Tokens of a byte of prose, and of a byte of names and values."""

    prose: float = 1 / CHARACTERS_A_TOKEN
    structure: float = 1 / CHARACTERS_A_TOKEN

    def tokens(self, size: PartSize) -> float:
        """The estimated tokens of a part, without its pictures."""
        return self.prose * size.prose + self.structure * size.structure


DEFAULT_RATIO: Final = TokenRatio()


class TokenRatios:
    """Ratios by provider and model. Changed in one event loop; ``ratio`` may be read in any thread."""

    def __init__(self) -> None:
        self._samples: OrderedDict[tuple[str, str], deque[tuple[float, float]]] = OrderedDict()
        self._found: dict[tuple[str, str], TokenRatio] = {}
        self._last: dict[str, TokenRatio] = {}

    def ratio(self, model: str) -> TokenRatio:
        """The ratio of a model at the provider that was asked last, else the default."""
        return self._last.get(model, DEFAULT_RATIO)

    def of(self, provider: str, model: str) -> TokenRatio:
        """The ratio of a model at a provider, else the default."""
        return self._found.get((provider, model), DEFAULT_RATIO)

    def learn(self, provider: str, model: str, size: PartSize, tokens: float) -> None:
        """Take in a request whose provider counted ``tokens``, without pictures."""
        key = provider, model
        if tokens > 0 and size.prose + size.structure > 0:
            samples = self._samples.setdefault(key, deque(maxlen=SAMPLES))
            samples.append((size.prose / tokens, size.structure / tokens))
            self._samples.move_to_end(key)
            self._found[key] = self._last[model] = _fitted(samples)
            while len(self._samples) > MAX_MODELS:
                old, _ = self._samples.popitem(last=False)
                del self._found[old]
                self._last.pop(old[1], None)


def _fitted(samples: Iterable[tuple[float, float]]) -> TokenRatio:
    """The ratio with the smallest squares of relative errors.

    A sample is bytes a token. Its unknowns are the mean of both ratios and half their difference; the latter
    is kept small, so that requests of one mix give both the same.
    """
    ss = sd = dd = s1 = d1 = 0.0
    for prose, structure in samples:
        plus, minus = prose + structure, prose - structure
        ss, sd, dd = ss + plus * plus, sd + plus * minus, dd + minus * minus
        s1, d1 = s1 + plus, d1 + minus
    dd += _TOGETHER * ss
    determinant = ss * dd - sd * sd
    mean = (s1 * dd - d1 * sd) / determinant
    half = (d1 * ss - s1 * sd) / determinant
    if _LEAST <= mean + half <= _MOST and _LEAST <= mean - half <= _MOST:
        return TokenRatio(mean + half, mean - half)
    one = min(_MOST, max(_LEAST, s1 / ss))
    return TokenRatio(one, one)
