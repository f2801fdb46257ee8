"""Keeps Pallas' logging: fast-agent changes it whenever an agent starts or a server is connected.

It sets up its loggers at every start of an agent, after which ours are restored. Each of its connection
managers adds log filters to the same loggers, for ever: without ``ONE_FILTER`` every instance, and so every
version of an agent, leaves some behind, and each record of those loggers goes through all of them.

Each log event of fast-agent costs three tasks, also one that its filters drop: five events for each turn.
``READ_ONLY`` leaves out those whose level is below that of every reader.

All agents share one queue of log events, and each agent that ends stops it. ``DRAINED`` empties it first:
when several agents end at once, the second would end the task that the first waits for, for seconds.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from fast_agent import context
from fast_agent.core.logging.listeners import FilteredListener
from fast_agent.core.logging.logger import Logger
from fast_agent.core.logging.transport import AsyncEventBus, FilteredEventTransport, NoOpTransport
from fast_agent.mcp.mcp_connection_manager import MCPConnectionManager

from pallas.mcp_client.library_hooks import Hook
from pallas.telemetry.log import reapply_logging

_RANKS: Final = {"debug": 0, "progress": 0, "info": 1, "warning": 2, "error": 3}
# Seconds for that; fast-agent waits as long for its own task.
_DRAIN_S: Final = 5.0


def _is_ours(original: Callable[..., Any]) -> Callable[..., Any]:
    async def configure_logger(config: Any) -> None:
        try:
            await original(config)
        finally:
            reapply_logging()

    return configure_logger


def _once(add: Any) -> Any:
    added: list[bool] = []

    def suppress(self: Any) -> None:
        if not added:
            added.append(True)
            add(self)

    return suppress


def _drained(wait: Callable[..., Any]) -> Callable[..., Any]:
    async def _drain_queue_before_stop(self: Any, same_loop_task: bool) -> None:
        if same_loop_task:
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await self._drain_remaining_events()
        await wait(self, same_loop_task)

    return _drain_queue_before_stop


def _read_only(original: Callable[..., None]) -> Callable[..., None]:
    def event(self: Any, etype: Any, ename: Any, message: Any, context: Any, data: Any) -> None:
        if is_read(AsyncEventBus.get(), etype):
            original(self, etype, ename, message, context, data)

    return event


def is_read(bus: AsyncEventBus, level: str) -> bool:
    """Whether an event of that level may pass the filter of a reader of the bus."""
    rank = _RANKS.get(level, 3)
    readers: list[Any] = [*bus.listeners.values()]
    if not isinstance(bus.transport, NoOpTransport):
        readers.append(bus.transport)
    return any(
        not isinstance(reader, FilteredListener | FilteredEventTransport) or _passes(reader.filter, rank)
        for reader in readers
    )


def _passes(event_filter: Any, rank: int) -> bool:
    return event_filter is None or rank >= _RANKS.get(event_filter.min_level or "debug", 0)


HOOK: Final = Hook("log", context, "configure_logger", ("config",), _is_ours)
ONE_FILTER: Final = tuple(
    Hook(f"one-filter{name.replace('_', '-')}", MCPConnectionManager, name, ("self",), _once)
    for name in (
        "_suppress_mcp_sse_errors",
        "_suppress_mcp_streamable_http_errors",
        "_suppress_mcp_oauth_cancel_errors",
    )
)
READ_ONLY: Final = Hook(
    "log-read-only", Logger, "event", ("self", "etype", "ename", "message", "context", "data"), _read_only
)
DRAINED: Final = Hook(
    "log-drained", AsyncEventBus, "_drain_queue_before_stop", ("self", "same_loop_task"), _drained
)
