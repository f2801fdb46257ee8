"""Prevents fast-agent from starting an OAuth flow for a server.

fast-agent answers a 401 of a downstream with an OAuth flow: it fetches the address in the response,
registers a client there, and opens a browser. No person sits at a server process, and the other side
chooses that address. The settings of each server say ``oauth: false`` (``auth_seam``); this covers servers
that are configured in another way.
"""

from collections.abc import Callable
from typing import Any, Final

from fast_agent.mcp import client_gateway, oauth_client

from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook

_PARAMETERS: Final = (
    "server_config",
    "event_handler",
    "emit_console_output",
    "abort_event",
    "allow_paste_fallback",
)


def install() -> None:
    """Install the hooks; further calls do nothing. Raises Fault (CONFIG)."""
    for hook in HOOKS:
        library_hooks.install(hook)


def _never(original: Callable[..., Any]) -> Callable[..., Any]:
    def build_oauth_provider(
        server_config: Any,
        *,
        event_handler: Any = None,
        emit_console_output: bool = True,
        abort_event: Any = None,
        allow_paste_fallback: bool = True,
    ) -> None:
        """Return no provider: requests go without, and a 401 stays a 401."""

    return build_oauth_provider


# Modules that imported the function by name hold it: the gateway does, modules that are imported later
# (remote agents) take it from where it is made.
HOOKS: Final = (
    Hook("oauth.off.gateway", client_gateway, "build_oauth_provider", _PARAMETERS, _never),
    Hook("oauth.off", oauth_client, "build_oauth_provider", _PARAMETERS, _never),
)
