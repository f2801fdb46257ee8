"""Questions: requests from a child process to its fleet while a call is under way there.

The child numbers its questions in ascending order and may drop one; the fleet cancels a question when its
call is over.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context
from itertools import count
from typing import Any

from pallas.model import Fault, FaultType
from pallas.model.codec import Undecodable, fault_of

from .child_messages import DropQuestion, FormAnswer

log = logging.getLogger(__name__)


class ChildQuestions:
    """The fleet's side: answers each question in a task, which ends with its call at the latest."""

    def __init__(self, name: str, send: Callable[[FormAnswer], None]) -> None:
        self._name = name
        self._send = send
        self._open: dict[int, tuple[int, asyncio.Task[None]]] = {}
        self._last = 0

    def count(self, call: int | None = None) -> int:
        """Return how many questions are open, of one call or of all."""
        return sum(call in (None, of) for of, _ in self._open.values())

    def answer(self, question: int, call: int, work: Callable[[], Awaitable[Any]]) -> None:
        """Send what ``work`` returns, or its Fault. Raises Undecodable for a number already used."""
        self._take(question)
        # In an empty context: the channel is read on behalf of no run.
        task = asyncio.create_task(
            self._answer(question, work), name=f"{self._name}: question", context=Context()
        )
        self._open[question] = (call, task)
        task.add_done_callback(lambda _: self._open.pop(question, None))

    def refuse(self, question: int, fault: Fault) -> None:
        """Answer with ``fault`` at once. Raises Undecodable for a number already used."""
        self._take(question)
        self._send(FormAnswer(question, fault=fault.to_body()))

    def cancel(self, question: int) -> None:
        """Cancel a question that the child dropped."""
        if (found := self._open.get(question)) is not None:
            found[1].cancel()

    def end(self, call: int | None = None) -> None:
        """Cancel the questions of a call that is over, or all of them."""
        for of, task in list(self._open.values()):
            if call in (None, of):
                task.cancel()

    def _take(self, question: int) -> None:
        if question <= self._last:
            raise Undecodable("it asks a question under a number that it used")
        self._last = question

    async def _answer(self, question: int, work: Callable[[], Awaitable[Any]]) -> None:
        try:
            result = await work()
        except Fault as fault:
            self._send(FormAnswer(question, fault=fault.to_body()))
        except asyncio.CancelledError:
            cancelled = Fault(FaultType.TRANSPORT, "the question was cancelled")
            self._send(FormAnswer(question, fault=cancelled.to_body()))
            raise
        except Exception:
            log.exception("%s: a question of its process could not be answered", self._name)
            failed = Fault(FaultType.INTERNAL, "it could not be asked; the log has the details")
            self._send(FormAnswer(question, fault=failed.to_body()))
        else:
            self._send(FormAnswer(question, result))


class QuestionsToFleet:
    """The child's side. ``send`` sends a message to the fleet."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send
        self._numbers = count(1)
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._is_closed = False

    async def ask(self, question: Callable[[int], Any]) -> Any:
        """Send the message that ``question`` makes of a number, and return the answer. Raises Fault."""
        if self._is_closed:
            raise _fleet_is_gone()
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        message = question(number)
        self._open[number] = answer
        try:
            self._send(message)
            return await answer
        except asyncio.CancelledError:
            self._send(DropQuestion(number))
            raise
        finally:
            del self._open[number]

    def resolve(self, answer: FormAnswer) -> None:
        """Hand the fleet's answer to the code that waits for it."""
        future = self._open.get(answer.question)
        if future is None or future.done():
            return
        if answer.fault is not None:
            future.set_exception(fault_of(answer.fault, "it failed and did not say how; see the log"))
        else:
            future.set_result(answer.result)

    def close(self) -> None:
        """Fail every question, now and from now on: the fleet is gone, or has stopped listening."""
        self._is_closed = True
        for future in self._open.values():
            if not future.done():
                future.set_exception(_fleet_is_gone())


def _fleet_is_gone() -> Fault:
    return Fault(FaultType.TRANSPORT, "the fleet has ended; it cannot be asked")
