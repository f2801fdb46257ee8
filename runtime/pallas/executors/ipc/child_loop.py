"""What runs in a child process: it reads what the fleet says, and reports when its event loop is held up."""

import asyncio
import logging
import os
import signal
import socket
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, NoReturn

from pallas import __version__
from pallas.deadlines import cancel_and_wait
from pallas.model.codec import Undecodable
from pallas.telemetry.log import Forwarder, forward_logging
from pallas.telemetry.stall_watch import Stall, StallWatch
from pallas.telemetry.trace_context import bind_agent, outside_of_runs

from .channel import Channel, ChannelBroken
from .child_messages import (
    FROM_FLEET,
    OUT_OF_MEMORY,
    PROTOCOL,
    CallCancelled,
    CancelCall,
    ChildHello,
    CloseChild,
    FleetHello,
    FormAnswer,
    ForwardedRecord,
    MessageDecoder,
    encode_message,
)
from .child_questions import QuestionsToFleet

log = logging.getLogger(__name__)

# To close in when the fleet does not say how long it waits, and to send the last messages.
_CLOSE_TIMEOUT_S: Final = 1.2
_LAST_MESSAGES_TIMEOUT_S: Final = 0.3
# In which a fleet of another release ends this process.
_OTHER_RELEASE_S: Final = 10.0
# Between two reports of what changed.
_LOOK_INTERVAL_S: Final = 0.25


