"""What an isolated handler asks of models while it handles one message: asked here, answered there."""

import asyncio
import logging
from collections.abc import Callable

from pallas.invocation import Completer, Completion
from pallas.model import Fault, FaultType
from pallas.model.codec import Undecodable

from .isolated_messages import MAX_ASKS, Answered, Ask, response_fields

log = logging.getLogger(__name__)


class Asks:
    """The questions of one message that are open. Whose they are was settled before: ``completer`` knows."""

    def __init__(self, agent: str, completer: Completer, say: Callable[[Answered], None]) -> None:
        self._agent = agent
        self._completer = completer
        self._say = say
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._last = 0
        self._over = False

    def ask(self, asked: Ask) -> None:
        """Ask, and say what comes of it. Raises Undecodable for a number that was used."""
        if asked.ask <= self._last:
            raise Undecodable("it asks a model under a number that it used")
        self._last = asked.ask
        if self._over:
            return
        if len(self._tasks) >= MAX_ASKS:
            many = Fault(FaultType.UPSTREAM, f"a handler asks {MAX_ASKS} models at a time at most")
            self._say(Answered(asked.call, asked.ask, fault=many.to_body()))
            return
        task = asyncio.create_task(self._ask(asked), name=f"{self._agent}: model")
        self._tasks[asked.ask] = task
        task.add_done_callback(lambda _: self._tasks.pop(asked.ask, None))

    def drop(self, ask: int) -> None:
        """Nobody waits for that answer any more."""
        if (task := self._tasks.get(ask)) is not None:
            task.cancel()

    def close(self) -> None:
        """The message is handled: nothing is asked for it any more."""
        self._over = True
        for task in self._tasks.values():
            task.cancel()

    async def _ask(self, asked: Ask) -> None:
        wanted = Completion(asked.model, asked.messages, asked.params)
        try:
            response = await self._completer.complete(wanted)
        except Fault as fault:
            self._say(Answered(asked.call, asked.ask, fault=fault.to_body()))
        except Exception as error:
            log.error("%s: a model could not be asked", self._agent, exc_info=error)
            text = "the model could not be asked; the log has the details"
            failed = Fault(FaultType.INTERNAL, text)
            self._say(Answered(asked.call, asked.ask, fault=failed.to_body()))
        else:
            self._say(Answered(asked.call, asked.ask, response_fields(response)))
