"""Removes duplicates of the log filters that each connection manager adds to the same loggers, for ever.

Otherwise every instance, and so every version of an agent, leaves some behind, and each record of those
loggers goes through all of them.
"""

from typing import Any, Final

from fast_agent.mcp.mcp_connection_manager import MCPConnectionManager

from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook


def install() -> None:
    """Install the hooks; further calls do nothing. Raises Fault (CONFIG)."""
    for hook in HOOKS:
        library_hooks.install(hook)


def _once(add: Any) -> Any:
    added: list[bool] = []

    def suppress(self: Any) -> None:
        if not added:
            added.append(True)
            add(self)

    return suppress


HOOKS: Final = tuple(
    Hook(f"one-filter{name.replace('_', '-')}", MCPConnectionManager, name, ("self",), _once)
    for name in (
        "_suppress_mcp_sse_errors",
        "_suppress_mcp_streamable_http_errors",
        "_suppress_mcp_oauth_cancel_errors",
    )
)
