"""Agents as tools: the MCP servers ``agent-<name>``, and all those of a project as one (AG-23)."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

from fastmcp.server.dependencies import fastmcp_request_ctx
from fastmcp.server.middleware import Middleware, MiddlewareContext
from fastmcp.server.providers import Provider
from fastmcp.tools import Tool
from fastmcp.utilities.versions import VersionSpec

from pallas.model import Principal
from pallas.runs.kernel import Kernel

from .agent_access import AgentAccess
from .agent_tool import CHAT_SCHEMA, ChatTool
from .auth.inbound_auth import Inbound
from .published_agent import Offered
from .send_message_call import caller_of, session_of, trace_of
from .stateless_server import StatelessServer

_TELL_TIMEOUT: Final = 2.0


class VirtualServer:
    """One MCP server whose tools are agents. ``offered`` returns them and is called for each request.

    If the project has grant rules, a caller does not see the tools of agents that it may not run.
    """

    def __init__(
        self,
        name: str,
        instructions: str,
        *,
        kernel: Kernel,
        inbound: Inbound,
        offered: Callable[[], Sequence[Offered]],
        version: str,
    ) -> None:
        self._kernel = kernel
        self._inbound = inbound
        self._offered = offered
        self._listeners: WeakSet[Any] = WeakSet()
        self._told = self._shown()
        parked = inbound.parked()
        self.app = StatelessServer(
            name,
            instructions=instructions,
            version=version,
            providers=[_Agents(self)],
            dereference_schemas=False,  # ours hold no references
            request_state_security=parked.security if parked is not None else None,
        )
        self.app.add_middleware(
            AgentAccess(lambda: [each.tool for each in self.seen()], authorize=self._authorize, parked=parked)
        )
        self.app.add_middleware(_Listeners(self._listeners))
        self.app.take_schemas_from(lambda tool: CHAT_SCHEMA if self._find(tool) else None)

    def seen(self) -> list[Offered]:
        """Return what the caller of this request may see."""
        principal = caller_of(fastmcp_request_ctx.get())
        return [each for each in self._offered() if self._inbound.grants.may_run(principal, each.agent)]

    def tool(self, name: str) -> Tool | None:
        """Return the tool of that name; the caller's permission was checked before."""
        found = self._find(name)
        return self.tool_of(found) if found is not None else None

    def tool_of(self, offered: Offered) -> Tool:
        """Return the tool itself."""
        return ChatTool(self._kernel, offered.agent, offered.description, offered.tool)

    async def tell(self) -> None:
        """Notify handshake-era sessions if the tools have changed; never raises.

        The newer protocol has no session to notify: its clients list again.
        """
        shown = self._shown()
        if shown == self._told:
            return
        self._told = shown
        if listeners := [_notify(each) for each in list(self._listeners)]:
            await asyncio.gather(*listeners)

    def _shown(self) -> tuple[Offered, ...]:
        return tuple(self._offered())

    def _find(self, tool: str) -> Offered | None:
        return next((each for each in self._offered() if each.tool == tool), None)

    async def _authorize(self, tool: str, principal: Principal) -> None:
        found = self._find(tool)
        if found is not None:  # otherwise it is answered as unknown
            await self._inbound.authorize(found.agent, tool, principal)
            self._inbound.permit(found.agent, principal, trace_of(fastmcp_request_ctx.get()))


async def _notify(connection: Any) -> None:
    """Notify one session, best effort: a client that does not listen gets nothing."""
    with suppress(Exception):
        async with asyncio.timeout(_TELL_TIMEOUT):
            await connection.send_tool_list_changed()


class _Agents(Provider):
    def __init__(self, server: VirtualServer) -> None:
        super().__init__()
        self._server = server

    async def _list_tools(self) -> Sequence[Tool]:
        return [self._server.tool_of(each) for each in self._server.seen()]

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Tool | None:
        return self._server.tool(name)


class _Listeners(Middleware):
    """Remembers the handshake-era connections that listed tools, for as long as they live."""

    def __init__(self, connections: WeakSet[Any]) -> None:
        self._connections = connections

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Remember the connection."""
        request = fastmcp_request_ctx.get()
        connection = getattr(request.session, "_connection", None) if request is not None else None
        if connection is not None and session_of(request) is not None:
            self._connections.add(connection)
        return await call_next(context)
