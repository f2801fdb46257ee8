"""Run the leak test: many concurrent callers in both protocol versions, each turn with a new token."""

import asyncio
import base64
import json
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final
from uuid import uuid4

import httpx2
from fast_agent import FastAgent
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from pallas.access.sent_credential import configured_credential
from pallas.config import AgentConfig, DownstreamConfig, Project
from pallas.config.ports import free_port
from pallas.executors import Executor
from pallas.executors.fastagent import seam
from pallas.executors.fastagent.agent_loader import load
from pallas.executors.fastagent.fastagent_executor import FastAgentExecutor
from pallas.fleet.fleet import Fleet
from pallas.model import Fault
from pallas.safe_text import one_line

from .echo import ECHO, RequestRecorder, echo_server
from .verdict import BearerVerdict, judge

LEGACY: Final = "legacy"
ERAS: Final = ("2026-07-28", LEGACY)
_FAILURES: Final = (TimeoutError, MCPError, ExceptionGroup, httpx2.HTTPError, OSError)
# Callers at work at once, seconds for one call, and seconds for one agent as a whole.
AT_ONCE: Final = 32
CALL_TIMEOUT: Final = 60.0
AGENT_TIMEOUT: Final = 600.0


def http_downstreams(project: Project, config: AgentConfig) -> tuple[str, ...]:
    """Return the downstreams with a URL that the agent's code declares.

    Raises Fault (CONFIG) when the code does not load.
    """
    declared = seam.all_servers(load(project, config))
    return tuple(
        name
        for name in declared
        if (found := project.downstreams.get(name)) is not None and found.transport != "stdio"
    )


def stand_in(
    project: Project, agents: Mapping[str, AgentConfig], echoes: Mapping[str, RequestRecorder]
) -> Project:
    """Return the project with only ``agents``, an echo for each downstream, no programs and no provider."""
    return replace(
        project,
        # The canaries of the check are not tokens of the project's callers.
        auth=None,
        agents={name: replace(each, auth=None) for name, each in agents.items()},
        bind="127.0.0.1",
        allowed_hosts=(),
        servers={},
        scripted=None,
        settings={},
        warnings=(),
        downstreams={
            name: replace(each, url=echoes[name].url)
            for name, each in project.downstreams.items()
            if name in echoes
        },
    )


class StandInExecutor(FastAgentExecutor):
    """An agent with the project's settings and downstreams, whose model only calls the given tool."""

    def __init__(self, project: Project, config: AgentConfig, servers: tuple[str, ...]) -> None:
        super().__init__(project, config)
        self._servers = servers

    def load_agent(self) -> FastAgent:
        """Return the stand-in's definition. Servers keep all settings except their address."""
        fast = FastAgent(self._config.name, parse_cli_args=False, quiet=True)

        @fast.agent(name=self._config.name, model="passthrough", servers=list(self._servers))
        async def main() -> None: ...

        seam.silence(fast)
        seam.introduce(fast)
        seam.point_at(fast, {name: self._project.downstreams[name].url for name in self._servers})
        return fast


async def check_bearer(project: Project, callers: int) -> tuple[BearerVerdict, ...]:
    """Check every HTTP downstream of every agent with ``callers`` concurrent callers per protocol version.

    Each agent's code is imported to learn its downstreams. What runs is a stand-in with the project's own
    settings, an echo behind every downstream, and a model that only calls the requested tool. The check
    contacts neither the project's programs nor anything outside this machine. An agent that cannot be checked
    gets a verdict with a problem.
    """
    verdicts: list[BearerVerdict] = []
    before = Path.cwd()
    os.chdir(project.root)
    try:
        for config in project.agents.values():
            if config.kind != "llm":  # Only these kinds have downstreams that fast-agent calls.
                continue
            try:
                servers = http_downstreams(project, config)
                if servers:
                    async with asyncio.timeout(AGENT_TIMEOUT):
                        verdicts += await _agent(project, config, servers, callers)
            except Fault as fault:
                verdicts.append(_unchecked(config, fault.message))
            except TimeoutError:
                verdicts.append(_unchecked(config, f"it did not finish within {AGENT_TIMEOUT:.0f} s"))
    finally:
        os.chdir(before)
    return tuple(verdicts)


