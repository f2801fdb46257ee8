"""The bridge's MCP server, for any transport."""

from collections.abc import Callable
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


def make_bridge(parts: BridgeParts) -> tuple[FastMCP, Callable[[], None]]:
    """Return the server with the eight tools of the bridge and no prompts or resources (DR-1).

    Every failure of a tool is a result with ``isError`` and the JSON body of a Fault (DR-21). The function
    beside it has to be called before a request: it offers the handles of tasks as the project says then.
    """
    work, tasks = BridgeWork(parts), parts.tasks
    usual: list[Tool] = [BridgeTool(about, answer) for about, answer in works(work)]
    extended = with_handles(usual, work, tasks)
    offered: dict[str, Tool] = {}
    schemas: dict[str, dict[str, Any]] = {}
    parked = parts.inbound.parked()
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

    server.add_middleware(
        AgentAccess(lambda: offered, authorize=authorize, owner="the bridge", parked=parked)
    )
    server.take_schemas_from(schemas.get)
    if tasks() is not None:
        begin = begins(work, handles=parts.handles)
        server.add_extension(TasksExtension(tasks, {DELEGATE.name: begin}, authorize=authorize))

    def offer() -> None:
        now = extended if tasks() is not None and parts.handles() else usual
        if [*offered.values()] == now:
            return
        for name in offered:
            server.local_provider.remove_tool(name)
        offered.clear()
        for tool in now:
            offered[tool.name] = server.add_tool(tool)
        schemas.clear()
        schemas.update({tool.name: tool.parameters for tool in now})

    offer()
    return server, offer
