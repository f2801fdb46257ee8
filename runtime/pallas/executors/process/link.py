"""One process from the fleet's side: what is asked of it, what it says, and how it ended."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from pallas import __version__
from pallas.health.reasons import LAST_SAID
from pallas.model import Fault, FaultType, RunEvent
from pallas.model.codec import Undecodable, decode_event, fault_of
from pallas.model.safe_text import one_line
from pallas.telemetry.log import replay
from pallas.telemetry.wire_record import OpenExchange, RunWire

from ..base import Emit
from ..fastagent.peers import PeerCalls
from .asking import Asker, Asks
from .channel import ChannelBroken
from .messages import (
    PROTOCOL,
    Ask,
    Broken,
    Cancel,
    Do,
    Done,
    Elsewhere,
    Failed,
    From,
    Happened,
    Hello,
    Leave,
    Logged,
    Made,
    Peers,
    Piece,
    Result,
    State,
    Wired,
    packed,
    unpacked,
)
from .spawn import Spawned

log = logging.getLogger(__name__)

# Seconds that a cancelled run has to clean up in the process, before that is ended with all its runs.
CANCEL_TIMEOUT: Final = 5.0
# Seconds until a process that closed its channel has ended, or it is ended.
_HUNG_UP: Final = 2.5
# Runs whose exchanges may still be told of: the last of an answer comes after its run.
_LATE_RUNS: Final = 200


@dataclass(slots=True, eq=False)
class Asked:
    """A call that the process has to answer; of a run also what it needs on the way.

    ``asker`` is on whose behalf the run asks its agent's peers.
    """

    answer: asyncio.Future[Done | Result]
    emit: Emit | None = None
    made: list[Piece] = field(default_factory=list)
    asker: Asker | None = None


@dataclass(slots=True, eq=False)
class _Kept:
    """Where the exchanges of a run are kept, by the numbers that the process gives them."""

    wire: RunWire
    opened: dict[int, OpenExchange] = field(default_factory=dict)


class Link:
    """A process and everything that is asked of it.

    ``learned`` hears what it answers to a load or a start, ``broke`` why it can answer no more by itself;
    ``peers`` are those that its agent may ask, None for none.
    """

    def __init__(
        self,
        name: str,
        process: Spawned,
        *,
        learned: Callable[[Done | Failed], None],
        broke: Callable[[str], None],
        peers: PeerCalls | None = None,
    ) -> None:
        self._name = name
        self._learned = learned
        self._broke = broke
        self._calls = count(1)
        self._asked: dict[int, Asked] = {}
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._seeing_off: set[asyncio.Task[None]] = set()
        self._stranger = ""
        self._ended = ""
        self._asks = Asks(peers, self.send)
        self.process = process
        self.state = State(0, ())
        self.loaded = False
        self.answering = False
        """It was started: from then on callers hear of its end, before that who starts it, and names it."""
        self.leaving = False
        """It is meant to end: that is no news then."""
        self._reader = asyncio.create_task(self._read(), name=f"{name}: channel")
        self._watch = asyncio.create_task(self._mind(), name=f"{name}: process")

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return bool(self._ended) or self.process.ended.done()

    def death(self) -> Fault:
        """What a call is told that it cannot answer any more."""
        how = self._ended or "ended"
        if self._stranger:
            return Fault(FaultType.CONFIG, f"its process {how}")
        last = self.process.last_lines
        said = f"{LAST_SAID}{last[-1]}" if last and not self.loaded and "exit status" in how else ""
        return Fault(
            FaultType.TRANSPORT,
            f"{self._name}: its process {how}; try again in a moment"
            if self.answering
            else f"its process {how}{said}",
            data={"agent": self._name, "ended": how},
        )

    def ask(self, emit: Emit | None = None, wire: RunWire | None = None) -> tuple[int, Asked]:
        """A number for a call, and where its answer will be. Raises Fault (TRANSPORT) when it has ended."""
        if self.over:
            raise self.death()
        call = next(self._calls)
        asked = self._asked[call] = Asked(asyncio.get_running_loop().create_future(), emit)
        asked.answer.add_done_callback(_retrieved)
        asked.answer.add_done_callback(lambda _: self._asks.end(call))
        if wire is not None:
            self._kept[call] = _Kept(wire)
            if len(self._kept) > _LATE_RUNS:
                self._kept.popitem(last=False)
        return call, asked

    def tell_peers(self) -> None:
        """Let it know whom its agent may ask now, where it does not."""
        if (tools := self._asks.news()) is not None:
            self.send(Peers(tools))

    def answered(self, call: int, asked: Asked) -> None:
        """Nobody waits for this call any more, unless it is still to be seen off."""
        if asked.answer.done():
            self._asked.pop(call, None)

    def drop(self, call: int, asked: Asked) -> None:
        """Nobody waits for this call any more; what was said of it there is forgotten."""
        if not asked.answer.done():
            self._asked.pop(call, None)
            self._asks.end(call)
            self.send(Cancel(call))

    async def do(self, what: str, seconds: float = 0.0) -> None:
        """Have something done there. Raises Fault."""
        call, asked = self.ask()
        try:
            self.send(Do(call, what, seconds))
            await asked.answer
        finally:
            self._asked.pop(call, None)

    def send(self, message: From) -> None:
        """Say something to it; never waits, and nothing once it has ended."""
        if self._ended:
            return
        try:
            self.process.channel.send(packed(message))
        except ChannelBroken as error:
            self.process.end(f"was ended, because it takes nothing any more ({error})", force=True)

    async def room(self) -> None:
        """Wait until it has taken most of what was said."""
        with suppress(ConnectionError):  # how it ended is told by who awaits it
            await self.process.channel.room()

    async def reacts(self, seconds: float) -> bool:
        """Whether the loop there is free to hear anything: a cancel of nothing is answered at once."""
        if self.over:
            return False
        call, asked = self.ask()
        self.send(Cancel(call))
        await self.first(asked.answer, timeout=seconds)
        self._asked.pop(call, None)
        return asked.answer.done() and not self.over

    async def see_off(self, call: int, asked: Asked, seconds: float) -> None:
        """Cancel a run there and wait until it is over; whoever waits for that may go.

        A process where that takes longer than ``seconds`` is ended.
        """
        self._asks.end(call)
        task = asyncio.create_task(self._cancelled(call, asked, seconds), context=Context())
        self._seeing_off.add(task)
        task.add_done_callback(self._seeing_off.discard)
        await asyncio.wait({task})

    async def first(self, *futures: asyncio.Future[Any], timeout: float) -> None:
        """Until one of these is done, or the process has ended."""
        await asyncio.wait(
            {*futures, self.process.ended}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )

    async def close(self) -> None:
        """End what is left of the process, and whatever waits for it."""
        await self.process.close()
        _, late = await asyncio.wait({self._reader, self._watch, *self._seeing_off}, timeout=2.0)
        for task in late:
            task.cancel()

    async def _cancelled(self, call: int, asked: Asked, seconds: float) -> None:
        self.send(Cancel(call))
        await self.first(asked.answer, timeout=seconds)
        self._asked.pop(call, None)
        if not asked.answer.done() and not self.over:
            self.process.end(
                f"was ended, because it did not react to a cancel within {seconds:g} s", force=True
            )

    async def _read(self) -> None:
        """Take what the process says, until it ends."""
        process = self.process
        try:
            while (document := await process.channel.receive()) is not None:
                self._hear(unpacked(document))
            await self.first(timeout=_HUNG_UP)
            if not self.over:
                process.end("was ended, because it closed its channel", force=True)
        except (ChannelBroken, Undecodable) as error:
            process.end(f"was ended, because it sent what is no message ({error})", force=True)
        except Exception:
            log.exception("%s: what its process said could not be used", self._name)
            process.end("was ended, because what it said could not be used", force=True)

    async def _mind(self) -> None:
        """Wait for the end of the process, and tell everyone who waits for it."""
        process = self.process
        how = await asyncio.shield(process.ended)
        await asyncio.wait({self._reader}, timeout=1.0)  # what it said before its end
        self._ended = how = self._stranger or how
        if not self.leaving:
            await process.read_out()
            log.error(
                "%s: its process %s",
                self._name,
                how,
                extra={"agent": self._name, "stderr": list(process.last_lines), "pid": process.pid},
            )
            # First: whoever looks after the agent knows when it answers again, and tells its callers.
            self._broke(f"its process {how}")
        for asked in list(self._asked.values()):
            if not asked.answer.done():
                asked.answer.set_exception(self.death())
        self._asks.end()

    def _hear(self, said: Any) -> None:
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
                self._learned(said)
                self._answer(said.call, said)
            case Failed():
                self._learned(said)
                self._fail(said)
            case State():
                self.state = said
            case Hello():
                self._greet(said)
            case Ask():
                asked = self._asked.get(said.call)
                self._asks.ask(said, asked.asker if asked is not None and not asked.answer.done() else None)
            case Leave():
                self._asks.leave(said.ask)
            case Broken():
                self._broke(said.reason)
            case _:
                raise Undecodable(f"a process says {type(said).__name__}")

    def _greet(self, hello: Hello) -> None:
        self.process.pid = hello.pid
        if (hello.version, hello.protocol) != (__version__, PROTOCOL):
            self._stranger = (
                f"is of another Pallas ({one_line(hello.version, 20)}) than this fleet ({__version__}), "
                "which was started before that was installed; start the fleet again"
            )
            self.process.end(self._stranger, force=True)

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


def _retrieved(future: asyncio.Future[Any]) -> None:
    """Nobody may be waiting for it any more, and that is no news."""
    if not future.cancelled():
        future.exception()
