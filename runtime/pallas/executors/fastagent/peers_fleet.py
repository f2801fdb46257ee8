"""The fleet's side of an agent's peers: a call of one is a run in the kernel, below the span of the call."""

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING

from pallas.executors.nested_events import NestedEvents
from pallas.executors.peer_port import PeerPort
from pallas.model import Fault, FaultType, TraceContext

from ..base import Emit, ExecutorTurn
from .peer_tools import PeerTool, tool_of

if TYPE_CHECKING:
    from pallas.messaging.messaging_port import PeerFacts


class FleetPeers:
    """``PeerCalls`` in the fleet's own process."""

    def __init__(self, port: PeerPort, agent: str) -> None:
        self._port = port
        self._agent = agent
        self._facts: tuple[PeerFacts, ...] = ()
        self._tools: tuple[PeerTool, ...] = ()

    def tools(self) -> tuple[PeerTool, ...]:
        """As in ``PeerCalls``. Leaves out agents that are stopped or have failed for good."""
        facts = self._port.peer_facts(self._agent)
        if facts != self._facts:
            self._facts, self._tools = facts, tuple(map(tool_of, facts))
        return self._tools

    async def ask(
        self,
        peer: str,
        text: str,
        turn: ExecutorTurn,
        trace: TraceContext | None,
        emit: Emit,
        *,
        call_id: str = "",
    ) -> str:
        """As in ``PeerCalls``. The peer's run has this run's principal, and none of its credentials."""
        span = trace.span_id if trace is not None else ""
        hear = NestedEvents(turn.run_id, turn.agent, span, emit, with_text=turn.stream_text)
        # In an empty context: a peer must not get this one's values, such as the caller's bearer.
        run = asyncio.create_task(
            self._port.ask_peer(turn, peer, text, call_id=call_id, trace=trace, listener=hear),
            name=f"{turn.agent} asks {peer}",
            context=Context(),
        )
        try:
            await asyncio.wait({run})
        finally:
            hear.is_closed = True
            run.cancel()
        if run.cancelled():
            raise Fault(FaultType.TRANSPORT, f"{peer} was cut short; try again in a moment")
        return run.result().text
