"""The servers that fast-agent has connected for an agent, and their tools."""

from typing import Any, Final

EXECUTE: Final = "_execute_on_server"
"""The method of fast-agent's aggregator that sends every request to a server."""
EXECUTE_PARAMETERS: Final = (
    "self",
    "server_name",
    "operation_type",
    "operation_name",
    "method_name",
    "method_args",
    "error_factory",
    "progress_callback",
)


def attached(aggregator: Any) -> list[str]:
    """Return the servers whose tools are listed: fast-agent's own list."""
    names: list[str] = aggregator._attached_server_names
    return names


def connection_of(aggregator: Any, name: str) -> Any:
    """Return the connection to a server; None if there is none."""
    manager = aggregator._persistent_connection_manager
    return manager.running_servers.get(name) if manager is not None else None


def tools_of(aggregator: Any) -> dict[str, Any]:
    """Return the tools that can be called, by their names with their server: fast-agent's own mapping."""
    found: dict[str, Any] = aggregator._namespaced_tool_map
    return found
