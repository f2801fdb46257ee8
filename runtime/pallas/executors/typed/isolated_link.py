"""One process of an isolated handler from the fleet's side: what it is asked, what it says, how it ended."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from typing import Any, Final

from pallas import __version__
from pallas.messaging.port import Delivery
from pallas.model import Fault, FaultType
from pallas.model.codec import Undecodable
from pallas.model.safe_text import one_line
from pallas.payloads import PayloadType

from ..process.channel import ChannelBroken
from ..process.spawn import Spawned
from .isolated_asks import Asks
from .isolated_calls import Calls, Gone, Open
from .isolated_messages import (
    PROTOCOL,
    Ask,
    Begin,
    Begun,
    Cancel,
    Close,
    Drop,
    Ended,
    Failed,
    From,
    Hello,
    Invoke,
    Kind,
    Load,
    Loaded,
    Logged,
    NotLoaded,
    Returned,
    frame_of,
    from_process,
    packed,
)
from .isolated_told import Kinds, Pace, Records
from .isolated_watch import children, oversee

log = logging.getLogger(__name__)

GRACE: Final = 1.0
"""Seconds that a handler which was cancelled has to end, before its process is ended with all in it."""
# Seconds until a process that closed its channel has ended, or it is ended.
_HUNG_UP: Final = 1.0
# Seconds that a process has to show that its loop is free, when it is to end.
_REACT: Final = 1.0
# Seconds after each frame that whoever says too much is not listened to.
_DEAF: Final = 0.05
_NO_MEMORY: Final = "ran out of memory"


class HandlerLink:
    """A process and all messages that are in it. ``broke`` hears once how it ended by itself, or was ended:
    with the reason, and whether the fleet did that."""

    def __init__(self, name: str, process: Spawned, memory: int, broke: Callable[[str, bool], None]) -> None:
        self._name = name
        self._broke = broke
        self.calls = Calls()
        self._frames: set[str] = set()
        self._records = Records(name)
        self._chores: set[asyncio.Task[None]] = set()
        self._ended = ""
        self._ours = ""
        self._broken = False
        self._stranger = False
        self._pace = Pace()
        self.kinds = Kinds()
        self.process = process
        self.pid: int | None = None
        self.told = asyncio.Event()
        """Whoever hears how it ended has heard it."""
        self.leaving = False
        """It is meant to end: that is no news then."""
        self._reader = self._own(self._read(), "channel")
        self._watch = self._own(self._mind(), "process")
        self._overseer = self._own(oversee(process.keeper, memory, self.calls.busy, self.end), "limits")

    @property
    def over(self) -> bool:
        """Whether it has ended, or is about to."""
        return bool(self._ended or self._ours) or self.process.ended.done()

    def end(self, why: str, *, broken: bool = False) -> None:
        """End it by force; ``broken`` where what it said is no message of this protocol."""
        if not self.over:
            self._ours, self._broken = why, broken
        self.process.end(self._ours, force=True)

    async def load(self, begin: Begin) -> tuple[Loaded | NotLoaded, PayloadType | None]:
        """Have it import its code. Raises Fault."""
        self._send(begin)
        call, opened = self._ask(Loaded, NotLoaded)
        self._send(Load(call))
        try:
            await asyncio.wait({opened.answer})
        finally:
            self.calls.forget(call)
        try:
            said = opened.answer.result()
        except Gone as gone:
            raise gone.fault from None
        if not isinstance(said, Loaded):
            return said, None
        self.process.channel.most = frame_of(begin.bytes)  # its sources, which are longer, have come
        try:
            return said, self.kinds.learn(str(said.payload.get("key", "")), said.payload, 1)
        except Undecodable as error:
            self.end(f"was ended, because {error}", broken=True)
            raise self._fault() from None

    async def handle(self, delivery: Delivery) -> Returned | Failed:
        """Have a message handled; cancelling that cancels the handler there. Raises Gone."""
        payload = delivery.payload
        call, opened = self._ask(Returned, Failed)
        if delivery.completer is not None:
            opened.asks = Asks(self._name, delivery.completer, lambda said: self._send(said))
        self._frames.add(delivery.frame)
        self._send(
            Invoke(
                call,
                payload.key,
                payload.name,
                payload.xml.decode(),
                delivery.metadata,
                delivery.frame,
                delivery.completer is not None,
            )
        )
        try:
            await asyncio.wait({opened.answer})
        except asyncio.CancelledError:
            self._own(self._see_off(call, opened), "cancelled")
            raise
        else:
            self.calls.forget(call)
        finally:
            if opened.asks is not None:
                opened.asks.close()
        said: Returned | Failed = opened.answer.result()
        return said

    def drop(self, frame: str) -> None:
        """A frame is over."""
        if frame in self._frames:
            self._frames.discard(frame)
            self._send(Ended(frame))

    async def leave(self, timeout: float) -> None:
        """End it: in order within about ``timeout`` seconds, else by force, and all that waits for it."""
        self.leaving = True
        try:
            if not self.over and await self._reacts(min(_REACT, timeout / 2)):
                self._send(Close(timeout))
                await self._first(timeout=timeout)
        finally:  # also for who is cancelled in the middle of it
            self.process.end(force=True)
        await self.process.close()
        self._overseer.cancel()
        _, late = await asyncio.wait({self._reader, self._watch, *self._chores}, timeout=2.0)
        for task in late:
            task.cancel()

    # What goes on

    def _ask(self, *kinds: type) -> tuple[int, Open]:
        if self.over:
            raise Gone(self._fault(), again=bool(self._ours))
        return self.calls.add(*kinds)

    async def _see_off(self, call: int, opened: Open) -> None:
        """Cancel a message there and wait until that is done; where it is not, the process goes."""
        self._send(Cancel(call))
        await self._first(opened.answer, timeout=GRACE)
        self.calls.forget(call)
        if not opened.answer.done() and not self.over:
            self.end(f"was ended, because a message in it did not end within {GRACE:g} s of its cancel")

    async def _reacts(self, seconds: float) -> bool:
        call, opened = self._ask(Returned, Failed)
        self._send(Cancel(call))
        await self._first(opened.answer, timeout=seconds)
        self.calls.forget(call)
        return opened.answer.done() and not self.over

    async def _first(self, *futures: asyncio.Future[Any], timeout: float) -> None:
        await asyncio.wait(
            {*futures, self.process.ended}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )

    def _send(self, message: From) -> None:
        if self.over:
            return
        try:
            self.process.channel.send(packed(message))
        except ChannelBroken as error:
            self.end(f"was ended, because it takes nothing any more ({error})")

    def _own(self, work: Any, what: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work, name=f"{self._name}: {what}", context=Context())
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        return task

    # What it says

    async def _read(self) -> None:
        """Take what the process says, until it ends or says what it may not."""
        channel = self.process.channel
        try:
            while (document := await channel.receive()) is not None:
                self._hear(from_process(document))
                if self._pace.hurried() or self._records.flooded:
                    await asyncio.sleep(_DEAF)
            await self._first(timeout=_HUNG_UP)
            if not self.process.ended.done():
                self.end("was ended, because it closed its channel", broken=True)
        except (ChannelBroken, Undecodable) as error:
            self.end(f"was ended, because it sent what is no message ({one_line(str(error))})", broken=True)
        except RecursionError:
            self.end("was ended, because it sent what is no message (too deep)", broken=True)

    def _hear(self, said: Any) -> None:
        match said:
            case Logged():
                self._records.tell(said.record)
            case Begun():
                self.calls.of(said.call).begun = True
            case Kind():
                self.kinds.learn(said.key, said.described, self.calls.given)
            case Returned() | Failed() | Loaded() | NotLoaded():
                self.calls.answer(said.call, said)
            case Ask():
                if (asks := self.calls.of(said.call).asks) is None:
                    raise Undecodable("it asks a model where there is none")
                asks.ask(said)
            case Drop():
                self.calls.drop(said.call, said.ask)
            case Hello():
                self._greet(said)

    def _greet(self, hello: Hello) -> None:
        below = children(self.process.keeper)
        self.pid = below[0] if below else hello.pid
        if (hello.version, hello.protocol) != (__version__, PROTOCOL):
            self._stranger = True
            self.end(
                f"is of another Pallas ({one_line(hello.version, 20)}) than this fleet ({__version__}), "
                "which was started before that was installed; start the fleet again"
            )

    # How it ends

    async def _mind(self) -> None:
        """Wait for the end of the process, and tell everyone who waits for it."""
        try:
            await self._tell()
        finally:
            self.told.set()

    async def _tell(self) -> None:
        how = await asyncio.shield(self.process.ended)
        await asyncio.wait({self._reader}, timeout=1.0)  # what it said before its end
        if how == _NO_MEMORY and not self._ours:
            self._ours = _NO_MEMORY
        self._ended = how = self._ours or how
        self._overseer.cancel()
        if not self.leaving:
            with suppress(Exception):
                await self.process.read_out()
            log.error(
                "%s: its process %s",
                self._name,
                how,
                extra={"agent": self._name, "stderr": list(self.process.last_lines), "pid": self.pid},
            )
            # First: whoever looks after the handler knows by then whether there is going to be another.
            self._broke(f"its process {how}", bool(self._ours) and not self._stranger)
        self.calls.fail(self._fault(), again=bool(self._ours) and not self._stranger)

    def _fault(self) -> Fault:
        how = self._ended or self._ours or "ended"
        data = {"agent": self._name, "ended": how}
        if self._stranger:
            return Fault(FaultType.CONFIG, f"its process {how}", data=data)
        if self._broken:
            return Fault(FaultType.PROTOCOL, f"its process {how}", data=data)
        return Fault(FaultType.TRANSPORT, f"its process {how}; try again in a moment", data=data)
