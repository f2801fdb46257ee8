"""Where faults are injected into calls of downstreams: below the record of requests, as real ones come.

For servers over HTTP that is the client that sends the request, for others the session.
"""

import functools
from collections.abc import Callable
from typing import Any, Final

import httpx2
from fast_agent.mcp import client_gateway
from fast_agent.mcp.mcp_aggregator import MCPAggregator

from pallas.executors.faults.fault_injection import FaultInjection, Send, current_injection
from pallas.executors.faults.faulty_transport import make_faulty
from pallas.executors.replay.replay import current_replay
from pallas.mcp_client.library_hooks import Hook

from .forward_trace import current_hop

_HTTP: Final = "http"


def _with_faults(original: Callable[..., Any]) -> Callable[..., Any]:
    async def execute_session_method(
        self: Any, client: Any, *, method_name: str, method_args: Any, progress_callback: Any
    ) -> Any:
        call = functools.partial(
            original,
            self,
            client,
            method_name=method_name,
            method_args=method_args,
            progress_callback=progress_callback,
        )
        injection = current_injection()
        if injection is None or method_name != "call_tool":
            return await call()
        server, tool = current_hop()
        config = self.context.server_registry.get_server_config(server)
        if _is_over_http(config, server):
            return await call()
        return await injection.call_tool(server, tool, call, getattr(config, "read_timeout_seconds", None))

    return execute_session_method


def _is_over_http(config: Any, server: str) -> bool:
    """Whether the client of this server is one of ``make_faulty``."""
    if (replay := current_replay()) is not None and not replay.plan.is_live(server):
        return False
    return getattr(config, "transport", "") == _HTTP


def _faulty(original: Callable[..., Any]) -> Callable[..., Any]:
    def managed(http_client: Any, transport_context: Any) -> Any:
        make_faulty(http_client, _inject)
        return original(http_client, transport_context)

    return managed


async def _inject(
    injection: FaultInjection, tool: str, request: httpx2.Request, send: Send
) -> httpx2.Response:
    return await injection.send_call(current_hop()[0], tool, request, send)


HOOKS: Final = (
    Hook(
        "faults.session",
        MCPAggregator,
        "_execute_session_method",
        ("self", "client", "method_name", "method_args", "progress_callback"),
        _with_faults,
    ),
    Hook(
        "faults.http",
        client_gateway,
        "_managed_http_transport_context",
        ("http_client", "transport_context"),
        _faulty,
    ),
)
