"""Everything about an agent, looked up in a fleet that runs, with real servers of both eras."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from support import pallas_process
from support.fake_downstreams import FakeDownstream, serving, status
from support.live import ECHO, agent_module, ask, client, control, running, write_project
from support.odd_http import packed
from support.recording import recording
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import AgentDetail, Fault, FleetState, ServerDetail

# A stdio server whose tools are those named in a file, and which never answers when that says so.
CHANGING = """
import pathlib, sys, time
from stdio_server import StdioServer

words = pathlib.Path("tools.txt").read_text().split()
if words == ["hang"]:
    pathlib.Path("hangs.txt").write_text("here")
    time.sleep(600)
if words == ["die"]:
    print("no licence found", file=sys.stderr)
    sys.exit(3)
server = StdioServer("changing")
for word in words:
    name, _, text = word.partition("=")

    def tool(text: str) -> str:
        return text

    server.add_tool(tool, name=name, description=text or "Says something.")
server.run()
"""
SERVERS: dict[str, Any] = {"changing": {"command": "python", "args": ["changing.py"]}}


def echoing(root: Path) -> Path:
    return write_project(root, {"one": agent_module("one", ("echo",))}, config=ECHO)


def changing(root: Path, tools: str, servers: dict[str, Any] = SERVERS) -> Path:
    return write_project(
        root,
        {"one": agent_module("one", tuple(servers))},
        config={"mcp": {"servers": servers}},
        files={"changing.py": CHANGING, "tools.txt": tools},
    )


def server(detail: AgentDetail, name: str) -> ServerDetail:
    return next(each for each in detail.servers if each.server == name)


def names(found: ServerDetail) -> list[str]:
    return [tool.name for tool in found.tools]


async def test_an_agent_is_described_with_its_sources_its_entry_and_its_tools(tmp_path: Path) -> None:
    async with running(echoing(tmp_path)) as fleet:
        detail = await fleet.describe("one")
        assert detail.source == fleet.snapshot().agents[0].source
        file, _, line = detail.source.partition(":")
        assert (tmp_path / file).read_text().splitlines()[int(line) - 1].strip().startswith("one:")
        assert detail.instruction == "You are one."
        file, _, line = detail.defined.partition(":")
        assert file == "agents/one.py"
        assert (tmp_path / file).read_text().splitlines()[int(line) - 1].startswith("@fast.agent")
        entry = json.loads(detail.registry_entry)
        assert entry["server"]["name"] == "local.pallas/one"
        assert entry["server"]["remotes"][0]["url"].endswith("/mcp")
        own, echo = detail.servers
        assert (own.server, names(own), own.problem) == ("", ["send_message", "get_health"], "")
        assert "message" in json.loads(own.tools[0].input_schema)["properties"]
        assert (echo.server, names(echo)) == ("echo", ["echo", "boom", "slow"])
        tool = echo.tools[0]
        assert tool.description == "Say it again."
        assert json.loads(tool.input_schema)["required"] == ["text"]
        assert json.loads(tool.output_schema)["properties"]["result"]["type"] == "string"
        assert not any(each.changes for each in detail.servers)
        await until(lambda: len(pallas_process.below()) == 1)  # the agent's own


@pytest.mark.parametrize("mode", ["auto", "modern", "legacy"])
async def test_a_server_over_http_is_listed_in_its_era_with_what_is_configured(
    tmp_path: Path, mode: str
) -> None:
    async with recording() as recorder:
        recorder.demand = True
        entry = {
            "url": recorder.url,
            "protocol_mode": mode,
            "headers": {"Authorization": "Bearer configured-1"},
        }
        root = write_project(
            tmp_path, {"one": agent_module("one", ("rec",))}, config={"mcp": {"servers": {"rec": entry}}}
        )
        async with running(root) as fleet:
            heard = len(recorder.requests)
            found = server(await fleet.describe("one"), "rec")
            assert names(found) == ["note", "wait", "fail"], found.problem
            new = recorder.requests[heard:]
            assert {each.bearer for each in new} == {"configured-1"}
            assert ("initialize" in {each.what for each in new}) is (mode == "legacy")


async def test_a_server_of_the_oldest_transport_is_listed_too(tmp_path: Path) -> None:
    old: FastMCP = FastMCP("old")

    @old.tool
    async def note(text: str) -> str:
        return text

    async with serving(old.http_app(path="/sse", transport="sse")) as origin:
        root = write_project(
            tmp_path,
            {"one": agent_module("one", ("old",))},
            config={"mcp": {"servers": {"old": {"url": f"{origin}/sse", "transport": "sse"}}}},
        )
        async with running(root) as fleet:
            found = server(await fleet.describe("one"), "old")
            assert names(found) == ["note"], found.problem


@pytest.mark.parametrize("folded", [False, True])
async def test_an_answer_without_an_end_is_not_read(tmp_path: Path, folded: bool) -> None:
    async def endless(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            yield b'{"jsonrpc": "2.0", "id": 1, "result": "'
            while not await request.is_disconnected():
                yield b"x" * 1_000_000

        answer = StreamingResponse(lines(), media_type="application/json")
        return packed(answer, "gzip") if folded else answer

    fake = FakeDownstream(status(500))
    async with serving(fake) as origin:
        root = write_project(
            tmp_path,
            {"one": agent_module("one", ("endless",))},
            config={"mcp": {"servers": {"endless": {"url": f"{origin}/mcp"}}}},
        )
        async with running(root) as fleet:
            fake.answer = endless
            found = server(await fleet.describe("one"), "endless")
            assert "the answer holds more than 16 MiB, decoded" in found.problem, found.problem


async def test_a_card_is_where_its_agent_is_defined(tmp_path: Path) -> None:
    import yaml

    root = write_project(
        tmp_path, {"one": None}, files={"cards/one.md": "---\nname: one\ntype: agent\n---\nBe \u202eshort.\n"}
    )
    topology = yaml.safe_load((root / "agents.yaml").read_text())
    del topology["agents"]["one"]["module"]
    topology["agents"]["one"]["card"] = "cards/one.md"
    (root / "agents.yaml").write_text(yaml.safe_dump(topology, sort_keys=False))
    async with running(root) as fleet:
        detail = await fleet.describe("one")
        assert detail.defined == "cards/one.md"
        assert detail.instruction.strip() == "Be \\u202eshort."


async def test_what_changed_in_a_tool_list_is_told_while_it_runs(tmp_path: Path) -> None:
    async with running(changing(tmp_path, "a b=old c")) as fleet:
        assert names(server(await fleet.describe("one"), "changing")) == ["a", "b", "c"]
        (tmp_path / "tools.txt").write_text("b=new c d")
        changes = server(await fleet.describe("one"), "changing").changes
        assert (changes.added, changes.removed, changes.changed) == (("d",), ("a",), ("b",))
        assert changes.since is not None
        assert server(await fleet.describe("one"), "changing").changes == changes
        (tmp_path / "tools.txt").write_text("die")
        found = server(await fleet.describe("one"), "changing")
        assert found.problem == "its program ended with exit status 3: no licence found"
        (tmp_path / "tools.txt").write_text("b=new c d")
        assert server(await fleet.describe("one"), "changing").changes == changes  # it was away, not empty


async def test_a_server_that_cannot_be_listed_says_why_and_the_others_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_TEST_UNSET", "")  # a fleet gives it a value, which ends with this test
    monkeypatch.delenv("PALLAS_TEST_UNSET")
    async with recording() as recorder:
        recorder.demand = True
        servers = {
            "changing": SERVERS["changing"],
            "none": {"command": "no-such-program-anywhere"},
            "refused": {"url": "http://127.0.0.1:9/mcp"},
            "asks": {"url": recorder.url},
            "caller": {"url": recorder.url, "forward_inbound_auth": True},
            "unset": {"url": recorder.url, "headers": {"Authorization": "Bearer ${PALLAS_TEST_UNSET}"}},
        }
        async with running(changing(tmp_path, "a", servers)) as fleet:
            detail = await fleet.describe("one")
            problems = {each.server: each.problem for each in detail.servers}
            assert (problems[""], problems["changing"]) == ("", "")
            where = fleet.project.downstreams["none"].where
            assert problems["none"].startswith("no-such-program-anywhere cannot be started")
            assert str(where) in problems["none"]
            assert "cannot connect" in problems["refused"]
            assert "HTTP 401: it refuses the credentials that fastagent.config.yaml:" in problems["asks"]
            assert problems["caller"] == (
                "HTTP 401: it asks for a caller's credentials; call it with a bearer token"
            )
            assert all("\n" not in problem for problem in problems.values())


@pytest.mark.slow
async def test_a_server_that_hangs_is_given_up_and_its_program_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas.fleet.inspector.LIST_TIMEOUT", 0.5)
    async with running(changing(tmp_path, "a")) as fleet:
        before = set(pallas_process.below())
        (tmp_path / "tools.txt").write_text("hang")
        found = server(await fleet.describe("one"), "changing")
        assert found.problem == "it did not list its tools in time"
        await until(lambda: set(pallas_process.below()) <= before)


@pytest.mark.slow
async def test_a_describe_that_is_cancelled_leaves_no_child_and_no_task(tmp_path: Path) -> None:
    async with running(changing(tmp_path, "a")) as fleet:
        await fleet.describe("one")
        before, tasks = set(pallas_process.below()), len(asyncio.all_tasks())
        (tmp_path / "tools.txt").write_text("hang")
        call = asyncio.create_task(fleet.describe("one"))
        await until(lambda: (tmp_path / "hangs.txt").exists())
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: set(pallas_process.below()) <= before)
        await until(lambda: len(fleet.inspector._pending) == 0)
        await until(lambda: len(asyncio.all_tasks()) <= tasks)


async def test_a_stopped_and_a_broken_agent_are_described_all_the_same(tmp_path: Path) -> None:
    root = changing(tmp_path, "a")
    async with running(root) as fleet:
        await control(fleet, "one", "stop")
        detail = await fleet.describe("one")
        assert names(server(detail, "changing")) == ["a"]
        assert names(server(detail, "")) == ["send_message", "get_health"]
        assert (detail.defined, detail.registry_entry) == ("agents/one.py", "")
    (tmp_path / "agents" / "one.py").write_text("nonsense(")
    async with running(root) as fleet:
        detail = await fleet.describe("one")
        assert detail.defined == "agents/one.py"
        assert names(server(detail, "")) == ["send_message", "get_health"]
        assert "local.pallas/one" in detail.registry_entry


async def test_there_is_no_such_agent(tmp_path: Path) -> None:
    async with running(write_project(tmp_path, {"one": None})) as fleet:
        with pytest.raises(Fault, match="Agent not found: two"):
            await fleet.describe("two")


@pytest.mark.slow
async def test_looking_does_not_disturb_a_run(tmp_path: Path) -> None:
    async with running(echoing(tmp_path)) as fleet:
        async with client(fleet, "one") as caller:
            calls = [
                asyncio.create_task(ask(caller, '***CALL_TOOL echo__echo {"text": "x"}')) for _ in range(4)
            ]
            details = await asyncio.gather(*(fleet.describe("one") for _ in range(4)))
            assert all("echo:x" in text for text in await asyncio.gather(*calls))
        assert all(names(server(detail, "echo")) == ["echo", "boom", "slow"] for detail in details)


HOSTILE = """
from stdio_server import StdioServer