class ChildLoop(ABC):
    """Serves one agent's code over a channel. A subclass says what the stack's own messages mean.

    A subclass calls ``_watch`` once the event loop has nothing to import any more.
    """

    def __init__(self, channel: Channel, kinds: tuple[type[Any], ...]) -> None:
        self.questions = QuestionsToFleet(self.send)
        self._channel = channel
        self._decode = MessageDecoder(*FROM_FLEET, *kinds)
        self._loop = asyncio.get_running_loop()
        self._agent = ""
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._stalls: StallWatch | None = None
        self._is_accepted = False
        self._close_timeout_s = _CLOSE_TIMEOUT_S
        self._lost = 0

    async def serve(self) -> None:
        """Serve until the fleet goes away or says to close, or until a SIGTERM comes."""
        self._loop.set_exception_handler(self._loop_failed)
        self._loop.add_signal_handler(signal.SIGTERM, self._ended.set)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a key in the fleet's terminal
        self.send(ChildHello(__version__, PROTOCOL, os.getpid()))
        listening = asyncio.create_task(self._listen())
        looking = asyncio.create_task(self._look())
        over = asyncio.create_task(self._ended.wait())
        await asyncio.wait({listening, over}, return_when=asyncio.FIRST_COMPLETED)
        if listening.done():
            if not listening.cancelled() and (error := listening.exception()) is not None:
                raise error
            self.questions.close()
        looking.cancel()
        if self._stalls is not None:
            self._stalls.stop()
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(self._close_timeout_s + _LAST_MESSAGES_TIMEOUT_S):
                await self._close(self._close_timeout_s)
                await self._channel.room()

    def send(self, message: Any, *, may_be_lost: bool = False) -> None:
        """Send a message to the fleet; never waits. Raises ChannelBroken."""
        self._channel.send(encode_message(message), may_be_lost=may_be_lost)

    # For subclasses

    @abstractmethod
    def _on_message(self, message: Any) -> None:
        """Handle a message of this stack."""

    async def _close(self, timeout_s: float) -> None:
        """Cancel the calls, and wait for them for up to ``timeout_s``."""
        calls = set(self._calls.values())
        await cancel_and_wait(*calls, seconds=timeout_s)

    def _cancel_unknown(self, call: int) -> None:
        """Answer the cancel of a call that has not begun, or is over."""
        self.send(CallCancelled(call))

    def _watch(self, limit_s: float) -> None:
        """Report from now on when the event loop is held up for longer than that; 0 is for any time."""
        if limit_s:
            self._stalls = StallWatch(limit_s, self._stalled)
            self._stalls.start()

    def _report(self) -> None:
        """Send the fleet what changed; called four times a second."""
        if (lost := self._channel.lost) != self._lost:
            self._lost, lost = lost, lost - self._lost
            log.warning("%d messages to the fleet were lost: it did not read them in time", lost)

    def _forward_log(self, level: str | None) -> None:
        """Send every log record to the fleet from now on."""
        bind_agent(self._agent)
        forward_logging(Forwarder(self._send_record), level)

    def _start_call(self, call: int, work: Coroutine[Any, Any, None]) -> None:
        task = self._calls[call] = self._start(work)
        task.add_done_callback(lambda task: self._call_done(call, task))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # In an empty context: nothing of a call stays with what the channel starts later.
        task = asyncio.create_task(work, context=outside_of_runs())
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    # Reading and watching

    async def _listen(self) -> None:
        while (document := await self._channel.receive()) is not None:
            try:
                self._handle(self._decode(document))
            except Undecodable:
                if not self._is_accepted:  # a fleet of another release, which says so itself
                    return
                raise

    def _handle(self, message: Any) -> None:
        match message:
            case FleetHello():
                self._is_accepted = (message.version, message.protocol) == (__version__, PROTOCOL)
                if not self._is_accepted:
                    # The fleet says why, and ends this process. What it has not read yet is lost if this
                    # end closes first.
                    self._loop.call_later(_OTHER_RELEASE_S, self._ended.set)
            case CancelCall(call=number):
                if (call := self._calls.get(number)) is not None:
                    call.cancel()
                else:
                    self._cancel_unknown(number)
            case FormAnswer():
                self.questions.resolve(message)
            case CloseChild():
                self._close_timeout_s = message.seconds
                self._ended.set()
            case _:
                if self._is_accepted:
                    self._on_message(message)

    async def _look(self) -> None:
        """Report what changed."""
        while True:
            await asyncio.sleep(_LOOK_INTERVAL_S)
            self._report()

    def _stalled(self, stall: Stall) -> None:
        """Write the stack of a loop that is held up to stderr, and so to the log, while it still is."""
        stack = "".join(traceback.format_stack(stall.frame))
        sys.stderr.write(f"the event loop has been blocked for {stall.seconds():.1f} s now, at\n{stack}")
        log.warning("%s: its code blocked its own event loop for %.1f s", self._agent, stall.wait())

    def _send_record(self, record: dict[str, Any]) -> None:
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            self.send(ForwardedRecord(record), may_be_lost=True)
        else:  # from another thread
            self._loop.call_soon_threadsafe(lambda: self.send(ForwardedRecord(record), may_be_lost=True))

    def _call_done(self, call: int, task: asyncio.Task[None]) -> None:
        self._calls.pop(call, None)
        if task.cancelled():  # before it began, else it has answered
            self.send(CallCancelled(call))

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None or isinstance(
            error, SystemExit | KeyboardInterrupt
        ):  # those end the loop themselves
            return
        if isinstance(error, MemoryError):
            os._exit(OUT_OF_MEMORY)
        if not isinstance(error, ChannelBroken):
            log.error("%s: a message of the fleet failed", self._agent, exc_info=error)
        os._exit(1)  # else the fleet would wait for an answer that never comes

    def _loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, MemoryError):
            os._exit(OUT_OF_MEMORY)
        log.error("%s", context.get("message", "in the event loop"), exc_info=error)


def serve_child(sock: socket.socket, make: Callable[[Channel], ChildLoop]) -> NoReturn:
    """Serve over ``sock`` in an event loop of its own, then end the process.

    The process ends while its loop is still open: closing the loop would cancel what runs, whose callers
    would see a cancel, and would wait for threads that the agent's code started.
    """
    from pallas.processes.event_loop import new_runner

    async def serve() -> None:
        await make(await Channel.over(sock)).serve()

    with new_runner() as runner:
        status = 1
        try:
            runner.run(serve())
            status = 0
        except SystemExit as exit_:  # the agent's code called exit
            status = exit_.code if isinstance(exit_.code, int) else 1
        except MemoryError:
            status = OUT_OF_MEMORY
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            os._exit(status)
