"""The fleet's side of an agent in a process of its own."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

from pallas import __version__
from pallas.bearer import salt
from pallas.codec import Undecodable, decode_event, fault_of
from pallas.config import AgentConfig, Project
from pallas.log import replay
from pallas.model import Fault, FaultType, Message, RunEvent
from pallas.text import one_line
from pallas.trace import current_run
from pallas.wire import OpenExchange, RunWire

from ..base import Emit, ExecutorInfo, Turn, TurnResult
from ..packed import Packed
from .channel import ChannelBroken
from .messages import (
    PROTOCOL,
    Begin,
    Broken,
    Cancel,
    Do,
    Done,
    Elsewhere,
    Failed,
    Forget,
    From,
    Given,
    Happened,
    Hello,
    Logged,
    Made,
    Piece,
    Result,
    Run,
    State,
    Wired,
    packed,
    unpacked,
)
from .spawn import Spawned
from .threads import Ledger, pieces

log = logging.getLogger(__name__)

# Seconds that a cancelled run has to clean up in the process, before that is ended with all its runs.
CANCEL_TIMEOUT: Final = 5.0
# Seconds that a process has beyond what it was given for parking or closing.
_LEEWAY: Final = 1.0
# Seconds that a process has to end in order, once it was told to (``keeper.GRACE``), and then by force.
_TERM: Final = 2.5
# Runs whose exchanges may still be told of: the last of an answer comes after its run.
_LATE_RUNS: Final = 200


@dataclass(slots=True, eq=False)
class _Asked:
    """A call that the process has to answer; of a run also what it needs on the way."""

    answer: asyncio.Future[Done | Result]
    emit: Emit | None = None
    made: list[Piece] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Kept:
    """Where the exchanges of a run are kept, by the numbers that the process gives them."""

    wire: RunWire
    opened: dict[int, OpenExchange] = field(default_factory=dict)


class ProcessExecutor:
    """Has turns answered by a process of its own; whatever becomes of that, the fleet goes on.

    A run that is cancelled is cancelled there, and one whose process ends fails with a Fault (TRANSPORT)
    that says how it ended.
    """

    def __init__(self, project: Project, config: AgentConfig) -> None:
        self._project = project
        self._config = config
        self._name = config.name
        self._info = ExecutorInfo()
        self._sources: dict[str, str] = {}
        self._state = State(0, ())
        self._process: Spawned | None = None
        self._calls = count(1)
        self._asked: dict[int, _Asked] = {}
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._ledger = Ledger()
        self._reader: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._seeing_off: set[asyncio.Task[None]] = set()
        self._ended = ""
        self._stranger = ""
        self._started = False
        self._closing = False
        self._tell_failed: Callable[[str], None] | None = None

    @property
    def pid(self) -> int | None:
        """The process that answers, None while there is none."""
        return self._process.pid if self._process is not None and not self._ended else None

    @property
    def info(self) -> ExecutorInfo:
        """What is known of the agent."""
        return self._info

    def problems(self) -> tuple[str, ...]:
        """Downstreams that the last attempt to make an instance could not reach."""
        return self._state.problems

    @property
    def waiting(self) -> int:
        """Runs that wait for a free instance."""
        return 0 if self._ended else self._state.waiting

    async def load(self, *, fresh: bool = False) -> None:
        """Start the process and import the agent's code there, always anew.

        Raises Fault: CONFIG with file, line and reason, TRANSPORT when the process ends.
        """
        if self._process is not None or self._closing:
            raise Fault(FaultType.INTERNAL, f"{self._name} was loaded already")
        await self._spawn()

    async def start(self) -> None:
        """Enter the harness there and warm one instance. Raises Fault.

        A process that ended since it was loaded is replaced by one with the same code, whatever its modules'
        files say now.
        """
        if self._closing:
            raise Fault(FaultType.TRANSPORT, f"{self._name} is stopping")
        process = self._process
        if process is not None and process.ended.done():
            await self._let_go(process)
            process = None
        if process is None:
            await self._spawn()
        await self._do("start")
        self._started = True

    async def _spawn(self) -> None:
        try:
            process = await Spawned.start(self._name, self._project.root)
        except OSError as error:
            raise Fault(
                FaultType.TRANSPORT, f"{self._name}: no process can be started: {error.strerror or error}"
            ) from error
        self._process, self._ended = process, ""
        self._ledger, self._state = Ledger(), State(0, ())
        self._reader = asyncio.create_task(self._read(process), name=f"{self._name}: channel")
        self._watch = asyncio.create_task(self._mind(process), name=f"{self._name}: process")
        project, key = self._for_itself(), salt().hex()
        self._send(Begin(__version__, PROTOCOL, self._name, project, key, self._sources))
        await self._do("load")

    async def _let_go(self, process: Spawned) -> None:
        """End what is left of a process, and whatever waits for it."""
        await process.close()
        tasks = {task for task in (self._reader, self._watch, *self._seeing_off) if task is not None}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=2.0)
            for task in late:
                task.cancel()

    async def run(self, turn: Turn, emit: Emit) -> TurnResult:
        """Answer one turn there. Raises Fault."""
        process = self._alive()
        call, asked = self._ask(emit)
        trace = current_run()
        if trace is not None and trace.wire is not None:
            self._kept[call] = _Kept(trace.wire)
            if len(self._kept) > _LATE_RUNS:
                self._kept.popitem(last=False)
        run = Run(
            call=call,
            run_id=turn.run_id,
            agent=turn.agent,
            text=turn.text,
            images=turn.images,
            lease=turn.lease,
            keep=self._ledger.begin(turn.lease, turn.history),
            principal=turn.principal,
            stream_text=turn.stream_text,
            trace=trace.context if trace is not None else None,
            record=trace is not None and trace.wire is not None,
            bearer=turn.bearer,
        )
        result: TurnResult | None = None
        try:
            await self._room(process)  # it may be busy with something else
            for part in pieces(turn.history[run.keep :], whole=False):
                self._send(Given(call, part))
                await self._room(process)
            self._send(run)
            # Not awaited itself: a cancel would end the answer too, and that is still to come.
            await asyncio.wait({asked.answer})
            result = _result(asked)
        except asyncio.CancelledError:
            await self._see_off(process, call, asked)
            raise
        finally:
            if asked.answer.done():
                self._asked.pop(call, None)
            made = result.messages if result is not None else None
            replaces = result is not None and result.replaces
            for lease in self._ledger.end(turn.lease, turn.history, made, replaces=replaces):
                self._send(Forget(lease))
        return result

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """``tell`` hears how the process ended, or why the agent there can answer no more."""
        self._tell_failed = tell

    def release(self, lease: str) -> None:
        """Let go of what the process keeps for a conversation."""
        self._ledger.forget(lease)
        self._send(Forget(lease, over=True))

    async def park(self, timeout: float) -> None:
        """End the instances there; the process stays, with all that it has loaded. Raises Fault."""
        self._started = False
        process = self._process
        if process is None or process.ended.done():
            return
        try:
            async with asyncio.timeout(timeout + _LEEWAY):
                await self._do("park", timeout)
        except TimeoutError:
            process.end(f"was ended, because it could not be parked within {timeout:g} s", force=True)
            raise Fault(
                FaultType.TRANSPORT, f"{self._name}: its process could not be parked and was ended"
            ) from None

    async def close(self, timeout: float) -> None:
        """End the process: in order, in about ``timeout`` seconds, else by force."""
        self._started, self._closing = False, True
        process = self._process
        if process is None:
            return
        if not process.ended.done():
            call, asked = self._ask()
            self._send(Do(call, "close", timeout))
            await _first(process.ended, asked.answer, timeout=timeout + _LEEWAY)
            self._asked.pop(call, None)
            if not await self._over(process, 0.5):
                process.end()
                await self._over(process, _TERM)
        await self._let_go(process)

    @staticmethod
    async def _over(process: Spawned, seconds: float) -> bool:
        await asyncio.wait({process.ended}, timeout=seconds)
        return process.ended.done()

    def _for_itself(self) -> Project:
        """The project as the process needs it: without who may call, and without the other agents."""
        own = replace(self._config, auth=None)
        return replace(self._project, auth=None, agents={self._name: own}, warnings=())

    def _alive(self) -> Spawned:
        if self._process is None or self._ended or self._process.ended.done():
            raise self._death()
        return self._process

    def _death(self) -> Fault:
        how = self._ended or "is not running"
        if self._stranger:
            return Fault(FaultType.CONFIG, f"{self._name}: its process {how}")
        last = self._process.last_lines if self._process is not None else ()
        said = f": {last[-1]}" if last and not self._started and "exit status" in how else ""
        return Fault(
            FaultType.TRANSPORT,
            f"{self._name}: its process {how}{said}; try again in a moment",
            data={"agent": self._name, "ended": how},
        )

    def _ask(self, emit: Emit | None = None) -> tuple[int, _Asked]:
        call = next(self._calls)
        asked = self._asked[call] = _Asked(asyncio.get_running_loop().create_future(), emit)
        return call, asked

    async def _do(self, what: str, seconds: float = 0.0) -> None:
        self._alive()
        call, asked = self._ask()
        try:
            self._send(Do(call, what, seconds))
            await asked.answer
        finally:
            self._asked.pop(call, None)

    def _send(self, message: From) -> None:
        process = self._process
        if process is None or self._ended:
            return
        try:
            process.channel.send(packed(message))
        except ChannelBroken as error:
            process.end(f"was ended, because it takes nothing any more ({error})", force=True)

    async def _room(self, process: Spawned) -> None:
        with suppress(ConnectionError):  # how it ended is told by who awaits it
            await process.channel.room()

    async def _see_off(self, process: Spawned, call: int, asked: _Asked) -> None:
        """Cancel a run there and wait until it is over; whoever waits for that may go."""
        asked.answer.add_done_callback(_retrieved)
        task = asyncio.create_task(self._cancelled(process, call, asked), context=Context())
        self._seeing_off.add(task)
        task.add_done_callback(self._seeing_off.discard)
        await asyncio.wait({task})

    async def _cancelled(self, process: Spawned, call: int, asked: _Asked) -> None:
        self._send(Cancel(call))
        await _first(process.ended, asked.answer, timeout=CANCEL_TIMEOUT)
        self._asked.pop(call, None)
        if not asked.answer.done() and not process.ended.done():
            process.end(
                f"was ended, because it did not react to a cancel within {CANCEL_TIMEOUT:g} s", force=True
            )

    async def _read(self, process: Spawned) -> None:
        """Take what the process says, until it ends."""
        try:
            while (document := await process.channel.receive()) is not None:
                self._hear(process, unpacked(document))
            if not await self._over(process, _TERM):
                process.end("was ended, because it closed its channel", force=True)
        except (ChannelBroken, Undecodable) as error:
            process.end(f"was ended, because it sent what is no message ({error})", force=True)
        except Exception:
            log.exception("%s: what its process said could not be used", self._name)
            process.end("was ended, because what it said could not be used", force=True)

    async def _mind(self, process: Spawned) -> None:
        """Wait for the end of the process, and tell everyone who waits for it."""
        how = await asyncio.shield(process.ended)
        if self._reader is not None:  # what it said before its end
            await asyncio.wait({self._reader}, timeout=1.0)
        self._ended = how = self._stranger or how
        if not self._closing:
            await process.read_out()
            log.error(
                "%s: its process %s",
                self._name,
                how,
                extra={"agent": self._name, "stderr": list(process.last_lines), "pid": process.pid},
            )
        # First: whoever looks after the agent knows when it answers again, and tells its callers.
        self._failed(f"its process {how}")
        for asked in list(self._asked.values()):
            if not asked.answer.done():
                asked.answer.set_exception(self._death())
                asked.answer.add_done_callback(_retrieved)

    def _failed(self, reason: str) -> None:
        if self._started and not self._closing:
            self._started = False
            if self._tell_failed is not None:
                self._tell_failed(one_line(reason, 300))

    def _hear(self, process: Spawned, said: Any) -> None:
        match said:
            case Happened():
                self._happened(said)
            case Wired():
                self._wired(said)
            case Logged():
                replay(said.record, agent=self._name)
            case Made():
                if (asked := self._asked.get(said.call)) is not None:
                    asked.made += said.pieces
            case Result():
                self._answer(said.call, said)
            case Done():
                self._know(said.info)
                self._sources = said.sources or self._sources
                self._answer(said.call, said)
            case Failed():
                self._know(said.info)
                self._fail(said)
            case State():
                self._state = said
            case Hello():
                self._greet(process, said)
            case Broken():
                self._failed(said.reason)
            case _:
                raise Undecodable(f"a process says {type(said).__name__}")

    def _know(self, info: ExecutorInfo | None) -> None:
        if info is not None:
            # One that was given its sources has not read them.
            self._info = replace(info, files=self._info.files) if self._sources else info

    def _greet(self, process: Spawned, hello: Hello) -> None:
        process.pid = hello.pid
        if (hello.version, hello.protocol) != (__version__, PROTOCOL):
            self._stranger = (
                f"is of another Pallas ({one_line(hello.version, 20)}) than this fleet ({__version__}), "
                "which was started before that was installed; start the fleet again"
            )
            process.end(self._stranger, force=True)

    def _happened(self, said: Happened) -> None:
        asked = self._asked.get(said.call)
        if asked is None or asked.emit is None or asked.answer.done():
            return
        event = decode_event(said.event)
        if isinstance(event, RunEvent):
            asked.emit(event)

    def _wired(self, said: Wired) -> None:
        kept = self._kept.get(said.call)
        if kept is None:
            return
        opened = kept.opened.get(said.number)
        if opened is None:
            kept.opened[said.number] = kept.wire.add(said.exchange)
        else:
            opened.put(said.exchange)

    def _answer(self, call: int, answer: Done | Result) -> None:
        asked = self._asked.get(call)
        if asked is not None and not asked.answer.done():
            asked.answer.set_result(answer)

    def _fail(self, said: Failed) -> None:
        asked = self._asked.get(said.call)
        if asked is None or asked.answer.done():
            return
        if said.cancelled:
            cancelled = Fault(FaultType.UPSTREAM, "the run was cancelled", data={"cancelled": True})
            asked.answer.set_exception(cancelled)
            return
        fault = fault_of(said.fault, "the agent's process failed and did not say how; see the log")
        if said.story:
            fault.__cause__ = Elsewhere(said.story)
        asked.answer.set_exception(fault)


async def _first(*futures: asyncio.Future[Any], timeout: float) -> None:
    await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


def _result(asked: _Asked) -> TurnResult:
    answer = asked.answer.result()
    if not isinstance(answer, Result):
        raise Fault(FaultType.INTERNAL, "the agent's process gave no result")
    return TurnResult(
        texts=answer.texts,
        messages=tuple(map(_message, asked.made)),
        usage=answer.usage,
        stop_reason=answer.stop_reason,
        replaces=answer.replaces,
    )


def _message(piece: Piece) -> Message:
    native = Packed(piece.native) if piece.native is not None else None
    return Message(piece.role, piece.text, piece.images, native)


def _retrieved(future: asyncio.Future[Any]) -> None:
    """Nobody may be waiting for it any more, and that is no news."""
    if not future.cancelled():
        future.exception()
