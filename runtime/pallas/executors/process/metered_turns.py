"""The meter of a run whose agent is in a process of its own: only the fleet has the accounts."""

import asyncio
from collections.abc import Callable
from typing import Any

from pallas.executors.ipc.child_questions import QuestionsToFleet
from pallas.limits.limit_reached import LimitReached, revived
from pallas.limits.meter import CallMeter, ModelCall, ModelMeter, ModelUse
from pallas.model import Fault
from pallas.model.spend_limits import ANY, SpendLimits

from .agent_messages import LimitQuestion, LimitSettled


class TurnReservations:
    """The fleet's side: what a turn has reserved, by the numbers of its questions."""

    def __init__(self, meter: ModelMeter) -> None:
        self._meter = meter
        self._open: dict[int, CallMeter] = {}

    async def reserve(self, number: int, call: ModelCall) -> int:
        """Reserve for a question to a model, and return its number. Raises LimitReached, and Fault."""
        self._open[number] = await self._meter.reserve(call)
        return number

    def settle(self, number: int, use: ModelUse) -> None:
        """Count what such a question used."""
        if (reserved := self._open.pop(number, None)) is not None:
            reserved.settle(use)

    def end(self) -> None:
        """The turn is over: what its process says no more of counts with its estimate."""
        for number in tuple(self._open):
            self.settle(number, ModelUse())


class MeterInFleet:
    """The child's side, as ``ModelMeter``. ``send`` sends a message to the fleet."""

    def __init__(self, call: int, questions: QuestionsToFleet, send: Callable[[Any], None]) -> None:
        self._call = call
        self._questions = questions
        self._send = send
        self.reached: LimitReached | None = None

    async def reserve(self, call: ModelCall) -> CallMeter:
        """As ``ModelMeter``."""
        number = 0

        def question(given: int) -> LimitQuestion:
            nonlocal number
            number = given
            return LimitQuestion(self._call, given, call)

        try:
            await self._questions.ask(question)
        except asyncio.CancelledError:
            self._settle(number, ModelUse(sent=False, answered=False))
            raise
        except Fault as fault:
            found = revived(fault)
            if isinstance(found, LimitReached):
                self.reached = found
            raise found from None
        return _ReservedInFleet(lambda use: self._settle(number, use))

    async def remaining(self) -> SpendLimits:
        """As ``ModelMeter``: not known here, where no remote agent is asked."""
        return ANY

    def _settle(self, number: int, use: ModelUse) -> None:
        self._send(LimitSettled(self._call, number, use))


class _ReservedInFleet:
    def __init__(self, settle: Callable[[ModelUse], None]) -> None:
        self._settle = settle

    def settle(self, use: ModelUse) -> None:
        """As ``CallMeter``."""
        self._settle(use)
