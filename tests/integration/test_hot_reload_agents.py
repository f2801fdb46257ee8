"""Agents and programs that come, go and move while their fleet answers."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.live import MODERN_FIRST, all_ready, ask, client
from support.ports import free_ports
from support.reloading import Saves, module, saying, watched
from support.turnstile import turnstile
from support.waiting import until

from pallas.fleet.reload import applier
from pallas.model import AgentState

SCRIPT = saying(
    "Apple.",
    "Birch.",
    "Cedar.",
    more="  - {when: {last: user, text: take your time}, call: [{tool: stile__go, arguments: {who: two}}]}\n",
)


def agents(**instructions: str) -> dict[str, str | None]:
    return {name: module(name, text) for name, text in instructions.items()}


async def listed(saves: Saves) -> dict[str, str]:
    """What the registry publishes now: URLs by name."""
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        answer = await http.get(saves.fleet.registry_url)
    servers = [each["server"] for each in answer.json()["servers"]]
    return {each["name"].partition("/")[2]: each["remotes"][0]["url"] for each in servers}


def answers(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def state(saves: Saves, name: str) -> AgentState | None:
    agent = saves.fleet.snapshot().agent(name)
    return agent.state if agent is not None else None


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_an_agent_that_is_added_answers_and_one_that_is_removed_is_gone(  # PI-5
    tmp_path: Path, era: str
) -> None:
    async with watched(tmp_path, agents(one="Apple."), SCRIPT) as saves:
        (port,) = free_ports(1)

        def add(content: dict[str, Any]) -> None:
            content["agents"]["two"] = {"module": "agents.two", "port": port}

        saves.edit("agents.yaml", add)  # its module comes a moment later, as it does in an editor
        told = await saves.outcome("")
        assert told.outcome == "failed"
        assert "agents.two" in told.error
        mark = saves.fleet.hub.seq
        saves.write("agents/two.py", module("two", "Birch."))
        assert (await saves.outcome("two", mark)).outcome == "live"
        assert await listed(saves) == {
            "one": saves.fleet.agents[0].url.replace("127.0.0.1", "localhost"),
            "probe": saves.fleet.agents[1].url.replace("127.0.0.1", "localhost"),
            "two": f"http://localhost:{port}/mcp",
        }
        versions = saves.versions()
        async with client(saves.fleet, "two", era=era) as caller:
            assert await ask(caller, "hello") == "Birch. 1"
            assert await ask(caller, "again", conversation_id="c") == "Birch. 1"
        assert await saves.after("agents/two.py", module("two", "Cedar.")) == {"two"}

        def remove(content: dict[str, Any]) -> None:
            del content["agents"]["two"]

        mark = saves.fleet.hub.seq
        saves.edit("agents.yaml", remove)
        told = await saves.outcome("", mark)
        assert [(each.kind, each.name) for each in told.changes] == [("removed", "two")]
        assert set(await listed(saves)) == {"one", "probe"}
        await until(lambda: not answers(port))
        await until(lambda: saves.fleet.kernel.list() == ("one", "probe"))
        assert saves.versions()["one"] == versions["one"]
        saves.edit("agents.yaml", add)  # and back: its conversations ended with it
        await until(lambda: state(saves, "two") is AgentState.READY)
        async with client(saves.fleet, "two", era=era) as caller:
            assert await ask(caller, "again", conversation_id="c") == "Cedar. 1"


async def test_an_added_agent_starts_after_those_it_needs_and_before_it_others_go_on(tmp_path: Path) -> None:
    async with watched(tmp_path, agents(one="Apple."), SCRIPT, probe=False) as saves:
        ports = free_ports(2)
        for name in ("two", "three"):
            saves.write(f"agents/{name}.py", module(name, "Birch."))

        def add(content: dict[str, Any]) -> None:
            content["agents"] = {
                "three": {"module": "agents.three", "port": ports[0], "depends_on": ["two"]},
                "two": {"module": "agents.two", "port": ports[1], "depends_on": ["one"]},
                **content["agents"],
            }

        saves.edit("agents.yaml", add)
        await saves.outcome("three")
        assert [each.agent for each in saves.told() if each.agent] == ["two", "three"]
        assert [agent.name for agent in saves.fleet.agents] == ["three", "two", "one"]
        assert saves.versions() == {"three": 1, "two": 1, "one": 1}


async def test_an_added_agent_whose_port_is_taken_is_told_with_its_line_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path, agents(one="Apple."), SCRIPT, probe=False) as saves:
        saves.write("agents/two.py", module("two", "Birch."))
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]

            def add(content: dict[str, Any]) -> None:
                content["agents"]["two"] = {"module": "agents.two", "port": port}
                content["agents"]["one"]["title"] = "Uno"

            saves.edit("agents.yaml", add)
            told = await saves.outcome("two")
            assert told.outcome == "failed"
            assert told.place.startswith("agents.yaml:")
            assert f"agent two: port {port} is in use" in told.error
            await until(lambda: saves.fleet.snapshot().agents[0].title == "Uno")
            assert [agent.name for agent in saves.fleet.agents] == ["one"]
        mark = saves.fleet.hub.seq
        saves.fleet.control_fleet("reload")
        assert (await saves.outcome("two", mark)).outcome == "live"
        async with client(saves.fleet, "two") as caller:
            assert await ask(caller, "hello") == "Birch. 1"


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_run_in_flight_of_an_agent_that_is_removed_is_finished(tmp_path: Path, era: str) -> None:
    async with (
        turnstile() as stile,
        watched(
            tmp_path,
            {"one": module("one", "Apple."), "two": module("two", "Birch.", ("stile",))},
            SCRIPT,
            probe=False,
            config={"mcp": {"servers": {"stile": {"url": stile.url}}}},
        ) as saves,
    ):
        port = saves.fleet.agents[1].config.port

        def remove(content: dict[str, Any]) -> None:
            del content["agents"]["two"]

        async with client(saves.fleet, "two", era=era) as caller:
            call = asyncio.create_task(ask(caller, "take your time"))
            await until(lambda: stile.arrived == ["two"])
            saves.edit("agents.yaml", remove)
            await until(lambda: state(saves, "two") is None)
            assert set(await listed(saves)) == {"one"}
            assert answers(port)
            refused = await caller.call_tool("send_message", {"message": "one more"})
            assert refused.is_error
            assert "removed from agents.yaml" in refused.content[0].text
            stile.open.set()
            assert await call == "two went through"
        await until(lambda: not answers(port))


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_port_that_moves_answers_at_the_new_one_before_the_old_one_closes(
    tmp_path: Path, era: str
) -> None:
    async with watched(tmp_path, agents(one="Apple."), SCRIPT, probe=False) as saves:
        before = saves.fleet.agents[0].config.port
        (port,) = free_ports(1)
        async with client(saves.fleet, "one", era=era) as caller:
            assert await ask(caller, "hello", conversation_id="c") == "Apple. 1"

        def move(content: dict[str, Any]) -> None:
            content["agents"]["one"]["port"] = port

        gone = asyncio.create_task(until(lambda: not answers(before) and answers(port)))
        saves.edit("agents.yaml", move)
        await gone
        await until(lambda: saves.fleet.snapshot().agents[0].port == port)
        assert await listed(saves) == {"one": f"http://localhost:{port}/mcp"}
        async with client(saves.fleet, "one", era=era) as caller:
            assert await ask(caller, "hello", conversation_id="c") == "Apple. 2"
        assert saves.versions() == {"one": 1}


async def test_a_port_that_cannot_be_had_leaves_the_agent_where_it_is(tmp_path: Path) -> None:
    async with watched(tmp_path, agents(one="Apple."), SCRIPT, probe=False) as saves:
        before = saves.fleet.agents[0].config.port
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]

            def move(content: dict[str, Any]) -> None:
                content["agents"]["one"]["port"] = port

            saves.edit("agents.yaml", move)
            told = await saves.outcome("one")
            assert told.outcome == "failed"
            assert f"stays at port {before}" in told.error
            assert saves.fleet.snapshot().agents[0].port == before
            async with client(saves.fleet, "one") as caller:
                assert await ask(caller, "hello") == "Apple. 1"


async def test_a_renamed_agent_is_another_one_at_the_same_port(tmp_path: Path) -> None:
    async with watched(tmp_path, agents(one="Apple."), SCRIPT) as saves:
        port = saves.fleet.agents[0].config.port

        def rename(content: dict[str, Any]) -> None:
            content["agents"]["uno"] = content["agents"].pop("one")

        saves.edit("agents.yaml", rename)
        await until(lambda: state(saves, "uno") is AgentState.READY)
        assert set(await listed(saves)) == {"uno", "probe"}
        async with client(saves.fleet, "uno") as caller:
            assert str(port) in saves.fleet.agents[1].url
            assert await ask(caller, "hello") == "Apple. 1"


@pytest.mark.slow
async def test_an_agent_that_could_not_start_starts_when_what_it_lacked_is_saved(tmp_path: Path) -> None:
    broken = "from agents.missing import NAME\n" + module("one", "Apple.")
    async with watched(
        tmp_path, {"one": broken, "two": module("two", "Birch.")}, SCRIPT, probe=False
    ) as saves:
        assert state(saves, "one") is AgentState.ERROR
        mark = saves.fleet.hub.seq
        saves.write("agents/missing.py", "NAME = 1\n")
        assert (await saves.outcome("one", mark)).outcome == "live"
        assert state(saves, "one") is AgentState.READY
        async with client(saves.fleet, "one") as caller:
            assert await ask(caller, "hello") == "Apple. 1"
        assert saves.versions()["two"] == 1


async def test_a_dependant_of_an_agent_that_cannot_be_reloaded_waits_for_it(tmp_path: Path) -> None:
    source = "from agents.words import WORD\n"
    sources = {
        "base": source + module("base", "Apple."),
        "top": source + module("top", "Apple.", ("base",)),
    }
    keys = {"top": {"depends_on": ["base"]}}
    files = {"agents/words.py": "WORD = 1\n"}
    async with watched(
        tmp_path, sources, SCRIPT, probe=False, peers=("base",), keys=keys, files=files
    ) as saves:
        saves.write("agents/base.py", sources["base"] + "raise ValueError('no')\n")
        saves.write("agents/words.py", "WORD = 2\n")
        told = await saves.outcome("top")
        assert told.outcome == "failed"
        assert "since base, which it needs, could not be" in told.error
        assert saves.versions() == {"base": 1, "top": 1}
        mark = saves.fleet.hub.seq
        saves.write("agents/base.py", sources["base"])

        def live() -> list[str]:  # an attempt may find the file half written; then it is tried again
            return [each.agent for each in saves.told() if each.seq > mark and each.outcome == "live"]

        await until(lambda: "top" in live())
        assert live() == ["base", "top"]


PROGRAM = """
import sys
from mcp.server.mcpserver import MCPServer

