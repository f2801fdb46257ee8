"""What goes on in an agent's own process: the executor that would be in the fleet, asked over a channel."""

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import socket
import traceback
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context
from time import monotonic
from typing import Any, Final, NoReturn

from pallas import __version__
from pallas.executors.base import Turn, TurnResult
from pallas.executors.fastagent.executor import FastAgentExecutor
from pallas.executors.fastagent.messages import revived
from pallas.model import Event, Fault, FaultType, Message, TextDelta
from pallas.model.codec import Undecodable, encode_event
from pallas.model.fingerprint import adopt_salt
from pallas.model.safe_text import sanitize
from pallas.telemetry.log import (
    Forwarder,
    forget,
    forward_logging,
    redact,
    redact_project,
    redact_text,
)
from pallas.telemetry.trace import RunTrace, child_of, running
from pallas.telemetry.wire_record import OpenExchange, RunWire, WireRecord

from .asking import Above
from .channel import Channel
from .ending import OUT_OF_MEMORY, run_and_leave
from .messages import (
    PROTOCOL,
    Begin,
    Broken,
    Cancel,
    Do,
    Done,
    Doubt,
    Failed,
    Forget,
    Given,
    Happened,
    Hello,
    Logged,
    Made,
    Peers,
    Piece,
    Replied,
    Result,
    Run,
    State,
    To,
    Wired,
    packed,
    unpacked,
)
from .sources import Sources, read_sources
from .threads import Threads, pieces

log = logging.getLogger(__name__)

# Seconds to end in, when nobody says how many.
_HURRY: Final = 1.5
_MAX_STORY: Final = 64 * 1024
# Seconds between two looks at what the fleet is told of the executor without asking.
_LOOK: Final = 0.25
# What is kept here of the exchanges of runs: the fleet has them, these are only completed.
_WIRE_BYTES: Final = 4 * 1024 * 1024
_WIRE_RUNS: Final = 50


def serve(sock: socket.socket) -> NoReturn:
    """Serve over ``sock``, then end the process."""
    run_and_leave(_serve(sock))


async def _serve(sock: socket.socket) -> None:
    await _Inside(await Channel.over(sock)).serve()


