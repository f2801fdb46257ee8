"""Servers that are killed, stopped, restarted, slow or replaced under sixteen callers, and the calls after.

Each call has a number, and the server notes the numbers that it executes. Whatever happens to a server, each
call ends with its answer or with an error, none is executed twice, and the first call after the recovery is
answered.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from support.counted import (
    HANDSHAKE,
    KINDS,
    MODERN,
    TOOLS,
    CountedServer,
    Kind,
    counted_project,
)
from support.counted_calls import Call, Callers, callers
from support.live import HeardEvents, all_ready, running
from support.waiting import poll, until

from pallas.downstreams import connection
from pallas.fleet.fleet import Fleet
from pallas.model import ToolEvent

CALLERS = 16

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen connections open at once: on a busy machine that takes longer than a call waits for its own."""
    monkeypatch.setattr(connection, "REOPEN_SECONDS", 60.0)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Kind, CountedServer]]:
    folder = tmp_path_factory.mktemp("servers")
    found = {kind: CountedServer(kind, kind, folder / kind) for kind in KINDS}
    yield found
    left = {name: each.alive for name, each in found.items()}
    for each in found.values():
        each.end()
    assert not any(pids for name, pids in left.items() if not found[name].is_http), left


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(
    servers: dict[Kind, CountedServer], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Fleet]:
    for each in servers.values():
        await each.start()
    root = counted_project(tmp_path_factory.mktemp("fleet"), servers.values(), callers=CALLERS + 1)
    async with running(root) as found:
        yield found


@asynccontextmanager
async def calling(fleet: Fleet, server: CountedServer) -> AsyncIterator[Callers]:
    """Sixteen callers of its agent. The server is as at first, and each of the callers has been answered.

    An agent that a test before has left without its server is restarted.
    """
    for name in ("hold", "broken"):
        server.shut(name)
    server.open("gate")
    first = CountedServer.settings_of(server.kind) | {"port": server.settings["port"]}
    if server.settings != first:
        server.be(**first)
        await server.kill()
    await server.start()
    async with callers(fleet, server, CALLERS) as found:
        if not (await found.call(callers=[0]))[0].is_answered:
            fleet.control(server.name, "restart")
            await until(lambda: all_ready(fleet))
            await poll(lambda: found.call(callers=[0]), lambda calls: calls[0].is_answered, timeout=120)
        # Each connection finds out that its server was another one: with a call, or a moment after the end.
        await poll(lambda: found.call("wait"), lambda calls: all(each.is_answered for each in calls))
        async with found.in_flight() as calls:
            server.open("gate")
        assert all(each.is_answered for each in calls.result())
        yield found
        assert found.none_twice()
        assert len(server.alive) <= CALLERS + 1  # what was left behind would be more


@asynccontextmanager
async def stopped(
    fleet: Fleet, server: CountedServer, all_callers: Callers
) -> AsyncIterator[asyncio.Task[list[Call]]]:
    """The calls of all callers, made while the server is stopped. It goes on at the end at the latest."""
    server.send(signal.SIGSTOP)
    calls = asyncio.create_task(all_callers.call())
    try:
        with HeardEvents(fleet) as heard:
            await until(lambda: len(heard.of(ToolEvent, server=server.name, phase="started")) == CALLERS)
        yield calls
    finally:
        server.send(signal.SIGCONT)
        calls.cancel()
        await asyncio.wait({calls}, timeout=60)


def of(*kinds: Kind) -> pytest.MarkDecorator:
    """A test of these kinds of servers."""
    return pytest.mark.parametrize("kind", kinds)


@of("stdio-modern", "http-python", "stdio-handshake", "http-modern", "http-typescript", "http-sse")
async def test_calls_in_flight_end_with_an_error_when_their_server_is_killed_and_the_next_are_answered(
    fleet: Fleet, servers: dict[Kind, CountedServer], kind: Kind
) -> None:
    server = servers[kind]
    async with calling(fleet, server) as all_callers:
        async with all_callers.in_flight() as calls:
            await server.kill()
        assert [each for each in calls.result() if not each.is_error] == []
        await server.start()
        after = await all_callers.call()
        assert [each for each in after if not each.is_answered] == []
        assert all_callers.executed_once([*calls.result(), *after])


