"""Pass requests of HTTP callers on to one MCP server."""

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp import Client, MCPError
from mcp.server import Server, ServerRequestContext
from mcp.shared.dispatcher import ProgressFnT

from pallas.safe_text import one_line
from pallas.telemetry.trace_context import BAGGAGE, TRACEPARENT, TRACESTATE

Context = ServerRequestContext[Any, Any]


def proxy_of(client: Client) -> Server[Any]:
    """Return a server with everything that ``client``'s server has: tools, resources, prompts, completions.

    Progress goes back to the caller that asked for it, and cancelling a call cancels it there. Requests of
    that server to its client (sampling, elicitation, roots) are not passed on: it has many clients.
    """
    session, has = client.session, client.server_capabilities
    info = client.server_info
    handlers: dict[str, Callable[..., Awaitable[Any]]] = {}

    if has.tools is not None:

        async def list_tools(_: Context, params: types.PaginatedRequestParams | None) -> Any:
            return await session.list_tools(params=params)

        async def call_tool(context: Context, params: types.CallToolRequestParams) -> Any:
            return await session.call_tool(
                params.name,
                params.arguments,
                progress_callback=_progress(context),
                meta=_trace(context),
                allow_input_required=True,
            )

        handlers |= {"on_list_tools": list_tools, "on_call_tool": call_tool}

    if has.resources is not None:

        async def list_resources(_: Context, params: types.PaginatedRequestParams | None) -> Any:
            return await session.list_resources(params=params)

        async def list_templates(_: Context, params: types.PaginatedRequestParams | None) -> Any:
            return await session.list_resource_templates(params=params)

        async def read_resource(_: Context, params: types.ReadResourceRequestParams) -> Any:
            return await session.read_resource(params.uri)

        handlers |= {
            "on_list_resources": list_resources,
            "on_list_resource_templates": list_templates,
            "on_read_resource": read_resource,
        }

    if has.prompts is not None:

        async def list_prompts(_: Context, params: types.PaginatedRequestParams | None) -> Any:
            return await session.list_prompts(params=params)

        async def get_prompt(_: Context, params: types.GetPromptRequestParams) -> Any:
            return await session.get_prompt(params.name, params.arguments)

        handlers |= {"on_list_prompts": list_prompts, "on_get_prompt": get_prompt}

    if has.completions is not None:

        async def complete(_: Context, params: types.CompleteRequestParams) -> Any:
            context = params.context.arguments if params.context is not None else None
            argument = {"name": params.argument.name, "value": params.argument.value}
            return await session.complete(params.ref, argument, context_arguments=context)

        handlers["on_completion"] = complete

    server_class: Any = Server
    server: Server[Any] = server_class(
        one_line(info.name, 100) if info is not None else "server",
        version=one_line(info.version, 100) if info is not None else "",
        instructions=client.instructions,
        **{name: _told(handler) for name, handler in handlers.items()},
    )
    return server


def _told(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Wrap a handler so that protocol errors reach the caller unchanged."""

    async def handle(context: Context, params: Any) -> Any:
        try:
            return await handler(context, params)
        except MCPError:
            raise
        except Exception as error:
            kind = type(error).__name__
            raise MCPError(types.INTERNAL_ERROR, f"the stdio server did not answer ({kind})") from error

    return handle


def _progress(context: Context) -> ProgressFnT | None:
    """Return a function that passes progress on to the caller; None when it asked for none."""
    wanted = (context.meta or {}).get("progress_token") is not None
    return context.session.report_progress if wanted else None


def _trace(context: Context) -> Any:
    """Return the trace keys of the call's metadata, which are passed on; nothing else of it."""
    meta: Any = context.meta or {}
    return {key: meta[key] for key in (TRACEPARENT, TRACESTATE, BAGGAGE) if key in meta} or None
