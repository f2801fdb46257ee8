"""Deliver messages between handlers until the run that they belong to has a result."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from pallas.contract import Boot
from pallas.model import Envelope, Fault, FaultType
from pallas.payloads import Payload, PayloadType

from .frames import new_id
from .handler_work import GRACE
from .message_log import MessageLog
from .message_run import MessageRun
from .messaging_port import Emit, HandlerEndpoint, MessageSender, MessagingPeers
from .send_rules import CALLER, MAX_DEPTH, SYSTEM
from .shared_state import MessagingState

__all__ = ["CALLER", "First", "MessageDelivery"]

log = logging.getLogger(__name__)

BOOT: Final = "pallas.contract:Boot"


@dataclass(frozen=True, slots=True)
class First:
    """The message that a run begins with."""

    to: str
    payload: Payload
    asker: MessageSender
    sender: str = CALLER
    """An agent of the fleet, or ``CALLER``."""
    thread: str = ""
    """The UUID for its frame; empty for a new one."""
    nested: bool = False
    """Nested runs do not wait for a pipeline (HC-31)."""
    home: str = ""
    """The agent of the first frame, if messages to it return to that frame instead of opening a new one."""


class MessageDelivery:
    """All messages of one fleet. Belongs to one event loop."""

    def __init__(self, peers: MessagingPeers) -> None:
        self._peers = peers
        self._state = MessagingState(peers)
        self._runs: set[MessageRun] = set()
        self._boots: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def root(self) -> str:
        """The UUID of the root thread, which exists before any message (HC-25)."""
        return self._state.root

    @property
    def open_frames(self) -> int:
        """The number of open frames."""
        return len(self._state.frames)

    @property
    def handling(self) -> int:
        """The number of messages being handled."""
        return self._state.slots.running

    @property
    def waiting(self) -> int:
        """The number of messages and runs that wait for their turn."""
        return self._state.queued + self._state.pipelines.waiting

    @property
    def log(self) -> MessageLog:
        """The messages of recent runs."""
        return self._state.log

    def envelopes(self, run_id: str, after: int = 0, limit: int | None = None) -> tuple[Envelope, ...]:
        """Return the messages of a run with a ``number`` above ``after``, lowest first, at most ``limit``."""
        return self._state.log.envelopes(run_id, after, limit)

    async def boot(self, emit: Emit) -> None:
        """Send Boot to each handler that takes it, and return when all of them have handled it.

        Messages that follow from it go on until ``close``. Failures are logged: the fleet starts all the
        same.
        """
        boot = PayloadType.of(Boot).pack(Boot(self._peers.project, self._peers.agents))
        runs = [self._booted(endpoint, boot, emit) for endpoint in self._peers.takers(BOOT)]
        for run in runs:
            await run.handled()

    async def exchange(self, first: First, emit: Emit) -> Payload | None:
        """Deliver a message and all that follow; return the result, None if there is none (HC-5).

        Cancelling it cancels every handler that works for it. Raises Fault.
        """
        self._check(first)
        pipelines = self._state.pipelines
        if not first.nested:
            await pipelines.take(self._state.queued)
        try:
            self._check(first)  # After a long wait the fleet may be stopping.
            run = MessageRun(self._state, first.asker, emit, first.sender, home=first.home)
            self._runs.add(run)
            try:
                run.begin(first.to, first.payload, thread=first.thread)
                return await run.done
            finally:
                self._runs.discard(run)
                await run.close()
        finally:
            if not first.nested:
                pipelines.give()

    async def close(self) -> None:
        """Cancel all runs."""
        self._closed = True
        self._state.pipelines.refuse(_stopping())
        for run in list(self._runs):
            run.finish(None, _stopping())
        tasks = {each.task for each in self._state.works if each.task is not None} | self._boots
        if tasks:
            await asyncio.wait(tasks, timeout=2 * GRACE)

    def _check(self, first: First) -> None:
        if self._closed:
            raise _stopping()
        if first.asker.depth >= MAX_DEPTH:
            raise Fault(FaultType.UPSTREAM, f"More than {MAX_DEPTH} agents below each other")

    def _booted(self, endpoint: HandlerEndpoint, boot: Payload, emit: Emit) -> MessageRun:
        id_ = new_id()
        run = MessageRun(self._state, MessageSender(run_id=id_, agent=endpoint.name), emit, SYSTEM)
        self._runs.add(run)
        task = asyncio.get_running_loop().create_task(
            self._boot(run, endpoint, boot, id_), name=f"boot of {endpoint.name}"
        )
        self._boots.add(task)
        task.add_done_callback(self._boots.discard)
        return run

    async def _boot(self, run: MessageRun, endpoint: HandlerEndpoint, boot: Payload, id_: str) -> None:
        try:
            run.begin(endpoint.name, boot, thread=id_, route="boot")
            await run.done
        except Fault as fault:
            log.warning("%s: boot failed: %s", endpoint.name, fault.message, extra={"agent": endpoint.name})
        finally:
            self._runs.discard(run)
            await run.close()


def _stopping() -> Fault:
    return Fault(FaultType.TRANSPORT, "The fleet is stopping")
