"""What a handler holds to ask a model, and what it sees of a failure: nothing of its own prompt (HC-36)."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final
from weakref import WeakKeyDictionary

from pallas.invocation import Completer, Completion, LLMResponse
from pallas.model import Fault

log = logging.getLogger(__name__)

Ask = Callable[[Completion], Awaitable[LLMResponse]]

# So many characters that a line of the prompt begins with are a quotation of it.
_QUOTED: Final = 12
# And so many from the middle of one.
_PIECE: Final = 24
_ways: Final[WeakKeyDictionary[object, Ask]] = WeakKeyDictionary()


def completer_of(ask: Ask) -> Completer:
    """A completer that knows nothing but that there is a way to ask."""
    completer = _Completer()
    _ways[completer] = ask
    return completer


class _Completer:
    __slots__ = ("__weakref__",)

    async def complete(self, wanted: Completion) -> LLMResponse:
        """Raises Fault."""
        return await _ways[self](wanted)


def shown(fault: Fault, prompt: str) -> Fault:
    """The fault as the handler gets it: what it came of holds the request, and a provider may quote it."""
    if fault.__cause__ is not None:
        log.debug("a model could not be asked", exc_info=fault)
    fault = fault.with_traceback(None)
    fault.__cause__ = fault.__context__ = None
    if not _quotes(fault.message, prompt):
        return fault
    log.warning("a model's provider quotes what it was sent: %s", fault.message)
    return Fault(
        fault.type,
        "the model's provider refused the request; the log has the details",
        retryable=fault.retryable,
        code=fault.code,
        data=fault.data,
    )


def _quotes(message: str, prompt: str) -> bool:
    lines = [line.strip() for line in prompt.splitlines() if len(line.strip()) >= _QUOTED]
    if any(line[:_QUOTED] in message for line in lines):
        return True
    told, said = " ".join(prompt.split()), " ".join(message.split())
    return any(said[at : at + _PIECE] in told for at in range(len(said) - _PIECE + 1))
