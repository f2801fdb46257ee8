"""A way to ask models that a handler in this process has while it handles its message, and no longer.

A task of the handler's own may outlive the message: what that asks would be for nobody, and in nobody's time.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from pallas.invocation import Completer, Completion, LLMResponse
from pallas.model import Fault, FaultType


class Lending:
    """Who was lent a way to ask models, of one agent, by frame."""

    def __init__(self) -> None:
        self._lent: dict[str, set[_Lent]] = {}

    @contextmanager
    def lent(self, frame: str, completer: Completer | None) -> Iterator[Completer | None]:
        """For whoever handles a message of that frame in this block; None where there is no way to ask."""
        if completer is None:
            yield None
            return
        lent = _Lent(completer)
        self._lent.setdefault(frame, set()).add(lent)
        try:
            yield lent
        finally:
            lent.end()
            if others := self._lent.get(frame):
                others.discard(lent)
                if not others:
                    del self._lent[frame]

    def drop(self, frame: str) -> None:
        """The frame is over, whether or not a handler that was cancelled goes on."""
        for lent in self._lent.pop(frame, ()):
            lent.end()


class _Lent:
    """Asks as another one does, until ``end``; then what is under way is over as well."""

    __slots__ = ("_asks", "_under_way")

    def __init__(self, asks: Completer) -> None:
        self._asks: Completer | None = asks
        self._under_way: set[asyncio.Timeout] = set()

    async def complete(self, wanted: Completion) -> LLMResponse:
        """Raises Fault."""
        asks = self._asks
        if asks is None:
            _late()
        try:
            async with asyncio.timeout(None) as scope:
                self._under_way.add(scope)
                try:
                    return await asks.complete(wanted)
                finally:
                    self._under_way.discard(scope)
        except TimeoutError:
            if not scope.expired():
                raise
            _late()

    def end(self) -> None:
        """The message is handled."""
        self._asks = None
        for scope in self._under_way:
            scope.reschedule(asyncio.get_running_loop().time())


def _late() -> NoReturn:
    raise Fault(
        FaultType.PROTOCOL,
        "complete(): the message is handled; models are asked only while it is",
    )
