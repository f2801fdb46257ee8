"""The two sides of a typed handler's executor: the host of its code, and the fleet."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pallas.config.kinds import PumpLimits
from pallas.messaging.delivery import First
from pallas.messaging.messaging_port import Delivery, Emit, HandlerReply
from pallas.model import Principal, Usage
from pallas.payloads import Payload, PayloadType


@dataclass(frozen=True, slots=True)
class HandlerFacts:
    """What loading found out: the type of its messages, and where it is defined (``agents/add.py:8``)."""

    payload: PayloadType
    defined: str = ""


class HandlerHost(Protocol):
    """Runs a typed handler's code, in this process or in one of its own. One event loop only.

    Called in the order of an ``Executor``; ``handle`` only between ``start`` and ``close``.
    """

    @property
    def pid(self) -> int | None:
        """The process that runs its code, None for this one."""
        ...

    @property
    def files(self) -> tuple[str, ...]:
        """The project's files that it was made of so far, as in ``ExecutorInfo.files``."""
        ...

    async def load(self, *, fresh: bool) -> HandlerFacts:
        """Import the handler and its payload's class, and check both; ``fresh`` as for ``Executor.load``.

        Raises Fault (CONFIG) with file and line.
        """
        ...

    async def start(self) -> None:
        """Take messages from now on."""
        ...

    async def handle(self, delivery: Delivery) -> HandlerReply:
        """Return the handler's reply to a message; cancelling this cancels the handler. It has no timeout.

        Raises what the handler raises, InvalidReply if it returned something that is no reply, PayloadFault
        if its reply does not fit its own class, and Fault if its process failed.
        """
        ...

    def ended(self, frame: str) -> None:
        """Drop the frame's scratch storage; returns at once."""
        ...

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """As ``Executor.when_failed``."""
        ...

    async def park(self, timeout_s: float) -> None:
        """End what runs; no messages are handled any more."""
        ...

    async def close(self, timeout_s: float) -> None:
        """Release everything."""
        ...


class MessagingPort(Protocol):
    """The fleet as a typed handler's executor sees it."""

    @property
    def limits(self) -> PumpLimits:
        """The limits that the project's files say now."""
        ...

    async def exchange(self, first: First, emit: Emit) -> Payload | None:
        """Deliver a message and all that follow from it; return the answer to it. Raises Fault."""
        ...

    def principal(self, run_id: str) -> Principal:
        """Return the caller of a run in flight."""
        ...

    def used(self, run_id: str) -> Usage:
        """Return what the handlers of a run used of models together, and forget it."""
        ...
