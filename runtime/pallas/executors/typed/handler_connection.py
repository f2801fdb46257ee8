"""The fleet's side of an isolated handler's process: messages for the handler, and what it says of them."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from pallas.asking import Asker
from pallas.asking import asker as current_asker
from pallas.executors.ipc.child_connection import ChildConnection, PendingCall
from pallas.executors.ipc.child_messages import CallCancelled, FormQuestion
from pallas.executors.ipc.form_questions import answer_form
from pallas.invocation import Completer, Completion
from pallas.messaging.messaging_port import Delivery
from pallas.model import Fault, FaultType
from pallas.model.codec import Undecodable
from pallas.payloads import PayloadType
from pallas.telemetry.trace_context import RunTrace, current_run, working_for

from ..ipc.child_process import InterpreterProcess
from .handler_child_messages import (
    FROM_HANDLER,
    MAX_MODEL_QUESTIONS,
    FrameEnded,
    HandleMessage,
    HandlerFailed,
    HandlerLoaded,
    HandlerNotLoaded,
    HandlerReturned,
    HandlerSetup,
    HandlingBegun,
    LoadHandler,
    ModelQuestion,
    PayloadClass,
    encode_response,
    max_frame_of,
)
from .handler_limits import oversee
from .handler_reports import FrameRate, HandlerRecords, PayloadClasses

CANCEL_TIMEOUT_S: Final = 1.0
"""For a cancelled handler to end, before its process is ended with all messages in it."""
_NO_MEMORY: Final = "ran out of memory"

Outcome = HandlerReturned | HandlerFailed | CallCancelled


class HandlerProcessEnded(Fault):
    """The process ended before it answered.

    ``can_repeat``: the handler had not begun with the message and the fleet itself ended the process, so
    another process may get the message.
    """

    def __init__(self, kind: FaultType, message: str, data: Mapping[str, Any], *, can_repeat: bool) -> None:
        super().__init__(kind, message, data=data)
        self.can_repeat = can_repeat


@dataclass(slots=True, eq=False)
class HandlerCall(PendingCall):
    """A call that is answered by a message of one of ``kinds``."""

    kinds: tuple[type, ...] = (CallCancelled,)
    completer: Completer | None = None
    trace: RunTrace | None = field(default_factory=current_run)
    people: Asker | None = field(default_factory=current_asker.get)
    has_begun: bool = False
    """The handler was called."""
    is_cancelled: bool = False


class HandlerConnection(ChildConnection[HandlerCall]):
    """The process of an isolated handler, which the fleet does not trust.

    ``on_end`` gets how it ended and whether another process may take its place: the fleet ended it, or it ran
    out of memory. ``memory`` is how many bytes it may have, 0 for any.
    """

    reaction_timeout_s = 1.0

    def __init__(
        self, name: str, process: InterpreterProcess, memory: int, on_end: Callable[[str, bool], None]
    ) -> None:
        super().__init__(name, process, FROM_HANDLER)
        self.classes = PayloadClasses()
        self._report_end = on_end
        self._frames: set[str] = set()
        self._records = HandlerRecords(name)
        self._rate = FrameRate()
        overseer = self._start(oversee(process.keeper, memory, self.has_calls.wait, self.end), "limits")
        process.ended.add_done_callback(lambda _: overseer.cancel())

    async def load(
        self, setup: HandlerSetup
    ) -> tuple[HandlerLoaded, PayloadType] | tuple[HandlerNotLoaded, None]:
        """Have the process import its code. Raises Fault."""
        self.send(setup)
        call = self._add(HandlerCall(self._next_number(), kinds=(HandlerLoaded, HandlerNotLoaded)))
        self.send(LoadHandler(call.number))
        try:
            await asyncio.wait({call.answer})
        finally:
            self.forget(call)
        answer: HandlerLoaded | HandlerNotLoaded = call.answer.result()
        if isinstance(answer, HandlerNotLoaded):
            return answer, None
        self.is_loaded = True
        self.process.channel.most = max_frame_of(setup.bytes)  # its sources, which are longer, have come
        try:
            return answer, self.classes.add(str(answer.payload.get("key", "")), answer.payload, 1)
        except Undecodable as error:
            self.end(f"was ended, because {error}", broke_protocol=True)
            raise self._fault(None) from None

    async def handle(self, delivery: Delivery) -> Outcome:
        """Have a message handled; cancelling this cancels the handler. Raises HandlerProcessEnded."""
        payload, kinds = delivery.payload, (HandlerReturned, HandlerFailed, CallCancelled)
        call = self._add(HandlerCall(self._next_number(), kinds=kinds, completer=delivery.completer))
        self._frames.add(delivery.frame)
        self.send(
            HandleMessage(
                call.number,
                payload.key,
                payload.name,
                payload.xml.decode(),
                delivery.metadata,
                delivery.frame,
                delivery.completer is not None,
            )
        )
        try:
            await asyncio.wait({call.answer})
        except asyncio.CancelledError:
            call.is_cancelled = True
            why = (
                f"was ended, because a message in it did not end within {CANCEL_TIMEOUT_S:g} s of its cancel"
            )
            self._start(self.cancel(call, CANCEL_TIMEOUT_S, why), "cancel")
            raise
        else:
            self.forget(call)
        finally:
            self.questions.end(call.number)
        outcome: Outcome = call.answer.result()
        return outcome

    def end_frame(self, frame: str) -> None:
        """Have the process drop the scratch storage of a frame."""
        if frame in self._frames:
            self._frames.discard(frame)
            self.send(FrameEnded(frame))

    def _new_call(self) -> HandlerCall:
        return self._add(HandlerCall(self._next_number()))

    @property
    def _can_be_replaced(self) -> bool:
        is_ours = bool(self._ended_by_fleet) or self._ended == _NO_MEMORY
        return is_ours and not self._is_other_release

    def _fault(self, call: HandlerCall | None) -> Fault:
        how = self.how_it_ended
        kind, hint = FaultType.TRANSPORT, "; try again in a moment"
        if self._is_other_release:
            kind, hint = FaultType.CONFIG, ""
        elif self._broke_protocol:
            kind, hint = FaultType.PROTOCOL, ""
        return HandlerProcessEnded(
            kind,
            f"its process {how}{hint}",
            {"agent": self.name, "ended": how},
            can_repeat=self._can_be_replaced and not (call is not None and call.has_begun),
        )

    def _on_end(self, reason: str) -> None:
        self._report_end(reason, self._can_be_replaced)

    def _on_record(self, record: Mapping[str, Any]) -> None:
        self._records.log(record)

    def _on_cancelled(self, message: CallCancelled) -> None:
        self._answer(message.call, message)

    def _is_flooding(self) -> bool:
        return self._rate.count() or self._records.is_flooded

    def _on_message(self, message: Any) -> None:
        match message:
            case HandlingBegun():
                self._expected(message.call).has_begun = True
            case PayloadClass():
                self.classes.add(message.key, message.described, self.calls_made)
            case ModelQuestion():
                self._ask_model(message)
            case FormQuestion():
                call = self._expected(message.call)
                own = replace(message, server="", call_id="")  # it asks for itself alone
                answer_form(self.questions, own, None if call.is_cancelled else call.people)
            case _:
                self._answer(message.call, message)

    def _expected(self, number: int) -> HandlerCall:
        """The call of that number. Raises Undecodable for one that was not made or is answered."""
        if (call := self._find(number)) is None:
            raise Undecodable("it answers a question that it was not asked")
        return call

    def _answer(self, number: int, message: Any) -> None:
        call = self._expected(number)
        if not isinstance(message, call.kinds):
            raise Undecodable("it does not answer what it was asked")
        call.answer.set_result(message)

    def _ask_model(self, question: ModelQuestion) -> None:
        call = self._expected(question.call)
        if call.completer is None:
            raise Undecodable("it asks a model where there is none")
        if call.is_cancelled:
            fault = Fault(FaultType.TRANSPORT, "the message was cancelled")
            self.questions.refuse(question.question, fault)
        elif self.questions.count(call.number) >= MAX_MODEL_QUESTIONS:
            text = f"a handler has at most {MAX_MODEL_QUESTIONS} questions to models open at a time"
            self.questions.refuse(question.question, Fault(FaultType.UPSTREAM, text))
        else:
            completion = Completion(question.model, question.messages, question.params)
            self.questions.answer(
                question.question, call.number, partial(_complete, call.completer, call.trace, completion)
            )


async def _complete(completer: Completer, trace: RunTrace | None, completion: Completion) -> dict[str, Any]:
    with working_for(trace):
        return encode_response(await completer.complete(completion))
