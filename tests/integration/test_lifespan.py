"""Applications and ports that start while other code blocks the event loop."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import httpx2
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from support.waiting import until

from pallas.model import Fault
from pallas.surfaces import app_lifespan as lifespans
from pallas.surfaces import listener as listeners
from pallas.surfaces.app_lifespan import Lifespan
from pallas.surfaces.connections import BOUNDS, ConnectionLimits
from pallas.surfaces.listener import Listener, bind

HOUR = 3_600.0


@pytest.fixture
async def blocked(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Has it be an hour later: to the loop that is as if some code had not let go of it for so long."""
    loop, later = asyncio.get_running_loop(), [0.0]
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + later[0])

    def block() -> None:
        later[0] += HOUR

    return block


class Slow:
    """An application that starts in some turns of the loop; ``block`` is called in each of them."""

    def __init__(self, block: Callable[[], None]) -> None:
        self._block = block

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "lifespan.startup"
        for _ in range(5):
            self._block()
            await asyncio.sleep(0)
        await send({"type": "lifespan.startup.complete"})
        assert (await receive())["type"] == "lifespan.shutdown"
        await send({"type": "lifespan.shutdown.complete"})


async def test_an_application_has_its_time_to_start_though_others_block_the_loop(
    blocked: Callable[[], None],
) -> None:
    lifespan = Lifespan(Slow(blocked), "the application")
    await lifespan.start()
    await lifespan.stop()


async def test_a_port_has_its_time_to_answer_though_others_block_the_loop(
    blocked: Callable[[], None],
) -> None:
    listener = Listener(Slow(blocked), bind("127.0.0.1", 0, "test"))
    await listener.start()
    await listener.stop(0)


async def test_a_port_ends_at_once_also_between_two_looks_at_its_connections() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("hello")(scope, receive, send)

    bounds = replace(BOUNDS, look=HOUR)
    listener = Listener(app, bind("127.0.0.1", 0, "test"), lifespan=False, bounds=bounds)
    await listener.start()
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:  # its connection stays open
        answer = await http.get(f"http://127.0.0.1:{listener.port}/")
        assert (answer.text, answer.headers["date"][-3:]) == ("hello", "GMT")
        await listener.stop()
    assert not listener.is_open
    assert not listener._server.force_exit


async def _never(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.Event().wait()


async def test_one_that_never_starts_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in (lifespans, listeners):
        monkeypatch.setattr(module, "START_TIMEOUT", 0.05)
    monkeypatch.setattr(lifespans, "STOP_TIMEOUT", 0.05)
    monkeypatch.setattr(listeners, "STOP_TIMEOUT", listeners.GRACE + 0.05)
    with pytest.raises(Fault, match="the application could not be served"):
        await Lifespan(_never, "the application").start()
    assert "the application did not start within" in caplog.text
    listener = Listener(_never, bind("127.0.0.1", 0, "test"))
    with pytest.raises(Fault, match="did not start to answer"):
        await listener.start()
    await listener.stop(0)


async def test_a_port_that_cut_a_request_short_leaves_no_task_behind() -> None:
    reached = asyncio.Event()

    async def hang(scope: Scope, receive: Receive, send: Send) -> None:
        reached.set()
        await asyncio.Event().wait()

    before, pool = asyncio.all_tasks(), ConnectionLimits()
    bounds = replace(BOUNDS, look=0.05)
    listener = Listener(hang, bind("127.0.0.1", 0, "test"), lifespan=False, pool=pool, bounds=bounds)
    await listener.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await reached.wait()
    await listener.stop(0)
    assert (await reader.read()).startswith(b"HTTP/1.1 500 ")
    writer.close()
    await writer.wait_closed()
    await until(lambda: asyncio.all_tasks() <= before)
    assert pool.count == 0