async def _agent(
    project: Project, config: AgentConfig, servers: tuple[str, ...], callers: int
) -> list[BearerVerdict]:
    async with AsyncExitStack() as stack:
        echoes = {name: await stack.enter_async_context(echo_server()) for name in servers}
        # The stand-in is in no card, and has the entry's name.
        alone = replace(config, port=free_port(), needs=(), card=None, agent="")
        copy = replace(stand_in(project, {config.name: alone}, echoes), tls=None)

        async def make(copied: Project, agent: AgentConfig) -> Executor:
            return StandInExecutor(copied, agent, servers)

        fleet = Fleet(copy, dev=True, only=config.name, make_executor=make)
        try:
            await fleet.start()
            (agent,) = fleet.agents
            if agent.reason:
                return [_unchecked(config, agent.reason)]
            return [
                await _downstream(agent.url, config.name, project.downstreams[name], echoes[name], callers)
                for name in servers
            ]
        finally:
            await fleet.stop()


async def _downstream(
    url: str, agent: str, downstream: DownstreamConfig, echo: RequestRecorder, callers: int
) -> BearerVerdict:
    names = [f"{era}/{number}" for era in ERAS for number in range(1, callers + 1)]
    turns = {name: (f"{name}", f"{name}, turn 2") for name in names}
    tokens = {text: _canary(name) for name in names for text in turns[name]}
    gate = asyncio.Semaphore(AT_ONCE)
    lost: list[str] = []

    async def converse(name: str) -> None:
        async with gate, _talk(url, name, downstream.name) as talk:
            first, second = turns[name]
            await talk.say(first, tokens[first])
            if not await talk.say(second, tokens[second]):
                lost.append(f"caller {name} lost its conversation with the token of its next turn")
            if await talk.say(f"{name}, by another subject", _canary("another")):
                lost.append(f"another subject continued the conversation of caller {name}")
            talk.shows(tokens[second])

    async def converse_or_miss(name: str) -> None:
        with suppress(*_FAILURES):
            await converse(name)

    await asyncio.gather(*(converse_or_miss(name) for name in names))
    # The environment must not supply a token for callers that send none.
    strangers = [f"{era}/without a bearer" for era in ERAS]
    for text in strangers:
        with suppress(*_FAILURES):
            async with _talk(url, text, downstream.name) as talk:
                await talk.say(text, None)
    expected = len(tokens) + len(strangers)
    verdict = judge(agent, downstream.name, _rule(downstream), echo.requests, tokens, expected)
    return replace(verdict, problems=(*verdict.problems, *lost))


class _Talk:
    """One conversation. Each turn may send another token."""

    def __init__(self, client: Client, http: httpx2.AsyncClient, downstream: str, handle: str | None) -> None:
        self._client, self._http = client, http
        self._tool = f"{downstream}__{ECHO}"
        self._named = {"conversation_id": handle} if handle is not None else {}

    def shows(self, token: str | None) -> None:
        """Send this token from the next request on."""
        self._http.headers.pop("authorization", None)
        if token is not None:
            self._http.headers["authorization"] = f"Bearer {token}"

    async def say(self, text: str, token: str | None) -> bool:
        """Return whether the agent answered. A failed call is later counted as missing at the echo."""
        self.shows(token)
        message = f"***CALL_TOOL {self._tool} {json.dumps({'text': text})}"
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                result = await self._client.call_tool("send_message", {"message": message, **self._named})
        except _FAILURES:
            return False
        return not result.is_error


@asynccontextmanager
async def _talk(url: str, name: str, downstream: str) -> AsyncIterator[_Talk]:
    """Open a conversation by its handle; in the older protocol version, by a session without a token."""
    era = name.partition("/")[0]
    handle = str(uuid4()) if era != LEGACY else None
    async with (
        create_mcp_http_client() as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):
        yield _Talk(client, http, downstream, handle)


def _rule(downstream: DownstreamConfig) -> str:
    if configured_credential(downstream.headers):
        return "configured"
    return "forwarded" if downstream.forward_inbound_auth else "none"


def _canary(subject: str) -> str:
    """Return a JWT for one turn, signed with a key that is thrown away."""
    parts = ({"alg": "HS256", "typ": "JWT"}, {"iss": "pallas check bearer", "sub": subject})
    texts = (base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts)
    return ".".join((*texts, f"canary-{secrets.token_hex(16)}"))


def _unchecked(config: AgentConfig, problem: str) -> BearerVerdict:
    return BearerVerdict(config.name, "", "", 0, (one_line(f"could not be checked: {problem}", 300),))
