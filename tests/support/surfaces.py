"""Every way to talk to an agent of a fleet."""

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from pallas_tui.chat_client import ChatClient

from . import pallas_process
from .bridged import tell
from .live import ERAS
from .served import Served, text_of
from .tasks import TaskClient

BRIDGES = {f"bridge {era}": era for era in ERAS}
SURFACES = (*ERAS, "rest", "stream", "tool", *BRIDGES, "workbench")
MORE = ("task", "delegate", "command")
"""Slower ones: tasks of both kinds, and ``pallas chat`` in a process of its own."""


@asynccontextmanager
async def rest(fleet: Served) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the REST API."""
    base = f"{fleet.registry}/api/v1"
    async with httpx2.AsyncClient(base_url=base, trust_env=False, timeout=60) as client:
        yield client


@asynccontextmanager
async def door(fleet: Served, path: str, era: str = ERAS[0]) -> AsyncIterator[Client]:
    """A client of an MCP server of the fleet's own port."""
    async with (
        create_mcp_http_client() as http,
        Client(streamable_http_client(fleet.registry + path, http_client=http), mode=era) as client,
    ):
        yield client


async def say(fleet: Served, way: str, text: str, thread: str | None, agent: str = "boss") -> tuple[str, str]:
    """A message to an agent by one of the surfaces: its answer, and the thread's id."""
    if way in ERAS:
        async with fleet.client(agent, way) as client:
            arguments = {"message": text, "conversation_id": thread or "new"}
            result = await client.call_tool("send_message", arguments)
            assert not result.is_error, text_of(result)
            assert result.meta is not None
            return text_of(result), result.meta["local.pallas/threadId"]
    if way in BRIDGES:
        async with door(fleet, "/mcp", BRIDGES[way]) as client:
            more = {"metadata": {"threadId": thread}} if thread else {}
            session = (await tell(client, "sessions_create", agentId=agent, **more))["sessionId"]
            said = await tell(client, "sessions_prompt", sessionId=session, prompt=text)
            status = await tell(client, "sessions_status", sessionId=session)
            await tell(client, "sessions_close", sessionId=session)
            return said["text"], status["threadId"]
    if way == "workbench":
        workbench = ChatClient(fleet.url(agent), thread or f"conv-{uuid4()}")
        try:
            reply = await workbench.send(text)
        finally:
            await workbench.close()
        assert reply.fault is None
        return reply.text, reply.thread
    if way == "delegate":
        async with door(fleet, "/mcp") as client:
            more = {"metadata": {"threadId": thread}} if thread else {}
            task = await tell(client, "tasks_delegate", agentId=agent, prompt=text, wait=False, **more)
            said = await tell(client, "tasks_result", taskId=task["taskId"], timeout=60_000)
            status = await tell(client, "tasks_status", taskId=task["taskId"])
            return said["text"], status["threadId"]
    if way == "task":
        tasks = TaskClient(fleet.url(agent))
        made = await tasks.call(message=text, conversation_id=thread or "new")
        result = (await tasks.until(made["taskId"]))["result"]
        return result["content"][0]["text"], result["_meta"]["local.pallas/threadId"]
    if way == "command":
        more = ["--thread", thread] if thread else []
        printed = await typed("chat", agent, "-m", text, "--json", *more, "-p", str(fleet.root))
        return json.loads(printed)["text"], json.loads(printed)["threadId"]
    if way == "tool":
        async with door(fleet, "/projects/test/mcp") as client:
            more = {"threadId": thread} if thread else {}
            result = await client.call_tool(f"agent-{agent}__chat", {"message": text, **more})
            assert not result.is_error, text_of(result)
            assert result.meta is not None
            # What follows the answer tells a model how to come back.
            return result.content[0].text, result.meta["local.pallas/threadId"]
    async with rest(fleet) as api:
        body = {"message": text, "threadId": thread, "stream": way == "stream"}
        answer = await api.post(f"/agents/{agent}/chat", json=body)
        assert answer.status_code == 200, answer.text
        if way == "rest":
            return answer.json()["text"], answer.json()["threadId"]
        chunks = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
        assert chunks.pop() == "[DONE]"
        said = [json.loads(chunk) for chunk in chunks]
        return "".join(each.get("delta", "") for each in said if each["type"] == "text"), said[-1]["threadId"]


async def command(*words: str, cwd: Path | None = None) -> tuple[int, str, str]:
    """The exit status of a command of ``pallas`` in a process of its own, and what it printed."""
    process = await pallas_process.start_async(*words, stdout=PIPE, stderr=PIPE, cwd=cwd)
    try:
        async with asyncio.timeout(120):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def typed(*words: str) -> str:
    """What a command prints that succeeds."""
    status, out, err = await command(*words)
    assert status == 0, err
    return out


async def rows(fleet: Served, thread: str) -> list[dict[str, Any]]:
    """All rows of a thread, over the REST API."""
    async with rest(fleet) as api:
        answer = await api.get(f"/threads/{thread}/messages", params={"limit": 200})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["items"]
        return found
