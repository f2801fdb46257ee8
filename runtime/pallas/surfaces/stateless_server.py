"""FastMCP without its per-session store."""

from collections.abc import Callable
from typing import Any, Final

from fastmcp import FastMCP
from fastmcp.tools.base import InputRequiredToolResult
from mcp.server.context import ServerRequestContext
from mcp_types import CallToolRequestParams, CallToolResult, TextContent

from .direct_calls import DirectTools
from .send_message_call import TextResult

_INFO: Final = "_server_info_stamp_source"


class StatelessServer(FastMCP):
    """A server whose tools and prompts are the same for every session.

    FastMCP looks up the hidden components of a session in its store at each list and each call. Ours hide
    none, and making that store imports four hundred modules, which would delay the first request.
    """

    direct: DirectTools | None = None
    """The tools whose plain calls need nothing of FastMCP."""

    def call_directly(self, tools: DirectTools) -> None:
        """Answer plain calls of these tools without FastMCP's own layers, in sessions too."""
        self.direct = tools
        self._mcp_server.add_request_handler("tools/call", CallToolRequestParams, self._call)

    async def _call(self, context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> Any:
        if self.direct is None or not self.direct.takes(params, context.params):
            return await self._on_call_tool(context, params)
        result = await self.direct.call(params.name, params.arguments or {})
        if not isinstance(result, TextResult):
            return result.input_required if isinstance(result, InputRequiredToolResult) else result
        content: list[Any] = [TextContent(type="text", text=result.text)]
        return CallToolResult(content=content, is_error=result.is_error, _meta=result.meta)

    @property
    def _state_store(self) -> Any:
        return _NOTHING

    def release(self, version: str) -> None:
        """Serve as that version from the next request on, as the registry reports after a reload."""
        server: Any = self._mcp_server
        if server.version != version:
            server.version = version
            vars(server).pop(_INFO, None)  # results take the version from there

    def server_info(self) -> dict[str, Any]:
        """Return its name and version as results have them; not to be changed."""
        server: Any = self._mcp_server
        found: dict[str, Any] = getattr(server, _INFO)  # the public property copies it each time
        return found

    def take_schemas_from(self, lookup: Callable[[str], dict[str, Any] | None]) -> None:
        """Look up the schema of a tool there: otherwise the SDK lists all tools before every modern call."""
        self._mcp_server.get_tool_input_schema = lookup


class _Nothing:
    """A store that is always empty. Writing to it raises an error."""

    async def get(self, key: str) -> None: ...


_NOTHING: Final = _Nothing()
