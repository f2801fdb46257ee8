"""Conversations that nobody comes back to: they go, and what was kept for them goes with them."""

import asyncio
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support import pallas_process, raw_client
from support.live import ECHO, ERAS, MODERN_FIRST, agent_module, ask, client, running, write_project
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.runs.conversations import IDLE_SECONDS, Conversations

CALL = '***CALL_TOOL echo__{} {{"text": "hi"}}'
both_eras = pytest.mark.parametrize("era", MODERN_FIRST)


def _conversations(fleet: Fleet, agent: str) -> Conversations:
    return fleet.kernel._conversations[agent]


def _pool(fleet: Fleet) -> Any:
    executor: Any = fleet.agents[0].executor
    return executor._pool


def _later(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the clock of the agent's conversations go on by that much, and its sweeper look once."""
    conversations = _conversations(fleet, fleet.agents[0].name)
    clock = conversations._clock
    monkeypatch.setattr(conversations, "_clock", lambda: clock() + seconds)
    fleet.kernel.sweep()


def _children() -> int:
    return len(pallas_process.below())


@both_eras
async def test_an_idle_conversation_takes_its_instance_and_its_children_along(
    tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PR-19
    keys = {"harper": {"instance_scope": "conversation", "max_instances": 3}}
    root = write_project(tmp_path, {"harper": agent_module("harper", ("echo",))}, keys=keys, config=ECHO)
    before = _children()
    async with running(root) as fleet, client(fleet, "harper", era=era) as caller:
        for name in ("one", "two"):
            assert "echo:hi" in await ask(caller, CALL.format("echo"), conversation_id=name)
        await until(lambda: _pool(fleet).size == 2)
        assert _children() >= before + 2
        running_call = asyncio.create_task(
            caller.call_tool("send_message", {"message": CALL.format("slow"), "conversation_id": "busy"})
        )
        await until(lambda: fleet.kernel.stats("harper").active == 1 and _pool(fleet).size == 3)
        _later(fleet, monkeypatch, IDLE_SECONDS)
        # Only the one with a run in it is left.
        await until(lambda: _pool(fleet).size == 1 and len(_conversations(fleet, "harper")) == 1)
        await until(lambda: _children() <= before + 1)
        assert fleet.kernel.stats("harper").active == 1
        with pytest.raises(MCPError, match="unknown, expired"):
            await caller.get_prompt("harper_history", {"conversation_id": "one"})
        running_call.cancel()
        await asyncio.wait({running_call})
        await until(lambda: _pool(fleet).size == 0)


async def test_the_end_of_a_session_ends_its_conversation(tmp_path: Path) -> None:
    # PR-19
    root = write_project(tmp_path, {"harper": None}, keys={"harper": {"instance_scope": "conversation"}})
    async with running(root) as fleet:
        async with client(fleet, "harper", era="legacy") as caller:
            await ask(caller, "kept by the session")
            await ask(caller, "again")
            await ask(caller, "kept by its handle", conversation_id="h")
            assert len(_conversations(fleet, "harper")) == 2
            await until(lambda: _pool(fleet).size == 2)
        # The client ended its session with DELETE.
        await until(lambda: len(_conversations(fleet, "harper")) == 1)
        await until(lambda: _pool(fleet).size == 1)
        async with client(fleet, "harper", era="legacy") as caller:
            prompt = await caller.get_prompt("harper_history", {"conversation_id": "h"})
            assert len(prompt.messages) == 2


def _descriptors() -> int:
    return psutil.Process().num_fds()


MANY = 150  # more than twice as many as the descriptors that may be open meanwhile


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["pooled", "conversation"])
async def test_hundreds_of_conversations_left_alone_cost_no_process_and_no_descriptor(
    tmp_path: Path, scope: str
) -> None:
    # PR-19
    keys = {"harper": {"instance_scope": scope, "max_instances": 4}}
    root = write_project(tmp_path, {"harper": None}, keys=keys)
    async with running(root) as fleet, client(fleet, "harper") as caller:
        await ask(caller, "x", conversation_id="first")
        children, descriptors = _children(), _descriptors()

        async def begin(number: int) -> None:
            assert await ask(caller, f"{number}", conversation_id=f"c{number}") == f"{number}"
            assert _descriptors() <= descriptors + 60

        for start in range(0, MANY, 10):
            await asyncio.gather(*map(begin, range(start, start + 10)))
        assert len(_conversations(fleet, "harper")) == MANY + 1
        await until(lambda: _pool(fleet).size <= 4 and not _pool(fleet)._tasks)
        assert _children() == children
        await until(lambda: _descriptors() <= descriptors + 20)
        assert await ask(caller, "still there", conversation_id="c0") == "still there"


@pytest.mark.slow
async def test_sessions_opened_and_left_cost_no_descriptor(tmp_path: Path) -> None:
    # PR-19
    root = write_project(tmp_path, {"harper": None})
    async with running(root) as fleet:
        url = fleet.agents[0].url
        await raw_client.handshake(url)
        descriptors = _descriptors()
        for _ in range(120):
            await raw_client.handshake(url)
            assert _descriptors() <= descriptors + 40
        await until(lambda: _descriptors() <= descriptors + 5)


async def test_what_an_agent_keeps_is_bounded_by_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PR-19
    keys = {"harper": {"instance_scope": "conversation", "max_instances": 8}}
    root = write_project(tmp_path, {"harper": None}, keys=keys)
    async with running(root) as fleet, client(fleet, "harper") as caller:
        monkeypatch.setattr(_conversations(fleet, "harper"), "_max_idle", 3)
        for number in range(12):
            await ask(caller, "x", conversation_id=f"c{number}")
        assert len(_conversations(fleet, "harper")) == 3
        await until(lambda: _pool(fleet).size == 3)


@both_eras
async def test_a_handle_made_for_a_caller_that_expired_is_refused_and_not_begun_anew(
    tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PR-19
    root = write_project(tmp_path, {"harper": None})
    async with running(root) as fleet, client(fleet, "harper", era=era) as caller:
        made = await caller.call_tool("send_message", {"message": "one", "conversation_id": "new"})
        handle = (made.meta or {})["local.pallas/conversationId"]
        await ask(caller, "two", conversation_id=handle)
        _later(fleet, monkeypatch, IDLE_SECONDS)
        late = await caller.call_tool("send_message", {"message": "three", "conversation_id": handle})
        assert late.is_error
        assert "unknown, expired" in late.content[0].text  # type: ignore[union-attr]


async def test_a_session_header_means_nothing_in_the_newer_era(tmp_path: Path) -> None:
    # PR-19
    root = write_project(tmp_path, {"harper": None})
    async with running(root) as fleet:
        url = fleet.agents[0].url
        async with client(fleet, "harper", era="legacy") as elder:
            await ask(elder, "said in a session")
            (key,) = next(iter(_conversations(fleet, "harper")._all.values())).names
            session = key.removeprefix("session:")
            headers = {"Mcp-Session-Id": session}
            async with (
                create_mcp_http_client(headers=headers) as http,
                Client(streamable_http_client(url, http_client=http), mode=ERAS[0]) as modern,
            ):
                assert (await modern.get_prompt("harper_history", {})).messages == []
                await ask(modern, "said in another era")
            prompt = await elder.get_prompt("harper_history", {})
            assert len(prompt.messages) == 2
