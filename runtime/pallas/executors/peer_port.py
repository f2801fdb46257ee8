"""How an agent that is a model reaches its peers (``peers:``): who they are now, and asking one."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pallas.model import Event, Image, RunResult, TraceContext

from .base import ExecutorTurn

if TYPE_CHECKING:  # what says how messages look is imported by fleets that have some
    from pallas.messaging.messaging_port import PeerFacts


class PeerPort(Protocol):
    """The fleet as a model's tools reach it. One event loop only.

    An executor that has ``reach_peers(port)`` is given one by its fleet, once, before ``load``.
    """

    def peer_facts(self, agent: str) -> "tuple[PeerFacts, ...]":
        """The peers of ``agent`` as agents.yaml says now, those that there are."""
        ...

    async def ask_peer(
        self,
        turn: ExecutorTurn,
        peer: str,
        text: str,
        *,
        trace: TraceContext | None = None,
        images: tuple[Image, ...] = (),
        listener: Callable[[Event], None] | None = None,
    ) -> RunResult:
        """What ``peer`` answers to ``text``, asked by the run of ``turn`` for its principal.

        ``trace`` is the span of the call, ``text`` JSON where the peer is a typed handler. Cancelling it
        cancels the peer's run. Raises Fault: also where the agent has no such peer (HC-15).
        """
        ...
