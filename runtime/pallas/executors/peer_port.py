"""The port by which a model agent reaches its peers (``peers:``): list them, and call one."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pallas.model import Event, RunResult, TraceContext

from .base import ExecutorTurn

if TYPE_CHECKING:  # the payload types are imported only by fleets that have typed handlers
    from pallas.messaging.messaging_port import PeerFacts


class PeerPort(Protocol):
    """The part of the fleet that a model's tools use. One event loop only.

    An executor that has ``reach_peers(port)`` is given one by its fleet, once, before ``load``.
    """

    def peer_facts(self, agent: str) -> "tuple[PeerFacts, ...]":
        """Return the peers of ``agent`` that exist, by the current agents.yaml."""
        ...

    async def ask_peer(
        self,
        turn: ExecutorTurn,
        peer: str,
        text: str,
        *,
        call_id: str = "",
        trace: TraceContext | None = None,
        listener: Callable[[Event], None] | None = None,
    ) -> RunResult:
        """Return the answer of ``peer`` to ``text``, called by the run of ``turn`` with its principal.

        ``trace`` is the span of the call, ``text`` JSON if the peer is a typed handler. Cancelling it
        cancels the peer's run. With the ``call_id`` of a durable turn the peer's run is durable too, and the
        call of another attempt joins it. Raises Fault: also if the agent has no such peer (HC-15).
        """
        ...
