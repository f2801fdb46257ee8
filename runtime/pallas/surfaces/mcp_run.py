"""A run for an MCP caller: sends progress if the caller asked for it, asks it the run's questions, and is
cancelled if the caller disconnects."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from fastmcp.server.dependencies import FastMCPRequestContext

from pallas.model import Event, Fault, FaultType, RunRequest, RunResult
from pallas.runs.kernel import Kernel
from pallas.runs.run import Listener

from .caller_disconnect import while_connected
from .client_capabilities import is_modern, takes_forms
from .elicited_questions import ElicitedQuestions
from .parked_calls import current_call
from .progress_notifications import ProgressSender, reporter
from .wire_tap import with_tap

if TYPE_CHECKING:
    from pallas.questions.questions import Questions


async def run_for(
    kernel: Kernel,
    request: RunRequest,
    context: FastMCPRequestContext | None,
    key: str = "",
    *,
    joins: bool = False,
) -> RunResult:
    """Run ``request`` for the caller of this context and cancel it if the caller disconnects.

    With a ``key`` it goes on to its end, and the same request with that key joins it; with ``joins`` as in
    ``KeyedRuns.run``. Raises Fault.
    """
    run: Callable[[Listener | None], Awaitable[RunResult]] = partial(kernel.run, request)
    if key:
        if kernel.keyed is None:
            raise Fault(FaultType.CONFIG, "an idempotency key needs a database; leave it out, or set one up")
        run = partial(kernel.keyed.run, request, key, joins=joins)
    return await run_observed(context, run, kernel.questions, with_text=request.stream_text)


async def cancel_for(kernel: Kernel, owner: str, key: str) -> str:
    """Cancel the run that this caller began with that key; returns what was done. Raises Fault."""
    if kernel.keyed is None or not key:
        raise Fault(
            FaultType.PROTOCOL, "only a run with an idempotency key is cancelled by a call; send its key"
        )
    run_id = await kernel.keyed.cancel(owner, key)
    return f"run {run_id} is cancelled" if run_id else "there is no run of that key, and none begins any more"


async def run_observed[T](
    context: FastMCPRequestContext | None,
    work: Callable[[Listener | None], Awaitable[T]],
    questions: "Questions | None" = None,
    *,
    with_text: bool = False,
) -> T:
    """Return the result of ``work`` for the caller of this context; it is cancelled if the caller
    disconnects.

    ``work`` gets the listener for its run's events: the caller's progress, if the caller asked for it, and
    its ``questions``, if it can be asked.
    """
    http = context.request if context is not None else None
    async with AsyncExitStack() as stack:
        hear = await _listener(stack, context, questions, with_text=with_text)
        return await while_connected(context, work(with_tap(http, hear)))


async def _listener(
    stack: AsyncExitStack,
    context: FastMCPRequestContext | None,
    questions: "Questions | None",
    *,
    with_text: bool,
) -> Listener | None:
    """Return what takes the events of a run for its caller; None if the caller gets nothing of them."""
    if context is None:
        return None
    listeners: list[Listener] = []
    call = current_call.get()
    is_asked = questions is not None and call is None and takes_forms(context) and not is_modern(context)
    progress = None
    if (context.meta or {}).get("progressToken") is not None:
        report = call.report if call is not None else reporter(context)
        sender = ProgressSender(report, with_text=with_text, with_questions=call is None and not is_asked)
        progress = await stack.enter_async_context(sender)
        listeners.append(progress.hear)
    if call is not None:
        listeners.append(call.hear)
    if is_asked:
        assert questions is not None
        unable = progress.tell_question if progress is not None else lambda event: None
        asking = await stack.enter_async_context(ElicitedQuestions(questions, context, unable))
        listeners.append(asking.hear)
    return _all_of(listeners)


def _all_of(listeners: list[Listener]) -> Listener | None:
    if len(listeners) < 2:
        return listeners[0] if listeners else None

    def hear(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return hear
