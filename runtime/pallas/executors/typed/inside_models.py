"""Models, for a handler in a process of its own: the fleet asks them, and knows for whom."""

import asyncio
from collections.abc import Callable
from typing import Any

from pallas.invocation import Completion, LLMResponse
from pallas.llm.budget import revived
from pallas.model import Fault, FaultType
from pallas.model.codec import Undecodable, dumps, fault_of

from .isolated_messages import MAX_ASKS, Answered, Ask, Drop, packed, response_of


class Models:
    """The ``Completer`` of one message; it answers nothing once that is handled.

    ``most`` is how many bytes one question may have.
    """

    def __init__(self, call: int, most: int, say: Callable[[Ask | Drop], None]) -> None:
        self._call = call
        self._most = most
        self._say = say
        self._last = 0
        self._open: dict[int, asyncio.Future[Answered]] = {}
        self._room = asyncio.Semaphore(MAX_ASKS)
        self._over = False

    async def complete(self, wanted: Completion) -> LLMResponse:
        """Have the fleet ask. Raises Fault."""
        async with self._room:
            if self._over:
                raise Fault(FaultType.CONFIG, "complete() is for the time in which a message is handled")
            self._last += 1
            number = self._last
            answer = self._open[number] = asyncio.get_running_loop().create_future()
            messages: tuple[dict[str, Any], ...] = tuple(dict(each) for each in wanted.messages)
            try:
                asked = Ask(self._call, number, wanted.model, messages, dict(wanted.params))
                if len(dumps(packed(asked))) > self._most:
                    raise Fault(FaultType.UPSTREAM, f"a model is asked {self._most:,} bytes at most")
                self._say(asked)
                said = await answer
            except asyncio.CancelledError:
                if not self._over:
                    self._say(Drop(self._call, number))
                raise
            finally:
                self._open.pop(number, None)
        if said.response is None:
            fault = fault_of(said.fault, "the model was not asked, and nobody says why; see the log")
            raise revived(fault)
        try:
            return response_of(said.response)
        except Undecodable as error:
            raise Fault(FaultType.INTERNAL, f"the model's answer cannot be read: {error}") from None

    def answered(self, said: Answered) -> None:
        """What came of a question."""
        future = self._open.get(said.ask)
        if future is not None and not future.done():
            future.set_result(said)

    def close(self) -> None:
        """The message is handled: whoever still waits does so in vain."""
        self._over = True
        for future in self._open.values():
            future.cancel()
