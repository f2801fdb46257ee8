"""The fleet's side of a child process: the calls it is sent, what it says, and how it ended."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Final

from pallas import __version__
from pallas.model import Fault
from pallas.model.codec import Undecodable
from pallas.safe_text import one_line

from .channel import ChannelBroken
from .child_messages import (
    FROM_CHILD,
    PROTOCOL,
    CallCancelled,
    CancelCall,
    ChildHello,
    CloseChild,
    DropQuestion,
    FleetHello,
    ForwardedRecord,
    MessageDecoder,
    encode_message,
)
from .child_process import InterpreterProcess, children_of
from .child_questions import ChildQuestions

log = logging.getLogger(__name__)

# Until a process that closed its channel has ended, or is ended.
_HUNG_UP_TIMEOUT_S: Final = 2.5
# For the last messages of a process that ended.
_LAST_MESSAGES_TIMEOUT_S: Final = 1.0
# A process that is closed has at least the first to end in order, and the second of its time to end by force.
_LEAST_CLOSE_S: Final = 0.5
_FORCE_S: Final = 0.7
# Between two messages of a child that says too much.
_FLOOD_PAUSE_S: Final = 0.05


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call that the child has to answer."""

    number: int
    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class ChildConnection[CallT: PendingCall](ABC):
    """One child process, from its handshake to its end. Belongs to the event loop that it is made in.

    A subclass says what the stack's own messages mean, and which Fault a call gets when the process ended.
    ``reaction_timeout_s`` is how long a child that is closed has to show that its event loop is free.
    """

    reaction_timeout_s: float

    def __init__(self, name: str, process: InterpreterProcess, kinds: tuple[type[Any], ...]) -> None:
        self.name = name
        self.process = process
        self.pid: int | None = None
        self.calls: dict[int, CallT] = {}
        self.calls_made = 0
        self.has_calls = asyncio.Event()
        self.questions = ChildQuestions(name, self.send)
        self.is_loaded = False
        self.is_leaving = False
        """It is meant to end, so its end is neither logged nor reported."""
        self.end_is_reported = asyncio.Event()
        self._decode = MessageDecoder(*FROM_CHILD, *kinds)
        self._ended = ""
        self._ended_by_fleet = ""
        self._broke_protocol = False
        self._is_other_release = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.send(FleetHello(__version__, PROTOCOL))
        self._reader = self._start(self._read(), "channel")
        self._watcher = self._start(self._watch(), "process")

    @property
    def is_ended(self) -> bool:
        """Whether the process has ended, or is about to."""
        return bool(self._ended or self._ended_by_fleet) or self.process.ended.done()

    @property
    def how_it_ended(self) -> str:
        """The words for how the process ended; "ended" while that is not known."""
        return self._ended or self._ended_by_fleet or "ended"

    def send(self, message: Any) -> None:
        """Send a message; never waits, and sends nothing once the process is over."""
        if self.is_ended:
            return
        try:
            self.process.channel.send(encode_message(message))
        except ChannelBroken as error:
            self.end(f"was ended, because it no longer reads ({error})")

    async def wait_for_room(self) -> None:
        """Wait until the child has taken most of it."""
        with suppress(ConnectionError):  # what waits for an answer learns how the process ended
            await self.process.channel.room()

    def end(self, why: str, *, broke_protocol: bool = False) -> None:
        """End the process by force; ``broke_protocol`` if it sent something that is no message."""
        if not self.is_ended:
            self._ended_by_fleet, self._broke_protocol = why, broke_protocol
        self.process.end(self._ended_by_fleet, force=True)

    def forget(self, call: CallT) -> None:
        """Forget a call: no code waits for its answer."""
        self.calls.pop(call.number, None)
        if not self.calls:
            self.has_calls.clear()

    async def cancel(self, call: CallT, timeout_s: float, why_ended: str) -> None:
        """Cancel a call and wait until it is over; end the process if it is not within ``timeout_s``."""
        self.send(CancelCall(call.number))
        await self._wait_first(call.answer, timeout_s=timeout_s)
        self.forget(call)
        if not call.answer.done() and not self.is_ended:
            self.end(why_ended)

    async def leave(self, timeout_s: float) -> None:
        """End the process: in order in about ``timeout_s`` if it was loaded and reacts, else by force."""
        self.is_leaving = True
        try:
            if self.is_loaded and await self._reacts(min(self.reaction_timeout_s, timeout_s / 2)):
                ordered_s = max(_LEAST_CLOSE_S, timeout_s - _FORCE_S)
                self.send(CloseChild(ordered_s))
                await self._wait_first(timeout_s=ordered_s + _LEAST_CLOSE_S)
        finally:  # also when the caller is cancelled
            self.process.end(force=True)
        await self.close()

    async def close(self) -> None:
        """End the rest of the process, and the tasks that wait for it."""
        await self.process.close()
        _, late = await asyncio.wait({self._reader, self._watcher, *self._tasks}, timeout=2.0)
        for task in late:
            task.cancel()

    # For subclasses

    def _next_number(self) -> int:
        """The number of a new call. Raises the Fault of a process that is over."""
        if self.is_ended:
            raise self._fault(None)
        self.calls_made += 1
        return self.calls_made

    def _add(self, call: CallT) -> CallT:
        self.calls[call.number] = call
        self.has_calls.set()
        call.answer.add_done_callback(_retrieve_exception)
        return call

    def _find(self, number: int) -> CallT | None:
        """The call of that number, if it still waits for its answer."""
        call = self.calls.get(number)
        return call if call is not None and not call.answer.done() else None

    def _start(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"{self.name}: {what}", context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _wait_first(self, *futures: asyncio.Future[Any], timeout_s: float) -> None:
        """Wait until one of the futures is done or the process has ended."""
        await asyncio.wait(
            {*futures, self.process.ended}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )

    @abstractmethod
    def _new_call(self) -> CallT:
        """A call without content. Raises the Fault of a process that is over."""

    @abstractmethod
    def _on_message(self, message: Any) -> None:
        """Handle a message of this stack."""

    @abstractmethod
    def _on_cancelled(self, message: CallCancelled) -> None:
        """Handle the end of a call that was cancelled."""

    @abstractmethod
    def _on_record(self, record: Mapping[str, Any]) -> None:
        """Log a record of the child."""

    @abstractmethod
    def _on_end(self, reason: str) -> None:
        """Report how the process ended, before its calls fail. Not called for one that is leaving."""

    @abstractmethod
    def _fault(self, call: CallT | None) -> Fault:
        """The Fault for a call of a process that is over; None for a call that it never got."""

    def _is_flooding(self) -> bool:
        """Whether the child says so much that reading has to pause."""
        return False

    # Reading and watching

    async def _reacts(self, timeout_s: float) -> bool:
        """Whether the child's event loop is free: it answers the cancel of a call that it never got."""
        if self.is_ended:
            return False
        call = self._new_call()
        self.send(CancelCall(call.number))
        await self._wait_first(call.answer, timeout_s=timeout_s)
        self.forget(call)
        return call.answer.done() and not self.is_ended

    async def _read(self) -> None:
        """Handle what the process says, until it ends."""
        channel = self.process.channel
        try:
            while (document := await channel.receive()) is not None:
                self._handle(self._decode(document))
                if self._is_flooding():
                    await asyncio.sleep(_FLOOD_PAUSE_S)
            await self._wait_first(timeout_s=_HUNG_UP_TIMEOUT_S)
            if not self.process.ended.done():
                self.end("was ended, because it closed its channel", broke_protocol=True)
        except (ChannelBroken, Undecodable, RecursionError) as error:
            why = "too deep" if isinstance(error, RecursionError) else one_line(str(error))
            self.end(f"was ended, because it sent an invalid message ({why})", broke_protocol=True)
        except Exception:
            log.exception("%s: a message of its process could not be used", self.name)
            self.end("was ended, because its message could not be used")

    def _handle(self, message: Any) -> None:
        match message:
            case ChildHello():
                self._greet(message)
            case ForwardedRecord():
                self._on_record(message.record)
            case CallCancelled():
                self._on_cancelled(message)
            case DropQuestion():
                self.questions.cancel(message.question)
            case _:
                self._on_message(message)

    def _greet(self, hello: ChildHello) -> None:
        below = children_of(self.process.keeper)
        self.pid = below[0] if below else hello.pid
        if (hello.version, hello.protocol) != (__version__, PROTOCOL):
            self._is_other_release = True
            self.end(
                f"runs Pallas {one_line(hello.version, 20)}, which was installed after this fleet was "
                f"started with {__version__}; restart the fleet"
            )

    async def _watch(self) -> None:
        """Wait for the end of the process, report it, and fail the calls that wait."""
        process = self.process
        try:
            how = await asyncio.shield(process.ended)
            await asyncio.wait({self._reader}, timeout=_LAST_MESSAGES_TIMEOUT_S)
            self._ended = how = self._ended_by_fleet or how
            if not self.is_leaving:
                await process.read_out()
                extra = {"agent": self.name, "stderr": list(process.last_lines), "pid": self.pid}
                log.error("%s: its process %s", self.name, how, extra=extra)
                # Before the calls fail: then callers learn whether there will be another process.
                self._on_end(f"its process {how}")
            for call in list(self.calls.values()):
                if not call.answer.done():
                    call.answer.set_exception(self._fault(call))
            self.questions.end()
        finally:
            self.end_is_reported.set()


def _retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Mark the exception as seen: maybe no code waits for this answer any more."""
    if not future.cancelled():
        future.exception()
