"""Connects the servers of an agent all at once, so that none of them keeps the agent from starting.

fast-agent connects them one after the other and gives up with the first failure. ``load_servers`` is
replaced; ``attach`` and ``lost`` use its parts. For each ``tools/list_changed`` it starts a task with a
request; ``LIST_CHANGED`` lists a server's tools again at most once a second, however often it notifies.
``tests/contract/test_servers_seam.py`` and ``test_hooks.py`` fail when one of these changes.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

from anyio import Lock
from fast_agent.mcp.client_callback_runtime import MCPClientCallbackRuntime
from fast_agent.mcp.mcp_aggregator import MCPAggregator, MCPAttachOptions

from pallas.mcp_client.library_hooks import Hook
from pallas.tools_lock.tool_gate import ToolGate

from .aggregator_seam import attached, connection_of, tools_of
from .lock_seam import guard
from .log_seam import reported_by_caller
from .stderr_seam import ServerErrorReader, opened

CONNECT_SECONDS: Final = 20.0
"""How long a new instance waits for its servers."""
_PLACE: Final = "{{serverInstructions}}"
# Seconds that an attempt that is cut off has to release its resources.
_CUT_SECONDS: Final = 5.0
# Seconds between two listings of a server that keeps changing.
_PAUSE: Final = 1.0


@dataclass(slots=True)
class ConnectPlan:
    """How to connect the servers of one instance.

    ``until`` is when to stop waiting, in the loop's time; ``skip`` are servers that are not connected now.
    ``gate`` compares what they list with the lock.
    """

    until: float
    skip: frozenset[str] = field(default_factory=frozenset)
    gate: ToolGate | None = None


@dataclass(slots=True)
class _Listing:
    is_under_way: bool = False
    is_outdated: bool = False


_plan: ContextVar[ConnectPlan | None] = ContextVar("pallas_connect_plan", default=None)
_errors: Final[WeakKeyDictionary[Any, dict[str, Exception]]] = WeakKeyDictionary()
# Keyed by the aggregator of an instance and the server's name.
_listings: Final[WeakKeyDictionary[Any, dict[str, _Listing]]] = WeakKeyDictionary()


@contextmanager
def planned(plan: ConnectPlan) -> Iterator[None]:
    """Make agents that are created in this block connect their servers by ``plan``."""
    token = _plan.set(plan)
    try:
        yield
    finally:
        _plan.reset(token)


def aggregator_of(agent: Any) -> Any:
    """Return the object that holds an agent's connections; None if it has none."""
    return getattr(agent, "_aggregator", None)


def servers_at_start(aggregator: Any) -> tuple[str, ...]:
    """Return the servers that its agent names, without those that it connects on demand, in order."""
    registry = aggregator.context.server_registry
    found = ((name, registry.get_server_config(name)) for name in _configured(aggregator))
    return tuple(name for name, config in found if config is None or config.load_on_start)


def errors_of(aggregator: Any) -> Mapping[str, Exception]:
    """Return the errors of servers that could not be connected at first, by name."""
    return _errors.get(aggregator, {})


def connected(aggregator: Any, name: str) -> bool:
    """Return whether the server's tools are listed and its connection is not known to be lost."""
    connection = connection_of(aggregator, name)
    if connection is None or name not in attached(aggregator):
        return False
    return bool(connection.is_healthy()) and not _is_closed(connection)


def _configured(aggregator: Any) -> tuple[str, ...]:
    """Return the servers that its agent names, in order."""
    return tuple(aggregator._configured_server_names)


def _is_closed(connection: Any) -> bool:
    """Return whether the other end of the pipe is closed: the program of a stdio server has ended."""
    session = getattr(connection.client.client, "_session", None)
    return bool(getattr(getattr(session, "_dispatcher", None), "_closed", False))


async def instruct(agent: Any) -> None:
    """Fill the connected servers' instructions into an instruction that has a placeholder for them."""
    if _PLACE in (getattr(agent, "_instruction_template", None) or ""):
        await agent._apply_instruction_templates()


