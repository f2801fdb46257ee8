"""Small projects on disk, and fleets of them that really run."""

import json
import os
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from mcp import Client

from pallas.config import load_project
from pallas.fleet.fleet import Fleet
from pallas.fleet.health_monitor import CHECK_INTERVALS, CheckIntervals
from pallas.fleet.reload.verdict_judge import VerdictJudge
from pallas.model import AgentState, Event, RunRequest, RunResult, Verb
from pallas.model.fault_rules import FaultPlan

from .ports import free_ports
from .waiting import until

ERAS = ("2026-07-28", "legacy")
MODERN_FIRST = (ERAS[0], pytest.param(ERAS[1], marks=pytest.mark.slow))
"""For tests that are not about the protocol: the older version runs with ``make test-slow``."""

STDIO_SERVER = Path(__file__).with_name("stdio_server.py").read_text("utf-8")
"""What servers of a project import that need not be the SDK's."""
ECHO_SERVER = '''
import time
from stdio_server import StdioServer

server = StdioServer("echo")

@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return "echo:" + text

@server.tool()
def boom(text: str) -> str:
    """Fail."""
    raise ValueError("kaput")

@server.tool()
def slow(text: str) -> str:
    """Take a minute."""
    time.sleep(60)
    return "slow"

server.run()
'''


BLOCKING = """
import os
import time

from fast_agent import FastAgent

fast = FastAgent("slow")


async def ponder(gate: str) -> str:
    while not os.path.exists(gate):
        time.sleep(0.01)
    return "pondered"


@fast.agent(name="slow", instruction="You are slow.", function_tools=[ponder])
async def main() -> None: ...
"""
"""The agent ``slow``, whose tool ``ponder`` holds the loop until its ``gate``, a file, is there."""


def agent_module(name: str, servers: tuple[str, ...] = (), **more: object) -> str:
    """The source of an agent's module."""
    extra = "".join(f", {key}={value!r}" for key, value in more.items())
    return textwrap.dedent(f"""
        from fast_agent import FastAgent

        fast = FastAgent("{name}")


        @fast.agent(name="{name}", instruction="You are {name}.", servers={list(servers)!r}{extra})
        async def main() -> None: ...
    """)


def write_project(
    root: Path,
    agents: Mapping[str, str | None],
    *,
    keys: Mapping[str, Mapping[str, Any]] | None = None,
    top: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
) -> Path:
    """A project whose ``agents`` are module sources by name (None: a plain agent), on free ports.

    ``keys`` adds to an agent's entry, ``top`` to agents.yaml, ``config`` to the fast-agent
    configuration, ``files`` are written as they are. A key that is None is left out, ``registry_port`` where
    there is one ``port`` for everything. The model is fast-agent's passthrough.
    """
    registry, *ports = free_ports(len(agents) + 1)
    (root / "agents").mkdir(parents=True, exist_ok=True)
    (root / "agents" / "__init__.py").write_text("")
    entries: dict[str, Any] = {}
    for (name, source), port in zip(agents.items(), ports, strict=True):
        (root / "agents" / f"{name}.py").write_text(source or agent_module(name))
        entry = {"module": f"agents.{name}", "port": port, **(keys or {}).get(name, {})}
        entries[name] = {key: value for key, value in entry.items() if value is not None}
    topology = {"name": "test", "registry_port": registry, "agents": entries, **(top or {})}
    if "port" in topology:
        del topology["registry_port"]
    (root / "agents.yaml").write_text(yaml.safe_dump(topology, sort_keys=False))
    settings: dict[str, Any] = {
        "default_model": "passthrough",
        "logger": {"type": "none", "progress_display": False},
        **(config or {}),
    }
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    (root / "echo_server.py").write_text(ECHO_SERVER)
    (root / "stdio_server.py").write_text(STDIO_SERVER)
    for path, content in (files or {}).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root


ECHO: Mapping[str, Any] = {"mcp": {"servers": {"echo": {"command": "python", "args": ["echo_server.py"]}}}}


