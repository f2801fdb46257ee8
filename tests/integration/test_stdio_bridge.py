"""A server of the project that speaks stdio, served over HTTP by the fleet: one program for all who call."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client, MCPError
from support.live import ERAS, STDIO_SERVER
from support.ports import free_ports
from support.processes import gone
from support.waiting import until

from pallas.config.models import ServerConfig
from pallas.fleet.programs import Program
from pallas.model import AgentState

SERVER = '''
import asyncio
import os

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("papers", instructions="Ask for papers.", version="2.1")
cancelled = []


@server.tool()
def whoami() -> str:
    """The process that answers."""
    return str(os.getpid())


@server.tool()
async def count(upto: int, ctx: Context) -> str:
    """Report each step."""
    for step in range(1, upto + 1):
        await ctx.report_progress(step, upto, f"step {step}")
    return "counted"


@server.tool()
async def hang(gate: str) -> str:
    """Until it is cancelled, which it writes down, as that it has begun."""
    open(gate + ".begun", "w").close()
    try:
        await asyncio.sleep(3600)
    finally:
        open(gate, "w").close()
    return "never"


@server.tool()
def boom() -> str:
    """Fail."""
    raise ValueError("kaput")


@server.resource("paper://one")
def paper() -> str:
    """A paper."""
    return "words"


@server.prompt()
def ask(about: str) -> str:
    """A question."""
    return f"What about {about}?"


server.run("stdio")
'''
WHOAMI = '''
import os
import sys

from stdio_server import StdioServer

server = StdioServer("papers")


@server.tool()
def whoami() -> str:
    """The process that answers."""
    return str(os.getpid())


print("a line for the log", file=sys.stderr, flush=True)
server.run()
'''


pytestmark = pytest.mark.asyncio(loop_scope="module")
both_eras = pytest.mark.parametrize("era", ERAS)
forked = pytest.mark.usefixtures("forked_children")
"""For a bridge of the test's own; the start of ``papers`` is a true one."""


@asynccontextmanager
async def served(folder: Path, source: str = SERVER, **more: Any) -> AsyncIterator[Program]:
    (folder / "papers.py").write_text(source)
    (folder / "stdio_server.py").write_text(STDIO_SERVER)
    (port,) = free_ports(1)
    config = ServerConfig(
        name="papers",
        command=(sys.executable, "papers.py"),
        url=f"http://127.0.0.1:{port}/mcp",
        cwd=folder,
        transport="stdio",
        **more,
    )
    program = Program(config)
    await program.start()
    try:
        yield program
    finally:
        await program.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def papers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Program]:
    """One server that stays, for tests that only call it."""
    async with served(tmp_path_factory.mktemp("papers")) as program:
        assert program.state is AgentState.READY, program.error
        yield program


def text(result: Any) -> str:
    return str(result.content[0].text)


@pytest.mark.slow
async def test_a_file_beside_the_server_is_not_taken_for_a_library_of_the_bridge(tmp_path: Path) -> None:
    (tmp_path / "anyio.py").write_text("raise RuntimeError('of the project')\n")
    async with served(tmp_path, WHOAMI) as program:
        assert program.state is AgentState.READY, program.error
        async with Client(program.config.url) as client:
            assert text(await client.call_tool("whoami")).isdigit()


@pytest.mark.slow
@both_eras
async def test_all_that_the_server_has_is_there_over_http(papers: Program, era: str) -> None:
    async with Client(papers.config.url, mode=era) as client:
        if client.server_info is not None:  # the newer protocol has it with each result
            assert (client.server_info.name, client.server_info.version) == ("papers", "2.1")
            assert client.instructions == "Ask for papers."
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["whoami", "count", "hang", "boom"]
        assert tools[1].input_schema["properties"]["upto"]["type"] == "integer"
        contents = (await client.read_resource("paper://one")).contents
        assert getattr(contents[0], "text", "") == "words"
        prompt = await client.get_prompt("ask", {"about": "lamps"})
        assert getattr(prompt.messages[0].content, "text", "") == "What about lamps?"
        assert (await client.call_tool("boom")).is_error
        with pytest.raises(MCPError):
            await client.get_prompt("nothing")


@both_eras
async def test_progress_reaches_whoever_asked_and_nobody_else(papers: Program, era: str) -> None:
    async with (
        Client(papers.config.url, mode=era) as one,
        Client(papers.config.url, mode=era) as other,
    ):
        heard: dict[str, list[float]] = {"one": [], "other": []}

        async def note(name: str, progress: float, total: float | None, message: str | None) -> None:
            heard[name].append(progress)

        await asyncio.gather(
            one.call_tool("count", {"upto": 3}, progress_callback=lambda *a: note("one", *a)),
            other.call_tool("count", {"upto": 5}, progress_callback=lambda *a: note("other", *a)),
            other.call_tool("count", {"upto": 4}),
        )
        await until(lambda: heard == {"one": [1, 2, 3], "other": [1, 2, 3, 4, 5]})


@both_eras
async def test_a_cancel_reaches_the_server(papers: Program, tmp_path: Path, era: str) -> None:
    gate = tmp_path / "cancelled"
    async with Client(papers.config.url, mode=era) as client:
        hanging = asyncio.create_task(client.call_tool("hang", {"gate": str(gate)}))
        assert text(await client.call_tool("whoami")).isdigit()  # others are answered meanwhile
        await until((tmp_path / "cancelled.begun").exists)
        hanging.cancel()
        await until(gate.exists)


@pytest.mark.slow
@forked
async def test_callers_share_one_program_whose_output_is_logged_and_which_ends_with_the_fleet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with served(tmp_path, WHOAMI) as program:
        pids = set()
        for era in ERAS:
            async with Client(program.config.url, mode=era) as client:
                pids.add(int(text(await client.call_tool("whoami"))))
        assert len(pids) == 1
        (pid,) = pids
        assert not gone(pid)
        await until(lambda: "a line for the log" in caplog.text)
    await until(lambda: gone(pid))


@pytest.mark.slow
@forked
async def test_nothing_of_it_is_left_when_the_bridge_is_killed(tmp_path: Path) -> None:
    async with served(tmp_path, WHOAMI) as program:
        async with Client(program.config.url) as client:
            pid = int(text(await client.call_tool("whoami")))
        bridge = program.snapshot().pid
        assert bridge is not None
        os.kill(bridge, signal.SIGKILL)
        await until(lambda: gone(pid))


async def test_a_page_of_the_web_does_not_reach_it(papers: Program) -> None:
    import httpx2

    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        for headers, status in (
            ({"Host": "evil.example"}, 421),
            ({"Origin": "http://evil.example"}, 403),
        ):
            assert (await http.post(papers.config.url, json={}, headers=headers)).status_code == status


@pytest.mark.slow
@forked
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise SystemExit('no papers today')", "no papers today"),
        ("print('hello, this is no protocol')", "papers.py"),
    ],
    ids=["ends", "speaks-otherwise"],
)
async def test_one_that_is_no_server_says_why(tmp_path: Path, source: str, said: str) -> None:
    async with served(tmp_path, source, start_timeout=60.0) as program:
        assert program.state is not AgentState.READY
        assert program.error != ""
        assert "ended with status 1" in program.error or said in program.error
