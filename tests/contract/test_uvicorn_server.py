"""What our ports take from ``uvicorn.Server``, whose shutdown is ours: it fails when an upgrade moves it."""

import ast
import asyncio
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from pallas.surfaces.connections import BOUNDS, ConnectionLimits
from pallas.surfaces.listener import _Server

# All that uvicorn's shutdown uses: ours does the same with each.
USED = {
    "self.servers",
    "self.server_state.connections",
    "self.server_state.tasks",
    "self.config.timeout_graceful_shutdown",
    "self.force_exit",
    "self.lifespan.shutdown",
    "self._wait_tasks_to_complete",
}


def used_of_self(function: Callable[..., Any]) -> set[str]:
    """The longest dotted names below ``self`` in a function."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    names = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    below = {name for name in names if name.startswith("self.")}
    return {name for name in below if not any(other.startswith(f"{name}.") for other in below)}


def calls_of(function: Callable[..., Any], *names: str) -> tuple[str, ...]:
    """The calls of ``names`` in a function, in the order of its text."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    return tuple(found for call in calls if (found := ast.unparse(call.func)) in names)


class Part:
    """A gate, connection, socket or lifespan that records what is called."""

    def __init__(self, name: str, record: list[str], state: ServerState) -> None:
        self.name, self.record, self.state = name, record, state

    def close(self) -> None:
        self.record.append(f"{self.name}.close")

    async def wait_closed(self) -> None:
        self.record.append(f"{self.name}.wait_closed")

    async def stop_accepting(self) -> None:
        """Of our gates alone: uvicorn knows nothing of it."""


class Connection(Part):
    def shutdown(self) -> None:
        self.record.append(f"{self.name}.shutdown")
        self.state.connections.discard(self)


class Lifespan(Part):
    async def shutdown(self) -> None:
        self.record.append(f"{self.name}.shutdown")


async def shut_down(server: uvicorn.Server, *, hangs: bool, forced: bool) -> list[str]:
    """What a shutdown did, in order; ``hangs``: one request goes on for ever."""
    record: list[str] = []
    state = server.server_state
    parts: Any = [Part("gate", record, state)]
    server.servers = parts
    server.lifespan = Lifespan("lifespan", record, state)
    state.connections.add(Connection("connection", record, state))  # type: ignore[arg-type]
    server.force_exit = forced
    request = asyncio.create_task(asyncio.Event().wait()) if hangs else None
    if request is not None:
        request.add_done_callback(lambda done: record.append(f"cancelled: {done.cancelled()}"))
        state.tasks.add(request)  # type: ignore[arg-type]
    sock: Any = Part("socket", record, state)
    await server.shutdown([sock])
    await asyncio.sleep(0)
    if request is not None:
        request.cancel()
        await asyncio.wait({request})
    return record


@pytest.mark.parametrize(("hangs", "forced"), [(False, False), (True, False), (True, True)])
async def test_our_shutdown_does_what_uvicorns_does(hangs: bool, forced: bool) -> None:
    def config() -> uvicorn.Config:
        seconds: Any = 0.05 if hangs else 30
        return uvicorn.Config(lambda *_: None, log_config=None, timeout_graceful_shutdown=seconds)

    theirs = await shut_down(uvicorn.Server(config()), hangs=hangs, forced=forced)
    own = _Server(config(), pool=ConnectionLimits(), bounds=BOUNDS, tls=None)
    assert await shut_down(own, hangs=hangs, forced=forced) == theirs
    assert theirs[:3] == ["gate.close", "socket.close", "connection.shutdown"]
    assert ("lifespan.shutdown" in theirs) is not forced


def test_the_shutdown_of_uvicorn_uses_nothing_that_ours_does_not_know() -> None:
    shutdown, waiting = uvicorn.Server.shutdown, uvicorn.Server._wait_tasks_to_complete
    assert used_of_self(shutdown) | used_of_self(waiting) == USED


def test_serving_calls_the_methods_that_we_replace() -> None:
    ours = {"__init__", "end", "_wait_ended"}
    replaced = {name for name, value in vars(_Server).items() if inspect.isfunction(value)} - ours
    assert replaced == {"capture_signals", "startup", "main_loop", "shutdown"}
    for name in replaced:
        their, own = getattr(uvicorn.Server, name), getattr(_Server, name)
        assert inspect.signature(their).parameters.keys() == inspect.signature(own).parameters.keys()
        assert inspect.iscoroutinefunction(their) == inspect.iscoroutinefunction(own)
    steps = ("config.lifespan_class", "self.startup", "self.main_loop", "self.shutdown")
    assert calls_of(uvicorn.Server._serve, *steps) == steps
    entered = ("self.capture_signals", "self._serve")
    assert calls_of(uvicorn.Server.serve, *entered) == entered
    started = used_of_self(uvicorn.Server.startup)
    assert {"self.lifespan.startup", "self.lifespan.should_exit", "self.started"} <= started


async def test_answers_have_the_headers_that_a_tick_of_uvicorn_sets() -> None:
    config = uvicorn.Config(lambda *_: None, server_header=False, log_config=None, headers=[("x-a", "b")])
    config.load()
    own = _Server(config, pool=ConnectionLimits(), bounds=BOUNDS, tls=None)

    async def theirs() -> list[tuple[bytes, bytes]]:
        server = uvicorn.Server(config)
        assert not await server.on_tick(0)
        return server.server_state.default_headers

    # The second may change between the two.
    tries = [(await theirs(), own.server_state.default_headers) for _ in range(3)]
    assert any(one == other for one, other in tries)
    assert [name for name, _ in tries[0][1]] == [b"date", b"x-a"]