@asynccontextmanager
async def running(
    root: Path,
    *,
    only: str | None = None,
    pace: CheckIntervals = CHECK_INTERVALS,
    watch: bool = False,
    database: str | None = None,
    faults: FaultPlan | None = None,
    judge: VerdictJudge | None = None,
) -> AsyncIterator[Fleet]:
    """A fleet of the project at ``root`` in this loop, as `pallas dev` runs it, stopped at the end.

    ``watch`` has it apply changed files, which a fleet of a test does not without. ``database`` is where it
    keeps conversations; without one it keeps nothing. ``faults`` are injected. ``tests``
    are those of the project, which may hold new versions back.
    """
    before, argv = Path.cwd(), sys.argv
    sys.argv = ["pallas"]
    project = load_project(root, {**os.environ})
    fleet = Fleet(
        project,
        dev=True,
        only=only,
        pace=pace,
        watch=watch,
        database=database,
        faults=faults,
        judge=judge,
    )
    try:
        await fleet.start()
        yield fleet
    finally:
        await fleet.stop()
        os.chdir(before)
        sys.argv = argv


IN_A_FILE = "sqlite:///{folder}/ledger.sqlite3"
"""A database for ``module_fleet`` that lasts as long as the fleet."""


def module_fleet(
    *, database: str | None = None, ready: bool = False
) -> Callable[[Callable[[Path], Path]], Any]:
    """Make a fixture of a function that writes a project: a fleet of it that runs, for all tests of a module.

    The function gets an empty folder and returns the project's. With ``ready`` tests begin when each agent
    is ready.
    """

    def decorate(write: Callable[[Path], Path]) -> Any:
        @pytest_asyncio.fixture(scope="module", loop_scope="module")
        async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
            folder = tmp_path_factory.mktemp("fleet")
            place = database.format(folder=folder) if database is not None else None
            async with running(write(folder), database=place) as started:
                if ready:
                    await until(lambda: all_ready(started))
                yield started

        return fleet

    return decorate


@asynccontextmanager
async def client(
    fleet: Fleet, agent: str, *, era: str = ERAS[0], bearer: str | None = None
) -> AsyncIterator[Client]:
    """A real MCP client of one agent, in the era asked for."""
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    url = next(each.url for each in fleet.agents if each.name == agent)
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as connected,
    ):
        yield connected


async def ask(connected: Client, message: str, **arguments: Any) -> str:
    """The text an agent answers; fails the test when it is an error."""
    result = await connected.call_tool("send_message", {"message": message, **arguments})
    text = "".join(getattr(block, "text", "") for block in result.content)
    assert not result.is_error, text
    return text


async def run_agent(fleet: Fleet, agent: str, text: str, **more: Any) -> RunResult:
    """The result of a run of an agent that no surface began. ``more`` is of ``RunRequest``."""
    return await fleet.kernel.run(RunRequest(agent, text, **more))


async def ask_agent(fleet: Fleet, agent: str, text: str, **more: Any) -> str:
    """The text of such a run."""
    return (await run_agent(fleet, agent, text, **more)).text


async def control(fleet: Fleet, agent: str, verb: Verb) -> None:
    """Have a verb carried out on an agent, and wait until it is over: a second one is refused until then."""
    fleet.control(agent, verb)
    await verbs_over(fleet, agent)


async def verbs_over(fleet: Fleet, agent: str = "") -> None:
    """Wait until no verb is under way for an agent, by default for any."""
    under_way = fleet._control._under_way
    await until(lambda: agent not in under_way if agent else not under_way)


class HeardEvents:
    """The events of a fleet while it is entered."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.events: list[Event] = []

    def __enter__(self) -> "HeardEvents":
        self._unlisten = self._fleet.hub.listen(self.events.append)
        return self

    def __exit__(self, *_: object) -> None:
        self._unlisten()

    def of[T](self, kind: type[T], **facts: Any) -> list[T]:
        """The events of a kind that say all of that."""
        return [
            each
            for each in self.events
            if isinstance(each, kind) and all(getattr(each, key) == value for key, value in facts.items())
        ]


def tool_call(tool: str, **arguments: Any) -> str:
    """The message at which the passthrough model calls a tool."""
    return f"***CALL_TOOL {tool} {json.dumps(arguments)}"


def all_ready(fleet: Fleet) -> bool:
    """Whether every agent is ready."""
    return all(agent.state is AgentState.READY for agent in fleet.agents)
