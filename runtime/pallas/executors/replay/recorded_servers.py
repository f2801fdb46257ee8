"""MCP servers in memory, with the tools and instructions that models saw in a recording."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from mcp.server import Server
from mcp.shared.memory import create_client_server_memory_streams
from mcp_types import CallToolResult, ListToolsResult, Tool

from pallas.recordings.loose_match import is_stored, stand_in
from pallas.safe_text import one_line

from .replay import Replay

_END_S: Final = 2.0
"""Seconds for the end of a server."""
_DATA: Final = ("data", "blob")


@dataclass(frozen=True, slots=True)
class Recorded:
    """How a recorded server is reached."""

    replay: Replay
    name: str

    is_program = False
    writes_record = False

    @property
    def key(self) -> str:
        """The name of the server."""
        return self.name

    def open(self, link: Any) -> Any:
        """Start it."""
        return recorded_server(self.replay, self.name)


@asynccontextmanager
async def recorded_server(replay: Replay, name: str) -> AsyncIterator[Any]:
    """The streams of a client that is connected to the recorded server of that name."""
    server = _server(replay, name)
    async with create_client_server_memory_streams() as (ours, theirs):
        task = asyncio.create_task(
            server.run(*theirs, server.create_initialization_options()), name=f"recorded server {name}"
        )
        try:
            yield ours
        finally:
            task.cancel()
            await asyncio.wait({task}, timeout=_END_S)


def _server(replay: Replay, name: str) -> Server[Any]:
    label = one_line(name, 80).replace("/", "-")  # as steps name it
    tools = [
        Tool(name=tool.name, description=tool.description, input_schema=dict(tool.schema))
        for tool in replay.tools.of(name)
    ]

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        result = await replay.answer_call(label, one_line(params.name, 80), params.arguments or {})
        content = [with_stand_ins(each) for each in result.get("content", ())]
        return CallToolResult.model_validate({**result, "content": content})

    return Server(
        name,
        instructions=replay.tools.instructions(name) or None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def with_stand_ins(value: Any) -> Any:
    """A block of content, with a stand-in for the data of each picture that the recording lacks."""
    if not isinstance(value, dict):
        return value
    return {
        key: stand_in(each)
        if key in _DATA and isinstance(each, str) and is_stored(each)
        else with_stand_ins(each)
        for key, each in value.items()
    }
