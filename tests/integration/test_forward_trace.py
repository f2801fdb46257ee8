"""A dispatch to a downstream that fails: the traceback is in the log, the model reads a short text."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client
from support.hooks import uninstall
from support.live import ask, client, running, write_project
from support.offline import offline_model

from pallas.executors.fastagent.agent_loader import HOOKS
from pallas.fleet.fleet import Fleet
from pallas.mcp_client import library_hooks
from pallas.model.redaction import forget, redact
from pallas.scripted.scripted_server import record_of
from pallas.telemetry.log import close_logging, setup_logging

AWAIT_NONE = "object NoneType can't be used in 'await' expression"
SECRET = "planted-7f3a9c2e"
ODD = f'''
import os
from stdio_server import FailedError, RefusedError, StdioServer

server = StdioServer("odd")

@server.tool(structured_output=False)
def refuse() -> str:
    """Refuse, at length and with a secret."""
    raise RefusedError(-32000, "no: {SECRET} \\x1b[31mred\\x1b[0m " + "x" * 5000 + "\\nsecond line")

@server.tool(structured_output=False)
def riddle() -> str:
    """Fail as the server of the incident did: its middleware awaited None, and the text went out."""
    raise FailedError("Error calling tool: " + {AWAIT_NONE!r})

@server.tool(structured_output=False)
def decline() -> str:
    """Answer with an error."""
    raise FailedError("no such customer")

@server.tool(structured_output=False)
def die() -> str:
    """Go away in the middle of a call."""
    os._exit(3)

@server.tool(structured_output=False)
def fine(text: str) -> str:
    """Answer."""
    return "fine: " + text

server.run()
'''
DESK = """
from fast_agent import FastAgent

fast = FastAgent("desk")


def crumble() -> str:
    raise ValueError("it is made of sand")


@fast.agent(name="desk", instruction="You are desk.", servers=["odd"], function_tools=[crumble])
async def main() -> None: ...
"""
SCRIPT = """
rules:
  - {when: {last: user, text: please crumble}, call: [{tool: crumble, arguments: {}}]}
  - {when: {last: user, text: please say no}, call: [{tool: odd__decline, arguments: {}}]}
  - {when: {last: user, text: please refuse}, call: [{tool: odd__refuse, arguments: {}}]}
  - {when: {last: user, text: please riddle}, call: [{tool: odd__riddle, arguments: {}}]}
  - {when: {last: user, text: please die}, call: [{tool: odd__die, arguments: {}}]}
  - {when: {last: user, text: please fine}, call: [{tool: odd__fine, arguments: {text: hello}}]}
  - {when: {last: tool}, say: "it said: {{ result }}"}
  - {when: {last: user}, say: "heard"}
