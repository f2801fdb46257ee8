"""The library's MCP server, without the store in which it could keep something for each session."""

from typing import Any, Final

from fastmcp import FastMCP


class StatelessServer(FastMCP):
    """A server whose tools and prompts are the same for every session.

    The library asks its store at each list and each call what a session wants hidden. Ours hide nothing so,
    and making that store imports four hundred modules, which the first one who asks waits for.
    """

    @property
    def _state_store(self) -> Any:
        return _NOTHING

    def release(self, version: str) -> None:
        """Be of that version from the next request on, as the registry says after a reload."""
        server: Any = self._mcp_server
        if server.version != version:
            server.version = version
            vars(server).pop("_server_info_stamp_source", None)  # what results say of it is kept there


class _Nothing:
    """A store in which nothing is found. Nothing can be put there either: whoever tries hears an error."""

    async def get(self, key: str) -> None: ...


_NOTHING: Final = _Nothing()
