"""Run the leak test: many callers at once, each with a token of its own, in both protocol eras."""

import asyncio
import json
import os
import secrets
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from pallas.config import AgentConfig, DownstreamConfig, Project
from pallas.executors import Executor
from pallas.fleet.fleet import Fleet
from pallas.model import Fault
from pallas.text import one_line

from .echo import ECHO, Recorder, echo_server
from .fleet import StandInExecutor, http_downstreams, stand_in
from .verdict import Verdict, judge

ERAS: Final = ("2026-07-28", "legacy")
# Callers at work at one time, seconds for one call, and for the whole of one agent.
AT_ONCE: Final = 32
CALL_TIMEOUT: Final = 60.0
AGENT_TIMEOUT: Final = 600.0


async def check_bearer(project: Project, callers: int) -> tuple[Verdict, ...]:
    """What ``callers`` callers at once, in each era, make of every HTTP downstream of every agent.

    Each agent's code is imported to learn its downstreams; what runs is a stand-in with the project's own
    settings, an echo behind every downstream and a model that only calls the tool it is told. Neither the
    project's programs nor anything outside this machine is contacted. An agent that cannot be checked is
    a verdict with a problem.
    """
    verdicts: list[Verdict] = []
    before = Path.cwd()
    os.chdir(project.root)
    try:
        for config in project.agents.values():
            if config.kind != "llm":  # no other kind has downstreams that fast-agent calls
                continue
            try:
                servers = http_downstreams(project, config)
                if servers:
                    async with asyncio.timeout(AGENT_TIMEOUT):
                        verdicts += await _agent(project, config, servers, callers)
            except Fault as fault:
                verdicts.append(_unchecked(config, fault.message))
            except TimeoutError:
                verdicts.append(_unchecked(config, f"it was not done within {AGENT_TIMEOUT:.0f} s"))
    finally:
        os.chdir(before)
    return tuple(verdicts)


async def _agent(
    project: Project, config: AgentConfig, servers: tuple[str, ...], callers: int
) -> list[Verdict]:
    async with AsyncExitStack() as stack:
        echoes = {name: await stack.enter_async_context(echo_server()) for name in servers}
        alone = replace(config, port=_free_port(), needs=())
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
    url: str, agent: str, downstream: DownstreamConfig, echo: Recorder, callers: int
) -> Verdict:
    tokens = {f"{era}/{number}": _canary() for era in ERAS for number in range(1, callers + 1)}
    gate = asyncio.Semaphore(AT_ONCE)

    async def call(text: str, token: str | None) -> None:
        async with gate:
            await _call(url, text.partition("/")[0], downstream.name, text, token)

    await asyncio.gather(*(call(text, token) for text, token in tokens.items()))
    # Nobody's token may be left for those who bring none.
    strangers = [f"{era}/without a bearer" for era in ERAS]
    for text in strangers:
        await call(text, None)
    return judge(agent, downstream.name, _rule(downstream), echo.heard, tokens, len(tokens) + len(strangers))


async def _call(url: str, era: str, downstream: str, text: str, token: str | None) -> None:
    """One call of one caller; one that fails is missed where it should have arrived."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    message = f"***CALL_TOOL {downstream}__{ECHO} {json.dumps({'text': text})}"
    try:
        async with asyncio.timeout(CALL_TIMEOUT):
            async with (
                create_mcp_http_client(headers=headers) as http,
                Client(streamable_http_client(url, http_client=http), mode=era) as client,
            ):
                await client.call_tool("send_message", {"message": message})
    except (TimeoutError, ExceptionGroup, httpx2.HTTPError, OSError):
        return


def _rule(downstream: DownstreamConfig) -> str:
    if any(name.lower() in ("authorization", "x-hf-authorization") for name in downstream.headers):
        return "configured"
    return "forwarded" if downstream.forward_inbound_auth else "none"


def _canary() -> str:
    return f"canary-{secrets.token_hex(16)}"


def _unchecked(config: AgentConfig, problem: str) -> Verdict:
    return Verdict(config.name, "", "", 0, (one_line(f"could not be checked: {problem}", 300),))


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
