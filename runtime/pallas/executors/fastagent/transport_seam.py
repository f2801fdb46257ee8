"""Limits on data from downstreams: larger events than the SDK's 1 MiB, and guarded lines on stdio."""

from collections.abc import Callable
from typing import Any, Final

from fast_agent.mcp import client_gateway

from pallas.bounds import MAX_MESSAGE
from pallas.mcp_client import stdio_seam
from pallas.mcp_client.library_hooks import Hook
from pallas.safe_text import one_line

# The limit in bytes of one server-sent event, and so of one tool result.
MAX_EVENT: Final = MAX_MESSAGE


def _wrap(connect: Any) -> Any:
    def larger(
        url: str,
        *,
        http_client: Any = None,
        terminate_on_close: bool = True,
        max_sse_event_size: int | None = MAX_EVENT,
    ) -> Any:
        return connect(
            url,
            http_client=http_client,
            terminate_on_close=terminate_on_close,
            max_sse_event_size=max_sse_event_size,
        )

    return larger


LARGER_EVENTS: Final = Hook(
    name="max-sse-event",
    owner=client_gateway,
    attribute="streamable_http_client",
    parameters=("url", "http_client", "terminate_on_close", "max_sse_event_size"),
    wrap=_wrap,
)


def stdio_hook(name: str, around: Callable[[str, Any], Any]) -> Hook:
    """Return a hook that wraps a stdio server's transport in ``around(server, transport)``."""

    def wrap(original: Any) -> Any:
        def create_transport(
            *, server_name: str, config: Any, oauth_mode: Any, oauth_active: bool, hooks: Any
        ) -> Any:
            transport = original(
                server_name=server_name,
                config=config,
                oauth_mode=oauth_mode,
                oauth_active=oauth_active,
                hooks=hooks,
            )
            return around(server_name, transport) if config.transport == "stdio" else transport

        return create_transport

    parameters = ("server_name", "config", "oauth_mode", "oauth_active", "hooks")
    return Hook(name, client_gateway, "_create_transport", parameters, wrap)


def _guarded(server: str, transport: Any) -> Any:
    return stdio_seam.guarded(one_line(server, 80), transport)


GUARD: Final = stdio_hook("stdio.guard", _guarded)
HOOKS: Final = (LARGER_EVENTS, *stdio_seam.HOOKS, GUARD)
"""HTTP downstreams may send events up to ``MAX_EVENT`` bytes; those on stdio are guarded."""
