"""An agent in a process of its own asks its peers: over the channel, for the fleet alone may ask them."""

import asyncio
import logging
import re
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from pallas.model import Fault, FaultType, TraceContext
from pallas.model.codec import fault_of

from ..base import Emit, Turn
from ..fastagent.peers import PeerCalls, PeerTool
from .messages import Ask, Leave, Replied

log = logging.getLogger(__name__)

MAX_OPEN: Final = 200
"""Questions of one process that may be open at once; beyond, they are refused."""

# The process runs a project's code: what is to be a span may be anything.
_SPAN: Final = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Asker:
    """A run of the process, as the fleet knows it: on whose behalf it asks. ``trace`` is its own span."""

    turn: Turn
    trace: TraceContext | None
    emit: Emit


class Asks:
    """The fleet's side: each question of the process in a task, which ends with its run at the latest."""

    def __init__(self, calls: PeerCalls | None, reply: Callable[[Replied], None]) -> None:
        self._calls = calls
        self._reply = reply
        self._told: tuple[PeerTool, ...] = ()
        self._open: dict[int, tuple[int, asyncio.Task[None]]] = {}

    def news(self) -> tuple[PeerTool, ...] | None:
        """The peers there are now, where the process does not know that yet."""
        if self._calls is None or (tools := self._calls.tools()) is self._told:
            return None
        self._told = tools
        return tools

    def ask(self, said: Ask, asker: Asker | None) -> None:
        """The process asks; ``asker`` is None where the run that it names is over."""
        if self._calls is None or asker is None:
            self._fail(said.ask, Fault(FaultType.PROTOCOL, "there is no run for which a peer could be asked"))
        elif len(self._open) >= MAX_OPEN or said.ask in self._open:
            text = f"{MAX_OPEN} questions to peers are open already; ask for less at once"
            self._fail(said.ask, Fault(FaultType.TRANSPORT, text))
        else:
            # In an empty context: what the channel is read in is nobody's run.
            task = asyncio.create_task(self._answer(self._calls, said, asker), context=Context())
            self._open[said.ask] = (said.call, task)
            task.add_done_callback(lambda _: self._open.pop(said.ask, None))

    def leave(self, ask: int) -> None:
        """Nobody waits for that answer any more: what was asked is cancelled."""
        if (found := self._open.get(ask)) is not None:
            found[1].cancel()

    def end(self, call: int | None = None) -> None:
        """That run, or each, is over: what it asked is cancelled."""
        for of, task in list(self._open.values()):
            if call in (None, of):
                task.cancel()

    async def _answer(self, calls: PeerCalls, said: Ask, asker: Asker) -> None:
        trace = asker.trace if _SPAN.fullmatch(said.span) else None
        trace = replace(trace, span_id=said.span) if trace is not None else None
        try:
            text = await calls.ask(said.peer, said.text, asker.turn, trace, asker.emit)
        except Fault as fault:
            self._fail(said.ask, fault)
        except asyncio.CancelledError:
            self._fail(said.ask, Fault(FaultType.TRANSPORT, "the question was cancelled"))
            raise
        except Exception:
            text = "the peer could not be asked; the log has the details"
            self._fail(said.ask, Fault(FaultType.INTERNAL, text))
            log.exception("a peer could not be asked")
        else:
            self._reply(Replied(said.ask, text))

    def _fail(self, ask: int, fault: Fault) -> None:
        self._reply(Replied(ask, fault=fault.to_body()))


class Above:
    """As ``PeerCalls`` in the process: the fleet above is told whom to ask, and tells what was answered."""

    def __init__(self, say: Callable[[Ask | Leave], None]) -> None:
        self._say = say
        self._tools: tuple[PeerTool, ...] = ()
        self._numbers = count(1)
        self._runs: dict[str, int] = {}
        self._open: dict[int, asyncio.Future[str]] = {}
        self._gone = False

    def learn(self, tools: tuple[PeerTool, ...]) -> None:
        """The fleet says which there are now."""
        self._tools = tools

    def begins(self, run_id: str, call: int) -> None:
        """A run begins, which the fleet knows by the number ``call``."""
        self._runs[run_id] = call

    def ends(self, run_id: str) -> None:
        """It is over."""
        self._runs.pop(run_id, None)

    def tools(self) -> tuple[PeerTool, ...]:
        """As in ``PeerCalls``: what the fleet said before the run."""
        return self._tools

    async def ask(self, peer: str, text: str, turn: Turn, trace: TraceContext | None, emit: Emit) -> str:
        """As in ``PeerCalls``; what happens in the peer's run is told by the fleet itself."""
        call = self._runs.get(turn.run_id)
        if self._gone or call is None:
            raise Fault(FaultType.TRANSPORT, f"{peer} cannot be asked: the fleet is gone")
        number = next(self._numbers)
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open[number] = future
        self._say(Ask(call, number, peer, text, trace.span_id if trace is not None else ""))
        try:
            return await future
        except asyncio.CancelledError:
            self._say(Leave(number))
            raise
        finally:
            del self._open[number]

    def heard(self, said: Replied) -> None:
        """The fleet answers."""
        future = self._open.get(said.ask)
        if future is None or future.done():
            return
        if said.fault:
            future.set_exception(fault_of(said.fault, "the peer failed and did not say how; see the log"))
        else:
            future.set_result(said.text)

    def close(self) -> None:
        """The fleet is gone, or does not listen any more: nobody will answer."""
        self._gone = True
        for future in self._open.values():
            if not future.done():
                future.set_exception(Fault(FaultType.TRANSPORT, "the fleet is gone; nobody answers"))
