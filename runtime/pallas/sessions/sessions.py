"""The sessions of a fleet: opened, asked, closed, expired (SPEC 7.4)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import time
from typing import Any

from pallas.config.kinds import SessionLimits
from pallas.directory import Directory
from pallas.events import Hub
from pallas.kernel import Kernel
from pallas.model import NO_PARAMS, Image, Params, Principal, RunResult, SessionRecord, TraceContext
from pallas.runs import Listener

from .delegating import Delegated


class Sessions:
    """Leases on threads. Belongs to the fleet's event loop; counts and records may be read from any thread.

    A session is its principal's: for all others there is none of that id. It remembers which agent it was
    opened with, and no other one ever answers in it (DR-17). Its first prompt begins a thread, which outlives
    it (C11). ``limits`` are asked each time; ``clock`` is Unix seconds.
    """

    def __init__(
        self,
        kernel: Kernel,
        directory: Directory,
        *,
        hub: Hub,
        limits: Callable[[], SessionLimits] = SessionLimits,
        permit: Callable[[str, Principal, TraceContext | None], None] = lambda agent, principal, trace: None,
        clock: Callable[[], float] = time,
    ) -> None:
        self._directory = directory

    @property
    def active(self) -> int:
        """Sessions that are open."""
        return 0

    @property
    def capacity(self) -> int:
        """Sessions that there may be: of agents in this process, and of each other one."""
        return 0

    def of(self, agent: str) -> int:
        """Sessions that are open with an agent."""
        return 0

    def records(self, principal: Principal | None = None) -> tuple[SessionRecord, ...]:
        """The sessions of a principal, or all, oldest first."""
        raise NotImplementedError

    async def create(
        self,
        agent: str | None,
        principal: Principal,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> SessionRecord:
        """A new session with that agent, or with the one that ``Directory.resolve`` finds without.

        ``metadata`` may have ``provider`` (the agent's to be asked), ``runtimeParams`` (for all its prompts),
        and ``resume``: the id of a session that failed, which is opened again in place of a new one.
        Raises Fault; then nothing is left behind.
        """
        raise NotImplementedError

    async def prompt(
        self,
        session_id: str,
        text: str,
        principal: Principal,
        *,
        timeout: float | None = None,
        params: Params = NO_PARAMS,
        queue: bool = False,
        listener: Listener | None = None,
        bearer: str | None = None,
        trace: TraceContext | None = None,
        caller: str = "",
        images: Sequence[Image] = (),
    ) -> RunResult:
        """Ask in a session; ``timeout`` in seconds, the wait included.

        One that is busy refuses, unless with ``queue``. A run that is cancelled ends with the
        ``stop_reason`` ``cancelled`` and what it had written. Raises Fault; its data says ``sessionValid``.
        """
        raise NotImplementedError

    async def cancel(self, session_id: str, principal: Principal, run_id: str | None = None) -> bool:
        """Stop what runs in a session now, or only that run; False where nothing does. Raises Fault."""
        raise NotImplementedError

    def status(self, session_id: str, principal: Principal) -> SessionRecord:
        """The session. Raises Fault (UPSTREAM) ``Session not found: ...``."""
        raise NotImplementedError

    async def close(self, session_id: str, principal: Principal, reason: str = "closed") -> bool:
        """End a session; False where there is none of that id any more, or ever: that is no error."""
        raise NotImplementedError

    async def delegate(
        self,
        text: str,
        principal: Principal,
        *,
        agent: str | None = None,
        timeout: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        params: Params = NO_PARAMS,
        listener: Listener | None = None,
        bearer: str | None = None,
        trace: TraceContext | None = None,
        caller: str = "",
    ) -> Delegated:
        """A session for this prompt alone, closed when it is over. Raises nothing but what cancels it."""
        raise NotImplementedError

    def look(self) -> None:
        """Agents may have come or gone: sessions of those that went are over."""

    async def reap(self) -> int:
        """End those that are too old or idle for too long, none that is busy; how many (DR-13)."""
        raise NotImplementedError

    async def tend(self) -> None:
        """``reap`` now and then, until cancelled."""
        while True:
            await asyncio.sleep(60.0)

    async def end(self) -> None:
        """The fleet stops: all are over, within two seconds."""