"""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    # Before the fleet, as the command line does it: what a hook says of itself must be in the file.
    file = setup_logging("info", path=tmp_path_factory.mktemp("log") / "pallas.log", stderr=False)
    redact(SECRET)  # for every test here: whoever refuses says it
    yield file
    forget(SECRET)
    close_logging()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory, log_file: Path) -> AsyncIterator[Fleet]:
    servers = {"odd": {"command": "python", "args": ["odd.py"]}}
    root = write_project(
        tmp_path_factory.mktemp("trace"),
        {"desk": DESK, "other": None},
        **offline_model(SCRIPT, config={"mcp": {"servers": servers}}, files={"odd.py": ODD}),
    )
    for hook in HOOKS:  # another test of this process may have installed them
        uninstall(hook)
    async with running(root) as running_fleet:
        yield running_fleet


def whole(path: Path) -> str:
    return path.read_text("utf-8")


def shell(command: str) -> str:
    done = subprocess.run(command, shell=True, check=True, capture_output=True, text=True, timeout=30)
    return done.stdout


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in whole(path).splitlines()]


def traced(path: Path, tool: str) -> list[dict[str, Any]]:
    mine = [record for record in records(path) if record["logger"] == "pallas.forward.trace"]
    return [record for record in mine if record.get("tool") == tool]


def tool_results(fleet: Fleet) -> str:
    """Every tool result the model was sent."""
    assert fleet.surfaces.offline_model.server is not None
    bodies = record_of(fleet.surfaces.offline_model.server).requests
    return json.dumps([m["content"] for body in bodies for m in body["messages"] if m["role"] == "tool"])


async def test_the_hooks_are_named_in_one_line_of_the_log(fleet: Fleet, log_file: Path) -> None:
    # PR-29, PR-30: two agents were loaded, the log was set up before
    (record,) = [each for each in records(log_file) if each["message"].startswith("hooks installed")]
    names = {hook.name for hook in HOOKS}
    assert names <= set(record["hooks"])
    assert record["message"].endswith(", ".join(record["hooks"]))
    assert not [each for each in records(log_file) if each["message"].startswith("installed hook")]
    assert all(library_hooks.installed(each.owner, each.attribute).count(each.name) == 1 for each in HOOKS)
    async with client(fleet, "desk") as desk:
        assert await ask(desk, "please fine") == "it said: fine: hello"


async def test_a_dispatch_that_raises_is_traced_at_its_origin_and_told_briefly(
    fleet: Fleet, log_file: Path
) -> None:
    # PR-32
    async with client(fleet, "desk") as desk:
        result = await desk.call_tool("send_message", {"message": "please refuse"})
    run_id = (result.meta or {})["local.pallas/runId"]
    (record,) = [each for each in traced(log_file, "refuse") if each["run_id"] == run_id]
    assert record["level"] == "ERROR"
    assert (record["agent"], record["downstream"]) == ("desk", "odd")
    # The origin: the client's own frames, not only those of the loop that swallowed it.
    assert "Traceback" in record["exc"]
    assert "send_request" in record["exc"]
    assert "MCPError" in record["exc"]
    assert SECRET not in whole(log_file)
    assert "\x1b" not in whole(log_file)
    answer = "".join(getattr(block, "text", "") for block in result.content)
    assert "Failed to call_tool 'refuse' on server 'odd'" in answer
    assert len(answer) < 700
    for hidden in (SECRET, "Traceback", "\x1b", "second line"):
        assert hidden not in answer
        assert hidden not in tool_results(fleet)


@pytest.mark.parametrize(
    ("message", "level", "words", "origin"),
    [
        ("crumble", "ERROR", "Tool crumble failed: it is made of sand", "in crumble"),
        ("refuse", "ERROR", "desk: odd/refuse failed: MCPError: no: ", "in send_request"),
        ("say no", "WARNING", "desk: odd/decline failed: no such customer", ""),
        ("riddle", "WARNING", "desk: odd/riddle failed: Error calling tool: object NoneType", ""),
        ("die", "ERROR", "desk: odd/die failed: MCPError: Connection closed", "in send_request"),
    ],
)
async def test_a_failed_call_is_one_record_of_its_agent_and_run(
    fleet: Fleet, log_file: Path, message: str, level: str, words: str, origin: str
) -> None:
    async with client(fleet, "desk") as desk:
        result = await desk.call_tool("send_message", {"message": f"please {message}"})
    run_id = (result.meta or {})["local.pallas/runId"]
    mine = [each for each in records(log_file) if each.get("run_id") == run_id]
    (record,) = [each for each in mine if each["level"] != "INFO"]
    assert words in record["message"]
    assert (record["level"], record["agent"]) == (level, "desk")
    assert (origin in record["exc"]) if origin else "exc" not in record
    assert "event_data" not in record


async def test_the_recipes_of_the_docs_find_them(fleet: Fleet, log_file: Path) -> None:
    # PR-30, PR-32
    docs = whole(Path(__file__).parents[2] / "docs" / "logging.md")
    recipes = [line for line in docs.splitlines() if line.startswith(("jq ", "grep "))]
    assert len(recipes) == 2
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    async with client(fleet, "desk") as desk:
        await desk.call_tool("send_message", {"message": "please refuse"})
    traces, told = [
        await asyncio.to_thread(shell, recipe.replace("~/.local/state/pallas/pallas.log", str(log_file)))
        for recipe in recipes
    ]
    assert '"tool": "refuse"' in traces
    assert "Traceback" in traces
    assert "pallas.fleet" not in traces
    assert told.count("hooks installed in fast-agent: ") == 1
    assert "bounded-parts" in told


async def test_a_server_that_dies_in_a_call_is_traced_and_the_next_call_works(
    fleet: Fleet, log_file: Path
) -> None:
    # PR-32
    async with client(fleet, "desk") as desk:
        said = await ask(desk, "please die")
        assert len(said) < 700
        assert traced(log_file, "die")
        assert "Traceback" in traced(log_file, "die")[0]["exc"]
        assert await ask(desk, "please fine") == "it said: fine: hello"


async def test_the_riddle_of_an_awaited_none_never_reaches_a_model(
    fleet: Fleet, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PR-31: from the code of a downstream, and from a function of the client's that returns nothing
    async with client(fleet, "desk") as desk:
        said = await ask(desk, "please riddle")
        assert "failed inside odd" in said

        call_tool = Client.call_tool

        def returns_none(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            return None if name == "fine" else call_tool(self, name, *args, **kwargs)

        monkeypatch.setattr(Client, "call_tool", returns_none)
        said = await ask(desk, "please fine")
        assert "TypeError" not in said
        assert "it failed inside" in said
        assert "pallas.forward.trace" in said
    assert "await" not in tool_results(fleet)
    assert "NoneType" not in tool_results(fleet)
    (record,) = traced(log_file, "fine")
    assert AWAIT_NONE in record["exc"]
    assert "Traceback" in record["exc"]