BAD = "\\x1b]52;c;eA==\\x07 \\u202e [@click=app.quit]x[/]"

def nothing() -> str:
    return "x"

server = StdioServer("hostile")
server.add_tool(nothing, name="big", input_schema={"type": "object", "description": "y" * 300_000})
server.add_tool(nothing, name=BAD, description=BAD, input_schema={"type": "object", BAD: BAD})
for number in range(600):
    server.add_tool(nothing, name=f"t{number}", input_schema={"type": "object"})
server.run()
"""


@pytest.mark.slow
async def test_a_hostile_list_is_sanitised_and_bounded(tmp_path: Path) -> None:
    root = write_project(
        tmp_path,
        {"one": agent_module("one", ("bad",))},
        config={"mcp": {"servers": {"bad": {"command": "python", "args": ["bad.py"]}}}},
        files={"bad.py": HOSTILE},
    )
    async with running(root) as fleet:
        found = server(await fleet.describe("one"), "bad")
        assert len(found.tools) == 500, found.problem
        assert found.problem == "it has more tools; only the first 500 are shown"
        big, bad = found.tools[:2]
        assert len(big.input_schema) < 65_600
        assert json.loads(big.input_schema)["type"] == "object"
        for text in (bad.name, bad.description, bad.input_schema, repr(json.loads(bad.input_schema))):
            assert not {"\x1b", "\x07", "\u202e"} & set(text)


def _thread(root: Path) -> ThreadedFleet:
    return ThreadedFleet(root)


@pytest.mark.slow
async def test_the_workbench_asks_from_another_thread_and_a_cancel_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "log" / "pallas.log"))
    root = changing(tmp_path / "project", "a")
    before = Path.cwd()
    fleet = _thread(root)
    with pytest.raises(Fault, match="the fleet is starting"):
        await fleet.describe("one")
    fleet.control("one", "stop")
    assert "was not done: the fleet is starting" in _last_notice(fleet)
    fleet.start()
    try:
        await until(lambda: fleet.snapshot().state is FleetState.RUNNING, timeout=60)
        detail = await fleet.describe("one")
        assert names(server(detail, "changing")) == ["a"]
        with pytest.raises(Fault, match="Agent not found"):
            await fleet.describe("two")
        fleet.control("two", "stop")
        await until(lambda: "there is no agent two" in _last_notice(fleet))
        children = set(pallas_process.below())
        (root / "tools.txt").write_text("hang")
        call = asyncio.create_task(fleet.describe("one"))
        await until(lambda: (root / "hangs.txt").exists())
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: set(pallas_process.below()) <= children)
        (root / "hangs.txt").unlink()
        call = asyncio.create_task(fleet.describe("one"))
        await until(lambda: (root / "hangs.txt").exists())
        await asyncio.to_thread(fleet.stop, 20)
        # What was under way is told that the fleet is gone, and so is what comes later.
        assert "stopping" in server(await call, "changing").problem
        with pytest.raises(Fault, match="not running any more"):
            await fleet.describe("one")
        fleet.control("one", "start")
        assert "was not done: the fleet is not running any more" in _last_notice(fleet)
    finally:
        await asyncio.to_thread(fleet.stop, 20)
        os.chdir(before)
    # Started again, it knows what the list was before.
    (root / "tools.txt").write_text("b")
    again = _thread(root)
    again.start()
    try:
        await until(lambda: again.snapshot().state is FleetState.RUNNING, timeout=60)
        changes = server(await again.describe("one"), "changing").changes
        assert (changes.added, changes.removed) == (("b",), ("a",))
    finally:
        await asyncio.to_thread(again.stop, 20)
        os.chdir(before)


def _last_notice(fleet: ThreadedFleet | Fleet) -> str:
    from pallas.model import Notice

    events = fleet.since(0).events if isinstance(fleet, ThreadedFleet) else fleet.hub.since(0).events
    return next((event.text for event in reversed(events) if isinstance(event, Notice)), "")
