"""FastMCP without its per-session store."""

from collections.abc import Callable
from typing import Any, Final

from fastmcp import FastMCP


class StatelessServer(FastMCP):
    """A server whose tools and prompts are the same for every session.

    FastMCP looks up the hidden components of a session in its store at each list and each call. Ours hide
    none, and making that store imports four hundred modules, which would delay the first request.
    """

    @property
    def _state_store(self) -> Any:
        return _NOTHING

    def release(self, version: str) -> None:
        """Serve as that version from the next request on, as the registry reports after a reload."""
        server: Any = self._mcp_server
        if server.version != version:
            server.version = version
            vars(server).pop("_server_info_stamp_source", None)  # results take the version from there

    def take_schemas_from(self, lookup: Callable[[str], dict[str, Any] | None]) -> None:
        """Look up the schema of a tool there: otherwise the SDK lists all tools before every modern call."""
        self._mcp_server.get_tool_input_schema = lookup


class _Nothing:
    """A store that is always empty. Writing to it raises an error."""

    async def get(self, key: str) -> None: ...


_NOTHING: Final = _Nothing()
