"""Ports that agents take over from one another in one save: none refuses, no request is cut."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.live import ERAS, MODERN_FIRST, ask, client
from support.ports import free_ports
from support.raw_client import call
from support.reloading import Saves, module, saying, watched
from support.turnstile import Turnstile, turnstile
from support.waiting import until

from pallas.model import AgentState

SCRIPT = saying(
    "Apple.",
    "Birch.",
    "Cedar.",
    more="  - {when: {last: user, text: take your time}, call: [{tool: stile__go, arguments: {who: one}}]}\n"
    '  - {when: {last: user, text: take for ever}, say: "never", delay: 600}\n',
)
both_eras = pytest.mark.parametrize("era", MODERN_FIRST)


def agents(**instructions: str) -> dict[str, str | None]:
    return {name: module(name, text) for name, text in instructions.items()}


@asynccontextmanager
async def held(root: Path, **instructions: str) -> AsyncIterator[tuple[Saves, Turnstile]]:
    """A fleet that watches its files; whoever is told to take their time waits at the turnstile."""
    async with turnstile() as stile:
        sources = {name: module(name, text, ("stile",)) for name, text in instructions.items()}
        config = {"mcp": {"servers": {"stile": {"url": stile.url}}}}
        async with watched(root, sources, SCRIPT, probe=False, config=config) as saves:
            yield saves, stile


def port_of(saves: Saves, name: str) -> int:
    agent = saves.fleet.snapshot().agent(name)
    return agent.port if agent is not None else 0


def is_ready(saves: Saves, name: str) -> bool:
    agent = saves.fleet.snapshot().agent(name)
    return agent is not None and agent.state is AgentState.READY


async def prompt_at(port: int, era: str = ERAS[0]) -> list[str]:
    """The prompts of whoever answers at that port: they have their agent's name."""
    from mcp import Client

    async with Client(f"http://127.0.0.1:{port}/mcp", mode=era) as caller:
        return [each.name for each in (await caller.list_prompts(cache_mode="bypass")).prompts]


@asynccontextmanager
async def knocking(*ports: int) -> AsyncIterator[None]:
    """Open connections to these ports all the time; fails where one is refused."""
    over = asyncio.Event()

    async def knock(port: int) -> int:
        count = 0
        while not over.is_set():
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            count += 1
            await asyncio.sleep(0.002)
        return count

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(knock(port)) for port in ports]
        try:
            yield
        finally:
            over.set()
    assert all(task.result() > 10 for task in tasks)


@both_eras
async def test_a_renamed_agent_takes_the_port_over_while_runs_of_the_one_before_go_on(
    tmp_path: Path, era: str
) -> None:
    async with held(tmp_path, one="Apple.") as (saves, stile):
        port = port_of(saves, "one")

        def rename(content: dict[str, Any]) -> None:
            content["agents"]["uno"] = content["agents"].pop("one")

        async with client(saves.fleet, "one", era=era) as caller, knocking(port):
            await caller.list_tools()  # else the library asks for them after the call, of another one
            slow = asyncio.create_task(ask(caller, "take your time"))
            await until(lambda: stile.arrived == ["one"])
            saves.edit("agents.yaml", rename)
            await until(lambda: is_ready(saves, "uno"))
            assert not slow.done()
            assert await prompt_at(port, era) == ["uno_history"]
            stile.open.set()
            assert await slow == "one went through"
        async with client(saves.fleet, "uno", era=era) as caller:
            assert await ask(caller, "hello") == "Apple. 1"
        await until(lambda: len(saves.told()) >= 2)
        assert [each.outcome for each in saves.told()] == ["live", "live"]
        await until(lambda: saves.fleet.kernel.list() == ("uno",))

        def gone(content: dict[str, Any]) -> None:
            content["agents"] = {"due": {**content["agents"]["uno"], "port": free_ports(1)[0]}}

        saves.edit("agents.yaml", gone)
        await until(lambda: is_ready(saves, "due"))
        await until(lambda: _is_closed(port))


