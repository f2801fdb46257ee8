"""Keeps Pallas' logging: fast-agent changes it whenever an agent starts or a server is connected.

It sets up its loggers at every start of an agent, after which ours are restored.

Each log event of fast-agent costs three tasks, also one that its filters drop: five events for each turn.
``EVENTS`` leaves out those whose level is below that of every reader. The others become records in a task
that knows neither agent nor run, so it notes both, and the exception that the code handles. It leaves out
failures that our own code has logged or reports to its caller.

All agents share one queue of log events, and each agent that ends stops it. ``DRAINED`` empties it first:
when several agents end at once, the second would end the task that the first waits for, for seconds. The
task that reads it looks ten times a second whether it was stopped, although it is cancelled then too;
``WAITING`` lets it wait.

An event needs the loop of its own thread, and a reader. Cards and modules are read in a thread without a
loop (``import_thread``), those of the first agent before there is a reader, so ``EVENTS`` logs these events
itself.
"""

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

from fast_agent import context
from fast_agent.core.logging.listeners import FilteredListener
from fast_agent.core.logging.logger import Logger
from fast_agent.core.logging.transport import AsyncEventBus, FilteredEventTransport, NoOpTransport

from pallas.mcp_client.library_hooks import Hook
from pallas.telemetry.log import reapply_logging
from pallas.telemetry.trace_context import current_agent, current_run

_RANKS: Final = {"debug": 0, "progress": 0, "info": 1, "warning": 2, "error": 3}
# Seconds for that; fast-agent waits as long for its own task.
_DRAIN_S: Final = 5.0
_LEVELS: Final = {"debug": logging.DEBUG, "warning": logging.WARNING, "error": logging.ERROR}
_log: Final = logging.getLogger("fast_agent")
_LOGGED: Final = "__pallas_logged__"
_OWNER: Final = "pallas_owner"
_LIFTED: Final = frozenset({_OWNER, "exception", "error", "error_type"})

_reported: Final[ContextVar[list[bool] | None]] = ContextVar("reported_by_caller", default=None)


def _is_ours(original: Callable[..., Any]) -> Callable[..., Any]:
    async def configure_logger(config: Any) -> None:
        try:
            await original(config)
        finally:
            reapply_logging()
            _log.addFilter(_as_record_of_its_own)

    return configure_logger


def _drained(wait: Callable[..., Any]) -> Callable[..., Any]:
    async def _drain_queue_before_stop(self: Any, same_loop_task: bool) -> None:
        if same_loop_task:
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await self._drain_remaining_events()
        await wait(self, same_loop_task)

    return _drain_queue_before_stop


def _waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    async def _next_event(self: Any) -> Any:
        queue = self._queue
        return await (original(self) if queue is None else queue.get())

    return _next_event


@contextmanager
def reported_by_caller() -> Iterator[None]:
    """Leave out what fast-agent logs of failures in this block, and in its tasks while the block lasts."""
    is_open = [True]
    token = _reported.set(is_open)
    try:
        yield
    finally:
        is_open.clear()
        _reported.reset(token)


def note_logged(error: BaseException) -> None:
    """Note that this exception is in the log."""
    setattr(error, _LOGGED, True)


def is_logged(error: BaseException | None) -> bool:
    """Return whether an exception, or one that caused it, was noted as logged."""
    seen = set[int]()
    while error is not None and id(error) not in seen:  # it may be its own cause
        if getattr(error, _LOGGED, False):
            return True
        seen.add(id(error))
        error = error.__cause__
    return False


def _owned(original: Callable[..., None]) -> Callable[..., None]:
    def event(self: Any, etype: Any, ename: Any, message: Any, context: Any, data: Any) -> None:
        if not _in_a_loop():
            _log_without_a_loop(self.namespace, etype, message, data)
            return
        if not is_read(AsyncEventBus.get(), etype):
            return
        error = sys.exception()
        if error is not None and _RANKS.get(etype, 3) >= _RANKS["warning"]:
            if is_logged(error) or _reported.get():
                return
            data = {"exception": "".join(traceback.format_exception(error)), **data}
        original(self, etype, ename, message, context, {**data, _OWNER: _owner()})

    return event


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _log_without_a_loop(namespace: str, etype: str, message: str, data: dict[str, Any]) -> None:
    """Log an event as fast-agent's own reader does."""
    more = {"event_data": {**data, _OWNER: _owner()}}
    _log.log(_LEVELS.get(etype, logging.INFO), "[%s] %s", namespace, message, extra=more)


def _owner() -> dict[str, str]:
    """The agent and the run that this code works for, empty where there is none."""
    run = current_run()
    own = {"run_id": run.run_id, "trace_id": run.context.trace_id} if run is not None else {}
    return {"agent": current_agent(), **own}


def _as_record_of_its_own(record: logging.LogRecord) -> bool:
    """Put what ``EVENTS`` noted of an event into its record, in place of fast-agent's own fields."""
    data = vars(record).pop("event_data", None)
    if not isinstance(data, dict):
        return True
    for name in ("span_id", "trace_id", "event_name"):
        vars(record).pop(name, None)
    vars(record).update(data.get(_OWNER, {}))
    if isinstance(raised := data.get("exception"), str):
        record.exc_text = raised.rstrip()
    more = {name: value for name, value in data.items() if name not in _LIFTED and value}
    if more:
        record.event_data = more
    return True


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
EVENTS: Final = Hook(
    "log-events", Logger, "event", ("self", "etype", "ename", "message", "context", "data"), _owned
)
DRAINED: Final = Hook(
    "log-drained", AsyncEventBus, "_drain_queue_before_stop", ("self", "same_loop_task"), _drained
)
WAITING: Final = Hook("log-waiting", AsyncEventBus, "_next_event", ("self",), _waiting)
