"""What stands on both sides of a typed handler's executor: its code, in whichever process, and the fleet."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pallas.config.kinds import PumpLimits
from pallas.messaging.delivery import First
from pallas.messaging.messaging_port import Delivery, Emit, Reply
from pallas.model import Principal, Usage
from pallas.payloads import Payload, PayloadType


@dataclass(frozen=True, slots=True)
class HandlerFacts:
    """What loading found out: what the handler takes, and where it is (``agents/add.py:8``)."""

    payload: PayloadType
    defined: str = ""


class HandlerHost(Protocol):
    """Where a typed handler's code is: in this process, or in one of its own. One event loop only.

    Called in the order of an ``Executor``; ``handle`` only between ``start`` and ``close``.
    """

    @property
    def pid(self) -> int | None:
        """The process of its own, None for this one."""
        ...

    @property
    def files(self) -> tuple[str, ...]:
        """The project's files that it was made of so far, as ``ExecutorInfo.files``."""
        ...

    async def load(self, *, fresh: bool) -> HandlerFacts:
        """Import the handler and its payload's class, and check both. Raises Fault (CONFIG) with file and
        line; ``fresh`` as for ``Executor.load``."""
        ...

    async def start(self) -> None:
        """Take messages from now on."""
        ...

    async def handle(self, delivery: Delivery) -> Reply:
        """What the handler says to a message; cancelling it cancels the handler. Who asks bounds it.

        Raises what the handler raises, InvalidReply for what it returned that is no reply, and
        PayloadFault where that does not fit its own class; a Fault of whoever did not get it done.
        """
        ...

    def ended(self, frame: str) -> None:
        """That frame's scratch storage goes; returns at once."""
        ...

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """As ``Executor.when_failed``."""
        ...

    async def park(self, timeout: float) -> None:
        """Let go of what runs; nothing is handled any more."""
        ...

    async def close(self, timeout: float) -> None:
        """Let go of everything."""
        ...


class MessagingPort(Protocol):
    """The fleet as a typed handler's executor reaches it."""

    @property
    def limits(self) -> PumpLimits:
        """As the project's files say now."""
        ...

    async def exchange(self, first: First, emit: Emit) -> Payload | None:
        """Deliver a message and all that follow; what comes back. Raises Fault."""
        ...

    def principal(self, run_id: str) -> Principal:
        """Who asked for a run in flight."""
        ...

    def used(self, run_id: str) -> Usage:
        """What a run's handlers asked models for, together; it is forgotten with that."""
        ...