async def answers(aggregator: Any, name: str, seconds: float) -> bool:
    """Return whether a connected server lists its tools within ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            await aggregator._fetch_server_tools(name, cache_mode="refresh")
    except Exception:
        return False
    return connected(aggregator, name)


async def attach(aggregator: Any, name: str, seconds: float) -> Exception | None:
    """Connect one server and list its tools, in ``seconds`` at most; return the error if that fails.

    Drops its old state first. An attempt that takes too long is cut off: TimeoutError. A note of the error is
    the last line of the exception that the server wrote to stderr, if that is read.
    """
    readers: list[ServerErrorReader] = []
    token = opened.set(readers)
    with reported_by_caller():
        task = asyncio.create_task(_attach(aggregator, name), name=f"connect {name}")
        opened.reset(token)
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            if late := not task.done():
                await _cut(aggregator, name, task)
    if late or task.cancelled():
        return TimeoutError(f"{name} did not connect within {seconds:g} s")
    error = task.exception()
    if error is not None and not isinstance(error, Exception):
        raise error
    if error is not None and readers and (line := readers[-1].exception_since(0, str(error))):
        error.add_note(line)
    return error


async def _attach(aggregator: Any, name: str) -> None:
    async with aggregator._attachment_locks.setdefault(name, Lock()):
        if aggregator._closed:
            raise RuntimeError("the agent is stopping")
        try:
            if name in attached(aggregator):
                _drop_connection(aggregator, name)
                await aggregator._detach_server_locked(name)
            await aggregator._attach_server_locked(
                server_name=name, server_config=None, options=MCPAttachOptions()
            )
        finally:
            _put_in_order(aggregator)


async def _cut(aggregator: Any, name: str, task: asyncio.Task[None]) -> None:
    _drop_connection(aggregator, name)
    task.cancel()
    await asyncio.wait({task}, timeout=_CUT_SECONDS)


def _drop_connection(aggregator: Any, name: str) -> None:
    """Abort the connection: an orderly end would wait for the server, and delay all the others."""
    connection = connection_of(aggregator, name)
    if connection is not None:
        connection.cancel_lifecycle()


def _put_in_order(aggregator: Any) -> None:
    """Sort servers and tools by the configuration, whichever was connected first.

    Removes a server that is not connected from those whose tools can be called by name.
    """
    configured, there = _configured(aggregator), attached(aggregator)
    place = {name: index for index, name in enumerate(configured)}
    there.sort(key=lambda name: place.get(name, len(place)))
    aggregator.server_names = [name for name in aggregator.server_names if name not in place or name in there]
    aggregator.server_names.sort(key=lambda name: place.get(name, len(place)))
    tools = tools_of(aggregator)
    ordered = sorted(tools.items(), key=lambda item: place.get(item[1].server_name, len(place)))
    tools.clear()
    tools.update(ordered)


def _at_once(_load: Any) -> Any:
    async def load_servers(self: Any, *, force_connect: bool = False) -> None:
        if self.initialized and not force_connect:
            return
        await self._reset_runtime_indexes()
        plan = _plan.get() or ConnectPlan(asyncio.get_running_loop().time() + CONNECT_SECONDS)
        if plan.gate is not None:
            guard(self, plan.gate)
        names = _configured(self) if force_connect else servers_at_start(self)
        _errors[self] = await _connect(self, [name for name in names if name not in plan.skip], plan.until)
        _put_in_order(self)
        self.initialized = True

    return load_servers


async def _connect(aggregator: Any, names: Iterable[str], until: float) -> dict[str, Exception]:
    seconds = max(1.0, until - asyncio.get_running_loop().time())
    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(attach(aggregator, name, seconds)) for name in names}
    found = ((name, task.result()) for name, task in tasks.items())
    return {name: error for name, error in found if error is not None}


AT_ONCE: Final = Hook(
    name="servers-at-once",
    owner=MCPAggregator,
    attribute="load_servers",
    parameters=("self", "force_connect"),
    wrap=_at_once,
)


def _in_order(change: Any) -> Any:
    async def changed(self: Any, server_name: str, *arguments: Any, **named: Any) -> Any:
        # Otherwise a server that is listed again would come last, and models would see another order.
        try:
            return await change(self, server_name, *arguments, **named)
        finally:
            _put_in_order(self)

    return changed


LISTED_AGAIN: Final = Hook(
    name="servers-listed-again",
    owner=MCPAggregator,
    attribute="_commit_server_attachment",
    parameters=("self", "server_name", "discovery", "runtime_config"),
    wrap=_in_order,
)
TOOLS_CHANGED: Final = Hook(
    name="servers-tools-changed",
    owner=MCPAggregator,
    attribute="_refresh_server_tools",
    parameters=("self", "server_name"),
    wrap=_in_order,
)


def _once_at_a_time(original: Callable[..., Any]) -> Callable[..., Any]:
    async def notify_tool_list_changed(self: Any) -> None:
        if self.aggregator is None:
            await original(self)
            return
        listing = _listings.setdefault(self.aggregator, {}).setdefault(self.display_server_name, _Listing())
        listing.is_outdated = True
        if listing.is_under_way:
            return
        listing.is_under_way = True
        try:
            while listing.is_outdated:
                listing.is_outdated = False
                await original(self)
                await asyncio.sleep(_PAUSE)
        finally:
            listing.is_under_way = False

    return notify_tool_list_changed


LIST_CHANGED: Final = Hook(
    "list-changed",
    MCPClientCallbackRuntime,
    "_notify_tool_list_changed",
    ("self",),
    _once_at_a_time,
)
HOOKS: Final = (AT_ONCE, LISTED_AGAIN, TOOLS_CHANGED, LIST_CHANGED)
