"""Requests of a run to the servers of an agent: traced, logged, with the faults of a test."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from mcp import Client
from mcp_types import CallToolResult

from pallas.downstreams.connection import Connection
from pallas.downstreams.raw_streams import before_call
from pallas.executors.faults.fault_injection import current_injection

from . import send_gate
from .call_meta import traced
from .forward_trace import dispatched


async def send[T](
    agent: str,
    connection: Connection,
    operation: str,
    work: Callable[[Client, Any], Awaitable[T]],
    *,
    can_repeat: bool = False,
) -> T:
    """Make a request for the run of this context; ``work`` gets the live client and the request's ``_meta``.

    ``operation`` is the tool, or another name for the log. Raises what ``dispatched`` raises.
    """
    token = before_call.set(send_gate.check if send_gate.is_due() else None)

    async def made(client: Client) -> T:
        return await traced(connection, lambda meta: work(client, meta))

    async def call() -> T:
        return await connection.call(made, can_repeat=can_repeat)

    try:
        return await dispatched(agent, connection.name, operation, connection.link.stderr, call)
    finally:
        before_call.reset(token)


async def call_tool(
    agent: str,
    connection: Connection,
    tool: str,
    arguments: dict[str, Any] | None,
    progress: Any,
    *,
    timeout: float | None,
) -> CallToolResult:
    """Call a tool for the run of this context. ``timeout`` is what a test's fault waits for at most.

    Raises what ``send`` raises, and RuntimeError for a result that its schema does not allow.
    """

    async def work(client: Client, meta: Any) -> CallToolResult:
        injection = current_injection()
        call = partial(client.call_tool, tool, arguments, progress_callback=progress, meta=meta)
        if injection is None or connection.is_over_http:  # there the client that sends requests has the fault
            result = await call()
        else:
            result = await injection.call_tool(connection.name, tool, call, timeout)
        await _check(connection, tool, result)
        return result

    return await send(agent, connection, tool, work)


async def _check(connection: Connection, tool: str, result: CallToolResult) -> None:
    schema = connection.schema_of(tool)
    if result.is_error or schema is None:
        return
    if result.structured_content is None and "structured_content" not in result.model_fields_set:
        raise RuntimeError(f"tool {tool} has an output schema but gave no structured content")
    await schema.check(result.structured_content)
