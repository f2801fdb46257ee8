"""The run that a durable turn asks for at another Pallas: asked again with its key, it is joined."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b
from time import monotonic
from typing import Any, Final

from pallas.deadlines import cancel_and_wait
from pallas.model import Fault, FaultType

from ..base import ExecutorTurn, TurnJournal
from .call_method import KEY_META, CallMethod
from .turn_arguments import META

JOIN_META: Final = f"{META}/join"
CANCEL_META: Final = f"{META}/cancel"
AGAIN_SECONDS: Final = 120.0
"""How long a run is asked for again after the connection to it broke off."""
_PAUSE: Final = 0.5
_CANCEL_SECONDS: Final = 10.0
_MAX_CANCELS: Final = 100

log = logging.getLogger(__name__)


@dataclass
class RunThere:
    """What is known of the run there. Without a ``key`` it ends with its caller's connection."""

    key: str = ""
    journal: TurnJournal | None = None
    joins: bool = False
    """Whether it was asked for before: in an earlier attempt, or over a connection that broke off."""
    is_open: bool = False
    """Whether it may be under way without a caller."""
    _until: float = 0.0
    _asked_at: float = 0.0

    @classmethod
    def of(cls, turn: ExecutorTurn, *, forwards: bool) -> "RunThere":
        """The run of a turn; without a key if the caller's token is sent along, which is stored nowhere."""
        if turn.journal is None or (forwards and turn.bearer):
            return cls()
        # Whoever has the key gets the answer: the thread's id is in it, and cannot be found from it.
        named = "\0".join((turn.thread, turn.run_id, turn.agent))
        key = blake2b(named.encode(), digest_size=20).hexdigest()
        return cls(key, turn.journal, joins=turn.attempt > 1)

    def asked(self, way: CallMethod) -> dict[str, Any]:
        """Return what the call that is about to be made has in ``_meta``."""
        if not way.keyed or not self.key:
            return {}
        meta = {KEY_META: self.key, **({JOIN_META: True} if self.joins else {})}
        self.joins = self.is_open = True
        self._asked_at = monotonic()
        return meta

    async def may_be_asked_again(self, fault: Fault) -> bool:
        """Return whether a call that failed so is made again, after a pause: the run goes on without it."""
        if not self.is_open or not (fault.retryable or fault.type is FaultType.TRANSPORT):
            return False
        now = monotonic()
        # A connection that held for so long was one: the next one has all the time again.
        was_held = self._asked_at > 0 and now - self._asked_at > AGAIN_SECONDS
        self._asked_at = 0.0
        if not self._until or was_held:
            self._until = now + AGAIN_SECONDS
        await asyncio.sleep(_PAUSE)
        return monotonic() < self._until


class CancelsThere:
    """Cancels of runs whose callers here are gone. ``send`` calls the other side with that metadata."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, there: RunThere, send: Callable[[dict[str, Any]], Awaitable[object]]) -> None:
        """Cancel a run that may be under way, unless it goes on for another fleet. Returns at once."""
        journal = there.journal
        if not there.is_open or journal is None or journal.is_left or len(self._tasks) >= _MAX_CANCELS:
            return
        task = asyncio.create_task(self._cancel(there, journal, send), name=f"cancel at {self._name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, timeout_s: float) -> None:
        """Wait for those that are being sent, then give them up."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
            await cancel_and_wait(*self._tasks, seconds=1.0)

    async def _cancel(
        self,
        there: RunThere,
        journal: TurnJournal,
        send: Callable[[dict[str, Any]], Awaitable[object]],
    ) -> None:
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                # This process may have been stopped for a while: then another fleet waits for that run.
                await journal.still_ours()
                if not journal.is_left:
                    await send({KEY_META: there.key, CANCEL_META: True})
        except Exception as error:  # any error of the transport
            log.warning("%s: a run there could not be cancelled: %s", self._name, type(error).__name__)
