"""Calls the session hooks of executors that have them (``SessionHooks``), each within a deadline."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from pallas.executors import Executor
from pallas.executors.live_agent import LiveAgent
from pallas.model import Fault, FaultType
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

from .lease import SessionLease

log = logging.getLogger(__name__)

OPEN_SECONDS: Final = 30.0
HOOK_SECONDS: Final = 12.0
"""Deadlines of an executor's hooks: when a session opens, and when one ends or is cancelled."""


async def begin(lease: SessionLease) -> None:
    """Tell the session's agent here that it begins, unless it knows, or the session is over.

    Raises Fault if it refuses.
    """
    async with lease.beginning:
        if not (lease.is_known or lease.end_reason):
            await opened(lease.answering, lease.id, lease.metadata)
            lease.is_known = True
        if lease.end_reason:  # perhaps it ended meanwhile
            await end(lease, lease.end_reason)


async def end(lease: SessionLease, reason: str) -> None:
    """Tell the session's agent here that it is over, if it knows the session."""
    if lease.is_known:
        lease.is_known = False
        await closed(lease.agent, lease.executor, lease.id, reason)


async def opened(agent: LiveAgent, session: str, metadata: Mapping[str, Any]) -> None:
    """Call the hook for a session that is about to begin.

    If it raises Fault, the session does not begin (DR-27).
    """
    hook = getattr(agent.executor, "session_opened", None)
    if hook is None:
        return
    try:
        async with asyncio.timeout(OPEN_SECONDS) as deadline:
            await hook(session, metadata)
    except Fault:
        raise
    except Exception as error:
        if deadline.expired():
            text = f"{agent.name} did not open the session within {OPEN_SECONDS:g} s; try again"
            raise Fault(FaultType.TIMEOUT, text) from None
        log.exception("%s: a session could not be opened", agent.name, extra={"agent": agent.name})
        cause = one_line(redact_text(f"{type(error).__name__}: {error}"), 300)
        text = f"{agent.name} refused the session; the log has the details"
        raise Fault(FaultType.UPSTREAM, text, cause=cause) from error


async def closed(agent: str, executor: Executor | None, session: str, reason: str) -> None:
    """Call the hook for a session that is over. Errors are logged."""
    await _told(agent, getattr(executor, "session_closed", None), session, reason)


async def cancelled(agent: str, executor: Executor | None, session: str) -> None:
    """Call the hook for a prompt that was cancelled. Errors are logged."""
    await _told(agent, getattr(executor, "session_cancelled", None), session)


async def _told(agent: str, hook: Callable[..., Awaitable[None]] | None, session: str, *more: str) -> None:
    if hook is None:
        return
    try:
        async with asyncio.timeout(HOOK_SECONDS):
            await hook(session, *more)
    except Exception:
        # The whole id opens the session: log only enough to tell two apart.
        text = "%s: a hook of the session %s failed"
        log.exception(text, agent, session[:8], extra={"agent": agent})