@both_eras
async def test_three_agents_exchange_their_ports_in_one_save(tmp_path: Path, era: str) -> None:
    async with held(tmp_path, one="Apple.", two="Birch.", three="Cedar.") as (saves, stile):
        names = ("one", "two", "three")
        before = {name: port_of(saves, name) for name in names}

        def rotate(content: dict[str, Any]) -> None:
            for name, other in zip(names, (*names[1:], names[0]), strict=True):
                content["agents"][name]["port"] = before[other]

        async with client(saves.fleet, "one", era=era) as caller, knocking(*before.values()):
            await ask(caller, "hello", conversation_id="c")
            slow = asyncio.create_task(ask(caller, "take your time", conversation_id="c"))
            await until(lambda: stile.arrived == ["one"])
            saves.edit("agents.yaml", rotate)
            await until(lambda: port_of(saves, "one") == before["two"])
            for name, other in zip(names, (*names[1:], names[0]), strict=True):
                assert await prompt_at(before[other], era) == [f"{name}_history"]
            assert not slow.done()
            stile.open.set()
            assert await slow == "one went through"
        assert saves.versions() == dict.fromkeys(names, 1)
        await until(saves.told)
        assert {each.outcome for each in saves.told()} == {"live"}
        async with client(saves.fleet, "one", era=era) as caller:
            assert await ask(caller, "again", conversation_id="c") == "Apple. 3"


async def test_who_cannot_move_keeps_its_port_and_who_wanted_that_keeps_its_own(tmp_path: Path) -> None:
    async with watched(
        tmp_path, agents(one="Apple.", two="Birch.", three="Cedar."), SCRIPT, probe=False
    ) as saves:
        before = {name: port_of(saves, name) for name in ("one", "two", "three")}
        (free,) = free_ports(1)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            busy = taken.getsockname()[1]

            def move(content: dict[str, Any]) -> None:
                entries = content["agents"]
                entries["one"]["port"], entries["two"]["port"] = busy, before["one"]
                entries["three"]["port"] = free
                entries["four"] = {"module": "agents.three", "port": before["two"]}

            saves.edit("agents.yaml", move)
            one, two = await saves.outcome("one"), await saves.outcome("two")
            assert f"port {busy} is in use" in one.error
            assert f"port {before['one']} is still that of one; it stays at port" in two.error
            four = await saves.outcome("four")
            assert f"port {before['two']} is still that of two" in four.error
            assert {port_of(saves, name) for name in before} == {before["one"], before["two"], free}
            assert await prompt_at(before["one"]) == ["one_history"]
            assert await prompt_at(before["two"]) == ["two_history"]
        saves.fleet.control_fleet("reload")  # what was in the way is gone
        await until(lambda: is_ready(saves, "four"))
        assert [port_of(saves, name) for name in ("one", "two", "four")] == [
            busy,
            before["one"],
            before["two"],
        ]


@both_eras
async def test_a_port_that_moved_away_finishes_the_requests_under_way(tmp_path: Path, era: str) -> None:
    async with held(tmp_path, one="Apple.") as (saves, stile):
        before, (port,) = port_of(saves, "one"), free_ports(1)

        def move_to(number: int) -> None:
            saves.edit("agents.yaml", lambda content: content["agents"]["one"].update(port=number))

        async with client(saves.fleet, "one", era=era) as caller:
            slow = asyncio.create_task(ask(caller, "take your time"))
            await until(lambda: stile.arrived == ["one"])
            move_to(port)
            await until(lambda: _is_closed(before))
            assert await prompt_at(port, era) == ["one_history"]
            move_to(before)  # and back, while the one of before is not over yet
            await until(lambda: port_of(saves, "one") == before)
            assert not slow.done()
            assert await prompt_at(before, era) == ["one_history"]
            stile.open.set()
            assert await slow == "one went through"
        await until(lambda: len(saves.told()) >= 2)
        assert {each.outcome for each in saves.told()} == {"live"}


@both_eras
async def test_a_request_on_a_port_that_moved_away_is_bounded_by_the_drain_timeout(
    tmp_path: Path, era: str
) -> None:
    top = {"drain_timeout": 0.5}
    async with watched(tmp_path, agents(one="Apple."), SCRIPT, probe=False, top=top) as saves:
        before, (port,) = port_of(saves, "one"), free_ports(1)
        writer = await call(saves.fleet.agents[0].url, era, "take for ever")
        await until(lambda: saves.fleet.snapshot().agents[0].runs_active)
        saves.edit("agents.yaml", lambda content: content["agents"]["one"].update(port=port))
        await until(lambda: saves.fleet.snapshot().agents[0].runs_active == 0)
        assert _is_closed(before)
        assert await prompt_at(port, era) == ["one_history"]
        writer.transport.abort()


def _is_closed(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) != 0
