"""MCP servers in memory, which offer what the recorded ones did.

That is what the recording says that they offered, else the tools and instructions that models saw. What
``tools.lock`` has of a server comes before both: agents get nothing else.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from mcp.server import Server
from mcp.shared.memory import create_client_server_memory_streams
from mcp_types import CallToolResult, ListToolsResult, Tool

from pallas.deadlines import cancel_and_wait
from pallas.recordings.loose_match import is_stored, stand_in
from pallas.safe_text import one_line
from pallas.telemetry.trace_context import current_agent

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
            await cancel_and_wait(task, seconds=_END_S)


def _server(replay: Replay, name: str) -> Server[Any]:
    label = one_line(name, 80).replace("/", "-")  # as steps name it
    tools, instructions = list(_tools(replay, name)), replay.tools.instructions(name)
    locked, offer = replay.plan.offered.get(name), replay.plan.offer(name, current_agent())
    if locked is not None:
        instructions = locked.instructions
    elif offer is not None:
        tools, instructions = list(map(Tool.model_validate, offer.tools)), offer.instructions

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        result = await replay.answer_call(label, one_line(params.name, 80), params.arguments or {})
        content = [with_stand_ins(each) for each in result.get("content", ())]
        return CallToolResult.model_validate({**result, "content": content})

    return Server(
        offer.name if offer is not None else name,
        version=offer.version if offer is not None else "",
        instructions=instructions or None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _tools(replay: Replay, name: str) -> Iterator[Tool]:
    """The tools of a server, in the order in which models saw them: by the lock if it has the server."""
    seen = replay.tools.of(name)
    offered = replay.plan.offered.get(name)
    if offered is None:
        for tool in seen:
            yield Tool(name=tool.name, description=tool.description, input_schema=dict(tool.schema))
        return
    for each in dict.fromkeys((*(tool.name for tool in seen), *offered.tools)):
        if (document := offered.tools.get(each)) is not None:
            described = document.get("description", "")
            yield Tool(name=each, description=described, input_schema=document.get("inputSchema", {}))


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
