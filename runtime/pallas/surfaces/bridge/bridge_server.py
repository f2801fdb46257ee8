"""The bridge's MCP server, for any transport."""

from collections.abc import Mapping
from typing import Any, Final

from fastmcp import FastMCP
from fastmcp.tools import Tool

from pallas import __version__
from pallas.model import Principal
from pallas.safe_text import one_line
from pallas.surfaces.agent_access import AgentAccess
from pallas.surfaces.auth.inbound_auth import FLEET
from pallas.surfaces.stateless_server import StatelessServer

from ..tasks_extension import TasksExtension
from .bridge_tools import BridgeParts, BridgeTool, BridgeWork, works
from .task_tools import begins, with_handles
from .tool_schemas import DELEGATE

NAME: Final = "bridge"
_INSTRUCTIONS: Final = (
    "One endpoint for every agent of {fleet}. For a single piece of work call tasks_delegate. For a "
    "conversation look with agents_discover who can do it and is ready, open a session with sessions_create, "
    "talk with sessions_prompt and end with sessions_close. An error says in its JSON whether trying again "
    "helps (data.retryable) and whether the session is still good (data.sessionValid)."
)


def make_bridge(parts: BridgeParts) -> FastMCP:
    """Return the server with the eight tools of SPEC 7.2 and no prompts or resources (DR-1).

    Every failure of a tool is a result with ``isError`` and the JSON body of SPEC 7.3 (DR-21).
    """
    work, tasks = BridgeWork(parts), parts.tasks
    tools: list[Tool] = [BridgeTool(about, answer) for about, answer in works(work)]
    if tasks() is not None and parts.handles:
        tools = with_handles(tools, work, tasks)
    names, parked = [tool.name for tool in tools], parts.inbound.parked()
    server = StatelessServer(
        NAME,
        instructions=_INSTRUCTIONS.format(fleet=one_line(parts.snapshot().name, 60) or "the fleet"),
        version=__version__,
        on_duplicate="error",
        dereference_schemas=False,  # ours hold no references
        request_state_security=parked.security if parked is not None else None,
    )

    async def authorize(tool: str, principal: Principal) -> None:
        await parts.inbound.authorize(FLEET, tool, principal)

    server.add_middleware(AgentAccess(names, authorize=authorize, owner="the bridge", parked=parked))
    schemas: Mapping[str, dict[str, Any]] = {tool.name: tool.parameters for tool in tools}
    for tool in tools:
        server.add_tool(tool)
    server.take_schemas_from(schemas.get)
    if tasks() is not None:
        begin = begins(work, handles=parts.handles)
        server.add_extension(TasksExtension(tasks, {DELEGATE.name: begin}, authorize=authorize))
    return server
