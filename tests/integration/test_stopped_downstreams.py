"""Servers that are stopped or slow under sixteen callers: calls end in time, and health says how they are."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from support.counted import KINDS, CountedServer, Kind, counted_project
from support.counted_calls import Callers, callers
from support.live import running
from support.waiting import poll, until

from pallas.fleet.fleet import Fleet
from pallas.fleet.health_monitor import CheckIntervals
from pallas.model import Downstream, HealthStatus, ProbeResult

CALLERS = 16
TIMEOUT_S = 4

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Kind, CountedServer]]:
    folder = tmp_path_factory.mktemp("servers")
    keys = {"read_timeout_seconds": TIMEOUT_S}
    found = {kind: CountedServer(kind, kind, folder / kind, keys=keys) for kind in KINDS}
    yield found
    for each in found.values():
        each.send(signal.SIGCONT)
        each.end()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(
    servers: dict[Kind, CountedServer], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Fleet]:
    for each in servers.values():
        await each.start()
    root = counted_project(tmp_path_factory.mktemp("fleet"), servers.values(), callers=CALLERS + 1)
    async with running(root, pace=CheckIntervals(health=0.5, confirm=0.5)) as found:
        yield found
    assert [each.name for each in servers.values() if not each.is_http and each.alive] == []


def shown(fleet: Fleet, name: str) -> tuple[HealthStatus, Downstream]:
    """The health of an agent, and its server as the fleet shows it."""
    agent = fleet.snapshot().agent(name)
    assert agent is not None
    return agent.health.status, agent.downstreams[0]


def stays_silent(fleet: Fleet, server: CountedServer) -> bool:
    """Stop also the programs that were started since; whether health says that the server is lost."""
    server.send(signal.SIGSTOP)
    status, downstream = shown(fleet, server.name)
    return status is HealthStatus.DEGRADED and downstream.reach is ProbeResult.UNREACHABLE


async def is_well(fleet: Fleet, name: str) -> bool:
    status, server = shown(fleet, name)
    return status is HealthStatus.OK and server.reach is ProbeResult.OK


async def each_has_an_instance(all_callers: Callers) -> None:
    """All of them call at once, so that each gets a connection of its own."""
    async with all_callers.in_flight():
        all_callers.server.open("gate")
    await poll(all_callers.call, lambda calls: all(each.is_answered for each in calls))


async def recovered(all_callers: Callers) -> None:
    """Each caller is answered with its next call, the first of all calls too."""
    for after in (await all_callers.call(callers=[0]), await all_callers.call()):
        assert [each for each in after if not each.is_answered] == []
        assert all_callers.executed_once(after)


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_of_a_server_that_is_stopped_for_a_moment_are_answered_once_each(
    fleet: Fleet, servers: dict[Kind, CountedServer], kind: Kind
) -> None:
    server = servers[kind]
    async with callers(fleet, server, CALLERS) as all_callers:
        await each_has_an_instance(all_callers)
        began, before = server.started, len(server.events("executed"))
        async with all_callers.in_flight() as calls:
            server.send(signal.SIGSTOP)
            server.open("gate")
            lost = asyncio.create_task(all_callers.call())
            await until(lambda: len(all_callers.numbers) == 3 * CALLERS)
            server.send(signal.SIGCONT)
            ended = [*await calls, *await lost]
        assert [each for each in ended if not each.is_answered] == []
        assert all_callers.executed_once(ended)
        assert len(server.events("executed")) == before + 2 * CALLERS
        assert server.started == began
        await poll(lambda: is_well(fleet, kind), bool)


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_of_a_server_that_stays_stopped_end_at_their_deadline_and_health_says_it_is_silent(
    fleet: Fleet, servers: dict[Kind, CountedServer], kind: Kind
) -> None:
    server = servers[kind]
    async with callers(fleet, server, CALLERS) as all_callers:
        await each_has_an_instance(all_callers)
        await poll(lambda: is_well(fleet, kind), bool)
        server.send(signal.SIGSTOP)
        try:
            lost = await all_callers.call()
            errors = [each for each in lost if not each.is_answered]
            assert [each for each in errors if not each.is_error] == []
            # A program that does not answer is started again: a call may be answered by the new one.
            assert errors
            assert not server.is_http or len(errors) == CALLERS
            await until(lambda: stays_silent(fleet, server))
            detail = shown(fleet, kind)[1].detail
            assert "answer" in detail, detail
        finally:
            server.send(signal.SIGCONT)
        await recovered(all_callers)
        await poll(lambda: is_well(fleet, kind), bool)
        assert all_callers.none_twice()
        # The programs that were given up are gone.
        assert len(server.alive) <= (1 if server.is_http else CALLERS + 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_of_a_slow_server_end_at_their_deadline_and_cost_the_others_nothing(
    fleet: Fleet, servers: dict[Kind, CountedServer], kind: Kind
) -> None:
    server = servers[kind]
    async with callers(fleet, server, CALLERS) as all_callers:
        await each_has_an_instance(all_callers)
        async with all_callers.in_flight() as calls:  # nobody opens the gate
            await calls
            assert [each for each in calls.result() if not each.is_error] == []
        after = await all_callers.call()
        assert [each for each in after if not each.is_answered] == []
        assert all_callers.none_twice()
        assert await is_well(fleet, kind)
