"""What goes on in the process of an isolated handler: its loop, and everything that the fleet says."""

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import socket
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from time import monotonic
from typing import Any, Final, NoReturn

from pallas import __version__
from pallas.model.codec import Undecodable
from pallas.telemetry.log import Forwarder, forward_logging

from ..process.channel import Channel, ChannelBroken
from ..process.ending import OUT_OF_MEMORY, run_and_leave
from ..process.sources import Sources, read_sources
from .inside_files import keep_files_from
from .inside_handler import Handler
from .inside_limits import limit
from .isolated_messages import (
    PROTOCOL,
    Answered,
    Begin,
    Cancel,
    Close,
    Ended,
    Failed,
    Hello,
    Invoke,
    Load,
    Loaded,
    Logged,
    NotLoaded,
    To,
    from_fleet,
    packed,
)

log = logging.getLogger(__name__)

# Seconds to end in, when nobody says how many.
_HURRY: Final = 1.0
# Seconds between two looks at whether the loop is held up.
_LOOK: Final = 0.25


def serve(sock: socket.socket) -> NoReturn:
    """Serve over ``sock``, then end the process."""
    run_and_leave(_serve(sock))


async def _serve(sock: socket.socket) -> None:
    await _Inside(await Channel.over(sock)).serve()


class _Inside:
    """One handler, and the messages that it handles."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._begun: Begin | None = None
        self._sources: Sources | None = None
        self._handler: Handler | None = None
        self._messages: dict[int, asyncio.Task[None]] = {}
        self._last = 0  # the number of the last message that came
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._seconds = _HURRY
        self._lag = 0.0

    async def serve(self) -> None:
        """Until the fleet goes away, says close, or a SIGTERM comes."""
        self._loop.set_exception_handler(self._loop_failed)
        self._loop.add_signal_handler(signal.SIGTERM, self._over.set)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a key in the fleet's terminal
        self._say(Hello(__version__, PROTOCOL, os.getpid()))
        listening = asyncio.create_task(self._listen())
        looking = asyncio.create_task(self._look())
        over = asyncio.create_task(self._over.wait())
        await asyncio.wait({listening, over}, return_when=asyncio.FIRST_COMPLETED)
        if listening.done() and not listening.cancelled() and (error := listening.exception()) is not None:
            raise error
        looking.cancel()
        faulthandler.cancel_dump_traceback_later()
        for task in self._messages.values():
            task.cancel()
        if self._messages:
            await asyncio.wait(set(self._messages.values()), timeout=self._seconds)
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(_HURRY):
                await self._channel.room()

    async def _listen(self) -> None:
        while (document := await self._channel.receive()) is not None:
            try:
                self._hear(from_fleet(document))
            except Undecodable:
                if self._begun is None:  # of another release: the fleet tells why
                    return
                raise

    def _hear(self, said: Any) -> None:
        match said:
            case Begin():
                self._begin(said)
            case Load():
                self._own(self._load(said))
            case Invoke():
                # In an empty context: nothing of a message stays with what the channel starts later.
                task = self._own(self._handle(said))
                self._messages[said.call], self._last = task, said.call
                task.add_done_callback(lambda task: self._handled(said.call, task))
            case Cancel():
                if (message := self._messages.get(said.call)) is not None:
                    message.cancel()
                elif said.call > self._last:  # it never came to that; else its answer crossed this
                    self._say(Failed(said.call, "cancelled"))
            case Ended():
                if self._handler is not None:
                    self._handler.ended(said.frame)
            case Answered():
                if self._handler is not None:
                    self._handler.answered(said)
            case Close():
                self._seconds = min(said.seconds, self._seconds)
                self._over.set()

    def _begin(self, said: Begin) -> None:
        self._begun = said
        if (said.version, said.protocol) != (__version__, PROTOCOL):
            self._over.set()  # the fleet tells why
            return
        self._lag = said.lag
        limit(said.memory)
        is_confined = keep_files_from(Path(said.root), said.hidden, said.own_files)
        forward_logging(Forwarder(self._log), said.level)
        if not is_confined:
            log.warning("this system has no Landlock: its code may read every file that the fleet may")
        logging.captureWarnings(capture=True)
        self._sources = read_sources(Path(said.root), said.sources)
        self._handler = Handler(said, self._say)

    async def _load(self, asked: Load) -> None:
        assert self._begun is not None
        assert self._handler is not None
        assert self._sources is not None
        said: Loaded | NotLoaded = await self._handler.learn(asked.call)
        if isinstance(said, Loaded):
            said = Loaded(said.call, said.payload, said.place, said.files, self._sources.read)
            gc.freeze()  # what the start made stays, and is not looked through for garbage again
        self._say(said)

    async def _handle(self, asked: Invoke) -> None:
        assert self._handler is not None
        self._say(await self._handler.answer(asked))

    def _handled(self, call: int, task: asyncio.Task[None]) -> None:
        self._messages.pop(call, None)
        if task.cancelled():  # before it was its turn
            self._say(Failed(call, "cancelled"))

    async def _look(self) -> None:
        """Have it told when nothing can be: the loop is held up. Its stacks go to stderr, so to the log."""
        last = monotonic()
        while True:
            if self._lag:
                faulthandler.dump_traceback_later(self._lag)
            await asyncio.sleep(_LOOK)
            now = monotonic()
            if self._lag and (late := now - last - _LOOK) > self._lag:
                log.warning("its code held up its own event loop for %.1f s", late)
            last = now

    def _log(self, record: dict[str, Any]) -> None:
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._say(Logged(record), may_be_lost=True)
        else:  # of a thread
            self._loop.call_soon_threadsafe(lambda: self._say(Logged(record), may_be_lost=True))

    def _say(self, said: To, *, may_be_lost: bool = False) -> None:
        self._channel.send(packed(said), may_be_lost=may_be_lost)

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, MemoryError | ChannelBroken):  # nothing can be said any more
            os._exit(OUT_OF_MEMORY if isinstance(error, MemoryError) else 1)
        log.error("a message was not handled", exc_info=error)
        os._exit(1)  # the fleet waits for an answer that nobody gives

    def _loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, MemoryError):
            os._exit(OUT_OF_MEMORY)
        log.error("%s", context.get("message", "in the event loop"), exc_info=error)
