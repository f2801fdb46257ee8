"""The sides of the comparison: how each is started, who calls it, and what it stores."""

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from . import environments
from .clients import (
    AdkClient,
    AgnoClient,
    Client,
    FastAgentClient,
    FastAgentSessionClient,
    PallasMcpClient,
    PallasRestClient,
    TurnClient,
)
from .servers import INSTRUCTION

CONVERSATIONS = 2_000


@dataclass(frozen=True)
class Place:
    """Where a server runs: its folder, its two ports, and the base URL of its model."""

    folder: Path
    port: int
    other: int
    model: str

    def write(self, name: str, text: str) -> None:
        """Write a file of the server."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


@dataclass(frozen=True)
class Side:
    """One server that is measured."""

    name: str
    command: Callable[[Place], list[str]]
    """Writes what the server needs and returns its command line; raises NotInstalledError."""
    client: Callable[[str], Client]
    """Makes a client of the URL of the server's first port."""
    versions: Callable[[], str]
    stored: str
    """What a turn writes, and where."""
    streamed: str
    """What is streamed of the model's answer and of its own."""
    kept: bool = True
    """Whether a later turn of the conversation sees it."""
    conversations: int = CONVERSATIONS
    """How many are stored to see what memory they take."""
    variant: bool = False
    """Whether it is another way to ask a server of this list: then only its load is measured."""


def _pallas(place: Place, first: bool) -> list[str]:
    agent, registry = (place.port, place.other) if first else (place.other, place.port)
    place.write(
        "agents.yaml",
        f"name: bench\nbind: 127.0.0.1\nregistry_port: {registry}\n"
        f"database_url: sqlite:///ledger.sqlite3?synchronous=full\n"
        f"agents:\n  talker: {{module: talker, port: {agent}}}\n",
    )
    place.write(
        "talker.py",
        "from fast_agent import FastAgent\n\nfast = FastAgent('talker')\n\n\n"
        f"@fast.agent(name='talker', instruction={INSTRUCTION!r}, model='generic.m')\n"
        "async def main() -> None: ...\n",
    )
    place.write("fastagent.config.yaml", _fast_agent_settings(place))
    return [sys.executable, "-m", "pallas.server", "--serve", "--project", str(place.folder)]


def _fast_agent_settings(place: Place) -> str:
    return (
        f"default_model: generic.m\ngeneric: {{api_key: none, base_url: '{place.model}'}}\n"
        "logger: {type: none, progress_display: false, show_chat: false}\n"
    )


def _fast_agent(scope: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        program = environments.python_of("fast-agent").with_name("fast-agent")
        place.write("fastagent.config.yaml", _fast_agent_settings(place))
        place.write("talker.md", f"---\ntype: agent\nname: talker\nmodel: generic.m\n---\n{INSTRUCTION}\n")
        return [
            *(str(program), "serve", "--transport", "http", "--port", str(place.port)),
            *("--instance-scope", scope, "--agent-cards", str(place.folder / "talker.md")),
            *("--config-path", str(place.folder / "fastagent.config.yaml"), "--home", str(place.folder)),
        ]

    return command


def _server(peer: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        module = f"benchmarks.peers.servers.{peer.replace('-', '_')}_server"
        database = str(place.folder / "conversations.sqlite3")
        return [
            *(str(environments.python_of(peer)), "-m", module),
            *(str(place.port), place.model, database),
        ]

    return command


def _adk(place: Place) -> list[str]:
    program = environments.python_of("google-adk").with_name("adk")
    database = place.folder / "sessions.sqlite3"
    with closing(sqlite3.connect(database)) as made:
        # The file keeps this. With ADK's own journal mode, and with five seconds for a lock, 16 callers fail.
        made.execute("PRAGMA journal_mode=WAL")
    place.write("agents/talker/__init__.py", "from . import agent\n")
    place.write(
        "agents/talker/agent.py",
        "from google.adk.agents import LlmAgent\nfrom google.adk.models.lite_llm import LiteLlm\n\n"
        f"model = LiteLlm(model='openai/m', api_base={place.model!r}, api_key='none')\n"
        f"root_agent = LlmAgent(name='talker', instruction={INSTRUCTION!r}, model=model)\n",
    )
    return [
        *(str(program), "api_server", "--port", str(place.port), "--log_level", "warning", "--no-reload"),
        *(
            "--session_service_uri",
            f"sqlite+aiosqlite:///{database}?timeout=60",
            str(place.folder / "agents"),
        ),
    ]


def _of(peer: str) -> Callable[[], str]:
    return lambda: environments.versions(peer)


def _own() -> str:
    return f"pallas-mcp {version('pallas-mcp')}, fast-agent-mcp {version('fast-agent-mcp')}"


_WAL = "SQLite, WAL, synchronous=FULL"
_PALLAS = f"{_WAL}: question and answer before it is returned; the run and its model steps soon after"
_AGNO = f"{_WAL}: the session, the run and its messages, before the answer ends"
_ADK = f"{_WAL}: the question before the model is asked, and the answer before it is returned"
_PIECE = "model streamed, answer in one piece"
_STREAM = "model streamed, answer streamed as events"
_WHOLE = "model not streamed, answer in one piece"


def _pallas_mcp(place: Place) -> list[str]:
    return _pallas(place, True)


def _pallas_rest(place: Place) -> list[str]:
    return _pallas(place, False)


SIDES = (
    Side("pallas-mcp", _pallas_mcp, PallasMcpClient, _own, _PALLAS, _PIECE),
    Side("pallas-rest", _pallas_rest, PallasRestClient, _own, _PALLAS, _PIECE),
    Side(
        "pallas-rest-sse",
        _pallas_rest,
        partial(PallasRestClient, streamed=True),
        _own,
        _PALLAS,
        _STREAM,
        variant=True,
    ),
    Side(
        "langgraph",
        _server("langgraph"),
        TurnClient,
        _of("langgraph"),
        f"{_WAL}: a checkpoint and its writes for each step of the graph",
        _PIECE,
    ),
    Side(
        "pydantic-ai",
        _server("pydantic-ai"),
        TurnClient,
        _of("pydantic-ai"),
        f"{_WAL}: a row of the new messages, before the answer is returned",
        _PIECE,
    ),
    Side(
        "openai-agents",
        _server("openai-agents"),
        TurnClient,
        _of("openai-agents"),
        f"{_WAL}: a row for each message, before the answer is returned",
        _PIECE,
    ),
    Side("agno-sse", _server("agno"), partial(AgnoClient, streamed=True), _of("agno"), _AGNO, _STREAM),
    Side(
        "agno-json",
        _server("agno"),
        partial(AgnoClient, streamed=False),
        _of("agno"),
        _AGNO,
        _WHOLE,
        variant=True,
    ),
    Side("google-adk-sse", _adk, partial(AdkClient, streamed=True), _of("google-adk"), _ADK, _STREAM),
    Side(
        "google-adk-json",
        _adk,
        partial(AdkClient, streamed=False),
        _of("google-adk"),
        _ADK,
        _WHOLE,
        variant=True,
    ),
    Side(
        "fast-agent",
        _fast_agent("request"),
        FastAgentClient,
        _of("fast-agent"),
        "nothing: no call knows another one",
        _PIECE,
        kept=False,
    ),
    Side(
        "fast-agent-sessions",
        _fast_agent("connection"),
        FastAgentSessionClient,
        _of("fast-agent"),
        "JSON files of the whole conversation, written again by each turn",
        _PIECE,
        conversations=200,  # each has an agent of its own
    ),
)
