"""What a run asks before each question to a model, and tells after it."""

from collections import OrderedDict
from dataclasses import dataclass
from math import ceil
from typing import Final, Protocol

from pallas.model import StepUsage
from pallas.model.spend_limits import SpendLimits
from pallas.model.token_estimate import CHARACTERS_A_TOKEN, IMAGE_TOKENS

from .limit_reached import LimitReached

MAX_OUTPUT: Final = 16_384
"""Tokens that a model may write at once where neither the request nor anybody else says it."""
MARGIN: Final = 2
"""How many times its estimate the text of a question may have, in tokens."""
_LEAST_SIZE: Final = 200
_LEAST_RATIO: Final = 0.02
_MOST_RATIO: Final = 3.0
"""Fewest and most tokens of a character that are believed: some providers count what their own tools read."""
_MAX_MODELS: Final = 256
_NO_USAGE: Final = StepUsage()


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A question to a model before it is asked: the characters and pictures that are sent."""

    provider: str
    model: str  # empty for another program, whose models are not known
    size: int = 0
    images: int = 0
    max_output: int = 0  # tokens that it may write; 0 if nothing says it
    url: str = ""  # where it is asked


@dataclass(frozen=True, slots=True)
class ModelUse:
    """What became of a question: what its provider counted, and whether it was sent and answered."""

    usage: StepUsage = _NO_USAGE
    model: str = ""  # as the request named it, like ``url``; empty as in the call
    url: str = ""
    sent: bool = True
    answered: bool = True
    written: int = 0  # characters of the answer
    cost: int | None = None  # as another program says it, in nano-US-dollars


class CallMeter(Protocol):
    """A reservation for one question."""

    def settle(self, use: ModelUse) -> None:
        """Say what became of it; only the first call counts. Returns at once."""
        ...


class ModelMeter(Protocol):
    """Meters the questions of a run, and of what works for it. ``reached`` is the limit it met last."""

    reached: LimitReached | None

    async def reserve(self, call: ModelCall) -> CallMeter:
        """Reserve what a question may use; may wait for others to end. Raises LimitReached, and Fault."""
        ...

    async def remaining(self) -> SpendLimits:
        """The least that remains of its limits in each dimension. Raises Fault."""
        ...


class TokenRatios:
    """How many tokens a character has, by model, as its provider counted them last."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, float] = OrderedDict()

    def tokens(self, call: ModelCall) -> int:
        """The estimated tokens of a question."""
        ratio = self._known.get(call.model, 1 / CHARACTERS_A_TOKEN)
        return ceil(call.size * ratio) + call.images * IMAGE_TOKENS

    def learn(self, call: ModelCall, use: ModelUse) -> None:
        """Go by the count of a question that was answered."""
        counted = use.usage.input
        if counted and call.size >= _LEAST_SIZE and not call.images:
            ratio = counted / call.size
            if not _LEAST_RATIO <= ratio <= _MOST_RATIO:
                return
            self._known[call.model] = ratio
            self._known.move_to_end(call.model)
            if len(self._known) > _MAX_MODELS:
                self._known.popitem(last=False)