@of("stdio-modern", "http-typescript")
async def test_an_agent_in_a_process_of_its_own_loses_and_regains_its_server_in_the_same_way(
    tmp_path: Path, forked_children: None, kind: Kind
) -> None:
    server = CountedServer("shop", kind, tmp_path / "server")
    try:
        await server.start()
        root = counted_project(tmp_path / "p", [server], callers=CALLERS + 1, isolation="process")
        async with running(root) as fleet, calling(fleet, server) as all_callers:
            async with all_callers.in_flight() as calls:
                await server.kill()
            assert [each for each in calls.result() if not each.is_error] == []
            await server.start()
            after = await all_callers.call()
            assert [each for each in after if not each.is_answered] == []
            assert all_callers.executed_once([*calls.result(), *after])
        await until(lambda: server.is_http or not server.alive)
    finally:
        server.end()


@of("http-modern", "http-python", "http-typescript", "http-sse")
async def test_calls_while_a_server_is_away_end_with_an_error_and_are_not_executed_later(
    fleet: Fleet, servers: dict[Kind, CountedServer], kind: Kind
) -> None:
    server = servers[kind]
    async with calling(fleet, server) as all_callers:
        await server.kill()
        lost = await all_callers.call()
        assert [each for each in lost if not each.is_error] == []
        await server.start()
        after = await all_callers.call()
        assert [each for each in after if not each.is_answered] == []
        assert all_callers.executed_once(after)
        assert not any(server.executed[each.number] for each in lost)


@of("http-modern", "http-typescript", "http-sse", "stdio-modern", "stdio-handshake", "http-python")
async def test_the_first_calls_after_a_restart_that_nobody_saw_are_answered(
    fleet: Fleet, servers: dict[Kind, CountedServer], kind: Kind
) -> None:
    server = servers[kind]
    async with calling(fleet, server) as all_callers:
        await server.kill(signal.SIGTERM)
        if server.is_http:
            await server.start()
        else:  # what is written to a pipe before its end is read fails
            at_once = await all_callers.call()
            assert [each for each in at_once if not (each.is_answered or each.is_error)] == []
        after = await all_callers.call()
        assert [each for each in after if not each.is_answered] == []
        assert all_callers.executed_once(after)


@of("http-python", "http-typescript", "http-sse")
async def test_calls_in_a_session_that_its_server_forgot_are_made_in_a_new_one(
    fleet: Fleet, servers: dict[Kind, CountedServer], kind: Kind
) -> None:
    server = servers[kind]
    async with calling(fleet, server) as all_callers:
        await server.forget()
        (alone,) = await all_callers.call(callers=[0])
        await server.forget()
        at_once = await all_callers.call()
        assert [each for each in (alone, *at_once) if not each.is_answered] == []
        assert all_callers.executed_once([alone, *at_once])


@of("http-python", "http-typescript")
async def test_calls_in_flight_are_answered_though_their_session_is_opened_again_beside_them(
    fleet: Fleet, servers: dict[Kind, CountedServer], kind: Kind
) -> None:
    server = servers[kind]
    async with calling(fleet, server) as all_callers, callers(fleet, server) as another:
        async with all_callers.in_flight() as calls:
            await server.forget()
            (beside,) = await another.call()
            server.open("gate")
        after = await all_callers.call()
        assert [each for each in (beside, *calls.result(), *after) if not each.is_answered] == []
        assert all_callers.executed_once([beside, *calls.result(), *after])


@of("stdio-modern", "stdio-handshake", "http-modern", "http-python", "http-typescript", "http-sse")
async def test_calls_to_a_server_that_is_stopped_for_a_while_are_answered_when_it_goes_on(
    fleet: Fleet, servers: dict[Kind, CountedServer], kind: Kind
) -> None:
    server = servers[kind]
    async with calling(fleet, server) as all_callers:
        async with stopped(fleet, server, all_callers) as calls:
            server.send(signal.SIGCONT)
            ended = await calls
        after = await all_callers.call()
        assert [each for each in (*ended, *after) if not each.is_answered] == []
        assert all_callers.executed_once([*ended, *after])