from word import WORD

server = MCPServer("docs")


@server.tool()
def look(text: str) -> str:
    '''Look it up.'''
    return WORD + text


server.run("streamable-http", port=int(sys.argv[1]))
"""


@pytest.mark.slow
async def test_a_file_of_a_program_restarts_it_and_then_the_agents_that_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The program waits for its connections before it ends, longer than the fleet waits for it.
    monkeypatch.setattr("pallas.fleet.programs._TERM_TIMEOUT", 0.2)
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/mcp"
    script = saying(
        "Apple.",
        more='  - {when: {last: user, text: look}, call: [{tool: docs__look, arguments: {text: "x"}}]}\n',
    )
    async with watched(
        tmp_path,
        {"one": module("one", "Apple.", ("docs",)), "two": module("two", "Apple.")},
        script,
        config={"mcp": {"servers": {"docs": {"url": url, "auth": {"oauth": False}}}}},
        top={"servers": {"docs": {"command": f"python servers/docs.py {port}", "url": url}}},
        files={"servers/docs.py": PROGRAM, "servers/word.py": "WORD = 'a:'\n"},
        keys={"probe": {"depends_on": ["one", "two"]}},
    ) as saves:
        async with client(saves.fleet, "one") as caller:
            assert "a:x" in await ask(caller, "look")
            before = saves.fleet.snapshot().servers[0].pid
            assert await saves.after("servers/word.py", "WORD = 'b:'\n") == {"one"}
            assert saves.fleet.snapshot().servers[0].pid not in (before, None)
            assert "b:x" in await ask(caller, "look")

        def without(content: dict[str, Any]) -> None:
            del content["servers"]

        await saves.concerned(lambda: saves.edit("agents.yaml", without))
        assert saves.fleet.snapshot().servers == ()
        await until(lambda: not answers(port))


async def test_one_agent_served_alone_watches_its_own_files(tmp_path: Path) -> None:
    from support.live import running
    from support.offline import offline_project

    root = offline_project(tmp_path, agents(one="Apple.", two="Birch."), SCRIPT)
    async with running(root, only="one", watch=True) as fleet:
        saves = Saves(fleet, root)
        saves.write("agents/two.py", module("two", "Cedar."))
        saves.write("agents/one.py", module("one", "Cedar."))
        assert (await saves.outcome("one")).outcome == "live"
        async with client(fleet, "one") as caller:
            assert await ask(caller, "hello") == "Cedar. 1"
        mark = fleet.hub.seq
        saves.edit("agents.yaml", lambda content: content["agents"].pop("one"))
        told = await saves.outcome("", mark)
        assert told.outcome == "failed"
        assert "agents.one" in told.error
        assert [agent.name for agent in fleet.agents] == ["one"]


async def test_a_fleet_that_does_not_watch_reloads_what_is_different_when_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.live import running
    from support.offline import offline_project

    monkeypatch.setattr(applier, "DEADLINE", 600.0)
    patient = {name: {"start_timeout": 600} for name in ("one", "two")}
    root = offline_project(tmp_path, agents(one="Apple.", two="Birch."), SCRIPT, keys=patient)
    async with running(root) as fleet:
        await until(lambda: all_ready(fleet))
        saves = Saves(fleet, root)
        assert fleet.snapshot().watch is None
        saves.write("agents/two.py", module("two", "Cedar."))
        mark = fleet.hub.seq
        fleet.control_fleet("reload")
        assert (await saves.outcome("", mark)).outcome == "live"
        assert saves.versions() == {"one": 1, "two": 2}
        mark = fleet.hub.seq
        fleet.control_fleet("reload")
        assert (await saves.outcome("", mark)).outcome == "unchanged"
        assert saves.versions() == {"one": 1, "two": 2}
        fleet.control_fleet("pause")
        assert "does not watch its files; start it with --watch" in saves.notices()[-1]