class _Inside:
    """One agent's executor, and everything that the fleet asks of it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._agent = ""
        self._executor: FastAgentExecutor | None = None
        self._sources: Sources | None = None
        self._threads: Threads[Message] = Threads()
        self._given: dict[int, list[Message]] = {}
        self._runs: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wire = WireRecord(_WIRE_BYTES, _WIRE_RUNS)
        self._peers = Above(self._say)
        self._state = State(0, ())
        self._lost = 0
        self._lag = self._allowed_lag = 0.0
        self._over = asyncio.Event()
        self._refused = False

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
        if listening.done():
            self._peers.close()
        looking.cancel()
        faulthandler.cancel_dump_traceback_later()
        with suppress(TimeoutError):
            async with asyncio.timeout(_HURRY):
                await self._close(_HURRY - 0.3)
                with suppress(ConnectionError):
                    await self._channel.room()

    async def _listen(self) -> None:
        while (document := await self._channel.receive()) is not None:
            try:
                self._hear(unpacked(document))
            except Undecodable:
                if self._executor is None:  # of another release: the fleet tells why
                    return
                raise

    def _hear(self, said: Any) -> None:
        match said:
            case Begin():
                self._begin(said)
            case Do():
                if not self._refused:
                    self._own(self._do(said))
            case Given():
                self._given.setdefault(said.call, []).extend(map(_message, said.pieces))
            case Run():
                # In an empty context: nothing of a run stays with what the channel starts later.
                task = self._own(self._run(said, self._given.pop(said.call, [])))
                self._runs[said.call] = task
                task.add_done_callback(lambda task: self._ran(said.call, task))
            case Cancel():
                self._given.pop(said.call, None)
                if (run := self._runs.get(said.call)) is not None:
                    run.cancel()
                else:  # it never came to that, or it is over
                    self._say(Failed(said.call, cancelled=True))
            case Doubt(servers=servers):
                if self._executor is not None:
                    self._executor.doubt(frozenset(servers))
            case Peers():
                self._peers.learn(said.tools)
            case Replied():
                self._peers.heard(said)
            case Forget():
                self._threads.forget(said.lease)
                if said.over and self._executor is not None:
                    self._executor.release(said.lease)
            case _:
                raise TypeError(f"the fleet says {type(said).__name__}")

    def _begin(self, said: Begin) -> None:
        if (said.version, said.protocol) != (__version__, PROTOCOL):
            self._refused = True  # the fleet tells why
            self._over.set()
            return
        adopt_salt(bytes.fromhex(said.salt))
        project = said.project
        self._agent = said.agent
        self._allowed_lag = project.loop_lag
        redact_project(project)
        forward_logging(Forwarder(self._log), project.log_level)
        self._sources = read_sources(project.root, said.sources)
        self._executor = FastAgentExecutor(project, project.agents[said.agent])
        self._executor.call_peers(self._peers)
        self._executor.when_failed(lambda reason: self._say(Broken(reason)))

    async def _do(self, asked: Do) -> None:
        executor = self._executor
        try:
            if executor is None:
                raise Fault(FaultType.INTERNAL, "the fleet did not begin")
            match asked.what:
                case "load":
                    await executor.load()
                case "start":
                    await executor.start()
                    # What the start made stays, and is not looked through for garbage again.
                    gc.freeze()
                    self._lag = self._allowed_lag
                case "park":
                    await executor.park(asked.seconds)
                case "close":
                    await self._close(asked.seconds)
                case _:
                    raise Fault(FaultType.INTERNAL, f"the fleet asks for {asked.what}")
        except Exception as error:
            self._say(self._failure(asked.call, error))
        else:
            sources = self._sources if asked.what == "load" else None
            self._say(Done(asked.call, executor.info, sources.read if sources is not None else {}))
            if asked.what == "close":
                self._over.set()

    def _failure(self, call: int, error: Exception) -> Failed:
        fault = error if isinstance(error, Fault) else _fault(error)
        cause = fault.__cause__ if isinstance(error, Fault) else error
        story = "".join(traceback.format_exception(cause)) if cause is not None else ""
        return Failed(
            call,
            fault.to_body(),
            sanitize(redact_text(story[-_MAX_STORY:])),
            info=self._executor.info if self._executor is not None else None,
        )

    async def _run(self, asked: Run, given: list[Message]) -> None:
        executor = self._executor
        assert executor is not None
        call = asked.call
        wire = None
        if asked.record:
            wire = self._wire.open(asked.run_id)
            wire.tell = lambda exchange: self._wired(call, exchange)
        if asked.bearer:
            redact(asked.bearer)
        self._peers.begins(asked.run_id, call)
        try:
            history = self._threads.begin(call, asked.lease, asked.keep, given)
            result = await self._answer(executor, asked, history, wire)
            made = tuple(pieces(result.messages, whole=True))
            for part in made:
                self._say(Made(call, part))
                await self._channel.room()
            self._threads.end(call, asked.lease, result.messages, replaces=result.replaces)
            self._say(
                Result(
                    call,
                    result.texts,
                    result.usage,
                    result.stop_reason,
                    result.replaces,
                    result.backend,
                    result.notices,
                )
            )
        except asyncio.CancelledError:
            self._say(Failed(call, cancelled=True))
        except MemoryError:
            _die()
        except Fault as fault:
            if isinstance(fault.__cause__, MemoryError):
                _die()
            self._say(Failed(call, fault.to_body()))
        except Exception as error:
            log.exception("run %s failed", asked.run_id)
            self._say(Failed(call, _fault(error).to_body()))
        finally:
            if asked.bearer:
                forget(asked.bearer)
            self._peers.ends(asked.run_id)
            self._tell_state()

    def _ran(self, call: int, task: asyncio.Task[None]) -> None:
        self._runs.pop(call, None)
        if task.cancelled():  # before it was its turn: nothing of it has said so
            self._say(Failed(call, cancelled=True))

    async def _answer(
        self, executor: FastAgentExecutor, asked: Run, history: list[Message], wire: RunWire | None
    ) -> TurnResult:
        turn = Turn(
            run_id=asked.run_id,
            agent=asked.agent,
            text=asked.text,
            images=asked.images,
            history=history,
            lease=asked.lease,
            principal=asked.principal,
            stream_text=asked.stream_text,
            durable=asked.durable,
            params=asked.params,
            bearer=asked.bearer,
            provider=asked.provider,
        )
        trace = RunTrace(asked.run_id, asked.agent, asked.trace or child_of(None), wire)

        def emit(event: Event) -> None:
            self._say(Happened(asked.call, encode_event(event)), may_be_lost=isinstance(event, TextDelta))

        with running(trace):
            return await executor.run(turn, emit)

    def _wired(self, call: int, exchange: OpenExchange) -> None:
        self._say(Wired(call, exchange.number, exchange.value), may_be_lost=True)

    async def _close(self, timeout: float) -> None:
        """Cancel what runs, then close the executor."""
        runs = set(self._runs.values())
        for run in runs:
            run.cancel()
        if runs:
            await asyncio.wait(runs, timeout=timeout / 3)
        if self._executor is not None:
            await self._executor.close(timeout)

    async def _look(self) -> None:
        """Tell what changed about the executor; have it told when nothing can be: the loop is held up.

        The stacks of a loop that is go to stderr, and so to the log, while it still is.
        """
        last = monotonic()
        while True:
            if self._lag:
                faulthandler.dump_traceback_later(self._lag)
            await asyncio.sleep(_LOOK)
            self._tell_state()
            now = monotonic()
            if self._lag and (late := now - last - _LOOK) > self._lag:
                log.warning("%s: its code held up its own event loop for %.1f s", self._agent, late)
            last = now

    def _tell_state(self) -> None:
        if self._executor is None:
            return
        state = State(self._executor.waiting, self._executor.problems())
        if state != self._state:
            self._state = state
            self._say(state)
        if (lost := self._channel.lost) != self._lost:
            self._lost, lost = lost, lost - self._lost
            log.warning("%d messages to the fleet were lost: it did not read them in time", lost)

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
        task.add_done_callback(self._tasks.discard)
        return task

    def _loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, MemoryError):
            _die()
        log.error("%s", context.get("message", "in the event loop"), exc_info=error)


def _message(piece: Piece) -> Message:
    return revived(piece.message())


def _fault(error: Exception) -> Fault:
    return Fault(FaultType.INTERNAL, "the run failed; the log has the details")


def _die() -> None:
    """There is no memory to go on with, nor to say so properly."""
    os._exit(OUT_OF_MEMORY)