@of("stdio-modern", "http-modern", "http-python")
async def test_calls_to_a_stopped_server_that_is_killed_end_with_an_error(
    fleet: Fleet, servers: dict[Kind, CountedServer], kind: Kind
) -> None:
    server = servers[kind]
    async with calling(fleet, server) as all_callers:
        async with stopped(fleet, server, all_callers) as calls:
            await server.kill()
            ended = await calls
        assert [each for each in ended if not each.is_error] == []
        await server.start()
        after = await all_callers.call()
        assert [each for each in after if not each.is_answered] == []
        assert all_callers.executed_once(after)


@of("stdio-modern", "stdio-handshake", "http-python", "http-typescript", "http-sse")
async def test_calls_while_a_restarted_server_opens_slowly_end_and_the_next_are_answered(
    fleet: Fleet, servers: dict[Kind, CountedServer], kind: Kind
) -> None:
    server = servers[kind]
    async with calling(fleet, server) as all_callers:
        server.open("hold")
        before = set(server.started)
        await server.kill()
        await server.start()
        calls = asyncio.create_task(all_callers.call())
        await until(lambda: [each for each in server.events("opening") if each["pid"] not in before])
        server.shut("hold")
        assert [each for each in await calls if not (each.is_answered or each.is_error)] == []
        after = await all_callers.call()
        assert [each for each in after if not each.is_answered] == []
        assert all_callers.executed_once(after)


@of("stdio-handshake", "stdio-modern", "http-modern", "http-python", "http-typescript", "http-sse")
async def test_a_server_that_another_version_replaces_is_called_as_it_is_now(
    fleet: Fleet, servers: dict[Kind, CountedServer], kind: Kind
) -> None:
    server = servers[kind]
    async with calling(fleet, server) as all_callers:
        async with all_callers.in_flight() as calls:
            server.be(version="2", tools=["count", "extra"])
            await server.kill()
        assert [each for each in calls.result() if not each.is_error] == []
        await server.start()
        after = await all_callers.call()
        assert [each for each in after if each.version != "2"] == []
        if kind == "http-modern":  # it has no sessions: nothing but the end of its notifications tells
            await poll(lambda: all_callers.call("extra", [0]), lambda found: found[0].is_answered)
        extra = await all_callers.call("extra")
        assert [each for each in extra if each.version != "2"] == []
        gone = await all_callers.call("wait")
        assert [each for each in gone if not each.is_error] == []
        assert all_callers.executed_once([*after, *extra])
        assert not any(server.executed[each.number] for each in gone)


@of("http-modern", "stdio-modern", "stdio-handshake", "http-python", "http-typescript", "http-sse")
async def test_other_tools_that_a_server_notifies_of_are_there_in_a_later_turn(
    fleet: Fleet, servers: dict[Kind, CountedServer], kind: Kind
) -> None:
    server = servers[kind]
    async with calling(fleet, server) as all_callers:
        await server.has_listeners()
        starts = len(server.started)
        await server.notify(version="2", tools=["count", "extra"])
        # Between the notification and the new list a turn has the old one.
        await poll(lambda: all_callers.call("extra", [0]), lambda found: found[0].is_answered)
        extra = await all_callers.call("extra")
        assert [each for each in extra if each.version != "2"] == []
        (gone,) = await all_callers.call("wait", [0])
        assert gone.is_error
        assert not server.executed[gone.number]
        assert len(server.started) == starts


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [
        ("http-python", MODERN),
        ("http-modern", HANDSHAKE),
        ("stdio-handshake", MODERN),
        ("stdio-modern", HANDSHAKE),
    ],
)
async def test_a_server_that_comes_back_with_another_protocol_version_is_called_in_that(
    fleet: Fleet, servers: dict[Kind, CountedServer], kind: Kind, protocol: str
) -> None:
    server = servers[kind]
    async with calling(fleet, server) as all_callers:
        server.be(protocol=protocol, refusal="python", version="2", tools=[*TOOLS, "extra"])
        await server.kill()
        await server.start()
        # Each caller has a connection of its own, which finds out with its next call.
        first = await all_callers.call()
        assert [each for each in first if each.version != "2"] == []
        after = await all_callers.call("extra")
        assert [each for each in after if each.version != "2"] == []
        assert all_callers.executed_once([*first, *after])
