"""Agents as tools: a virtual MCP server for each, and one for all of a project."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.live import ERAS, ECHO, client, running, write_project
from support.virtual import virtual, words

from pallas.fleet.fleet import Fleet
from pallas.model.params import KEYS

pytestmark = [pytest.mark.parametrize("era", ERAS), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    root = write_project(
        tmp_path_factory.mktemp("virtual"),
        {"desk": None, "research": None, "taken": None},
        keys={"desk": {"description": "Answers what it knows"}},
        config={"mcp": {"servers": {"agent-taken": {"command": "python", "args": ["echo_server.py"]}}}},
    )
    async with running(root) as found:
        yield found


async def test_an_agent_is_a_server_with_the_tool_chat_and_a_thread_to_go_on_with(
    fleet: Fleet, era: str
) -> None:
    # AG-23
    async with virtual(fleet, "/virtual/agent-desk/mcp", era=era) as desk:
        [tool] = (await desk.list_tools()).tools
        first = await desk.call_tool("chat", {"message": "hello"})
        thread = first.structured_content["threadId"]
        second = await desk.call_tool("chat", {"message": "again", "threadId": thread})
    assert (tool.name, tool.description) == ("chat", "Answers what it knows")
    assert set(tool.input_schema["properties"]) == {"message", "threadId", "images", *KEYS}
    assert words(first) == ["hello", f"(threadId: {thread})"]
    assert second.structured_content["threadId"] == thread
    assert second.meta["local.pallas/threadId"] == thread
    async with client(fleet, "desk", era=era) as own:
        said = await own.get_prompt("desk_history", {"conversation_id": thread})
    assert [each.content.text for each in said.messages] == ["hello", "hello", "again", "again"]
