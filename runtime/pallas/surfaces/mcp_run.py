"""A run for an MCP caller: sends progress if the caller asked for it, and is cancelled if the caller
disconnects."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastmcp.server.dependencies import FastMCPRequestContext

from pallas.model import RunRequest, RunResult
from pallas.runs.kernel import Kernel
from pallas.runs.run import Listener

from .caller_disconnect import while_connected
from .progress_notifications import ProgressSender, Report
from .wire_tap import with_tap


async def run_for(kernel: Kernel, request: RunRequest, context: FastMCPRequestContext | None) -> RunResult:
    """Run ``request`` for the caller of this context and cancel it if the caller disconnects. Raises
    Fault."""
    return await run_observed(context, lambda hear: kernel.run(request, hear), with_text=request.stream_text)


async def run_observed[T](
    context: FastMCPRequestContext | None,
    work: Callable[[Listener | None], Awaitable[T]],
    *,
    with_text: bool = False,
) -> T:
    """Return the result of ``work`` for the caller of this context; it is cancelled if the caller
    disconnects.

    ``work`` gets the listener for its run's events: the caller's progress, if the caller asked for it.
    """
    token = (context.meta or {}).get("progressToken") if context is not None else None
    http = context.request if context is not None else None
    if context is None or token is None:
        return await while_connected(context, work(with_tap(http, None)))
    async with ProgressSender(_reporter(context, token), with_text=with_text) as progress:
        return await while_connected(context, work(with_tap(http, progress.hear)))


def _reporter(context: FastMCPRequestContext, token: Any) -> Report:
    session, request_id = context.session, context.request_id

    async def report(progress: float, total: float | None, message: str) -> None:
        await session.send_progress_notification(
            progress_token=token,
            progress=progress,
            total=total,
            message=message,
            related_request_id=request_id,
        )

    return report
