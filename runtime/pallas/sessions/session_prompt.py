"""Runs one prompt of a session: waits for its turn, runs it, and decides whether an error fails the
session.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from pallas.model import (
    NO_PARAMS,
    Fault,
    FaultType,
    Params,
    Principal,
    RunRequest,
    RunResult,
    TraceContext,
    refusals,
)
from pallas.model.ids import mint
from pallas.model.redaction import redact_text
from pallas.model.refusals import OF_REQUEST, REASON
from pallas.runs.kernel import Kernel
from pallas.runs.run import Listener
from pallas.safe_text import one_line

from . import session_hooks
from .lease import SessionLease, SessionPrompt
from .session_faults import SHUTDOWN, VALID, has_failed, is_replaced, no_session
from .stored_sessions import StoredSessions

SURFACE: Final = "bridge"
_FAILING: Final = frozenset({FaultType.UPSTREAM, FaultType.PROTOCOL})


@dataclass(frozen=True, slots=True)
class PromptRequestFacts:
    """The arguments of a prompt."""

    text: str
    principal: Principal
    timeout: float | None = None  # seconds from now on
    params: Params = NO_PARAMS
    listener: Listener | None = None
    bearer: str | None = field(default=None, repr=False)
    trace: TraceContext | None = None
    caller: str = ""
    queue: bool = False  # wait for the prompt of another fleet


async def answer(
    kernel: Kernel,
    lease: SessionLease,
    prompt: SessionPrompt,
    question: PromptRequestFacts,
    gone: Callable[[SessionLease], bool],
    clock: Callable[[], float],
    stored: StoredSessions | None,
) -> RunResult:
    """Run a prompt after those before it. Raises Fault; the session may have failed.

    ``gone`` says whether the session's agent has left the fleet: no other agent answers in its place (DR-17).
    """
    began = monotonic()
    async with lease.turn.turn(question.timeout), AsyncExitStack() as stack:
        _check(lease, gone)
        stored = stored if lease.is_stored else None
        if stored is not None:
            left = _left(question, began)
            await stack.enter_async_context(stored.prompt(lease, prompt, left, queue=question.queue))
            _check(lease, gone)
        stack.callback(lambda: lease.use(clock()))  # before it is stored
        if not prompt.stopped:
            await session_hooks.begin(lease)
        if prompt.stopped:
            return _cancelled(lease, prompt, "", monotonic() - began)
        _check(lease, gone)
        lease.had_prompt, lease.last = True, lease.answering.executor
        request = _request(lease, prompt, question, _left(question, began))
        return await _answered(kernel, lease, prompt, request, question.listener, stored)


def _check(lease: SessionLease, gone: Callable[[SessionLease], bool]) -> None:
    """Raise Fault if the session takes no prompt now."""
    if lease.is_stored and lease.end_reason == SHUTDOWN:
        raise refusals.stopping()
    if lease.end_reason:
        raise no_session(lease.id, lease.end_reason)
    if lease.failed:
        raise has_failed(lease.id, lease.failed)
    if gone(lease):
        raise is_replaced(lease.id, lease.agent)


def _left(question: PromptRequestFacts, began: float) -> float | None:
    """The seconds that are left of those that the caller gave it."""
    return None if question.timeout is None else max(0.0, question.timeout - (monotonic() - began))


def stop(kernel: Kernel, prompt: SessionPrompt) -> None:
    """Cancel a prompt: its run if it has begun, else its wait."""
    prompt.stopped = True
    if not kernel.cancel(prompt.run_id) and prompt.work is not None:
        prompt.work.cancel()


def fails(fault: Fault) -> bool:
    """Whether a session cannot be used after this Fault: the agent broke on it, and would break again.

    The session stays usable after a refusal of this prompt, an error that may pass, a deadline and a
    cancellation, and also after a message that does not fit a typed handler's schema, since the handler never
    saw it.
    """
    if fault.retryable or not OF_REQUEST.isdisjoint(fault.data) or fault.data.get("system") == "validation":
        return False
    return fault.type is FaultType.INTERNAL or (fault.of_agent and fault.type in _FAILING)


def about(fault: Fault, *, valid: bool) -> Fault:
    """The same Fault with ``sessionValid`` in its data: whether the session can still be used."""
    if VALID in fault.data:
        return fault
    data = {**fault.data, VALID: valid}
    marked = Fault(fault.type, fault.message, retryable=fault.retryable, code=fault.code, data=data)
    marked.of_agent = fault.of_agent
    return marked


def _told(fault: Fault, bearer: str | None) -> str:
    """The reason why a session failed, in one line that others may read. The bearer of the run is masked."""
    text = fault.message.replace(bearer, "[redacted]") if bearer else fault.message
    return one_line(redact_text(text), 300)


def _request(
    lease: SessionLease, prompt: SessionPrompt, question: PromptRequestFacts, left: float | None
) -> RunRequest:
    return RunRequest(
        agent=lease.agent,
        text=question.text,
        conversation=lease.handle,
        principal=question.principal,
        stream_text=question.listener is not None,
        new_conversation=not lease.begun,
        caller=question.caller,
        trace=question.trace,
        params=question.params,
        surface=SURFACE,
        run_id=prompt.run_id,
        defaults=lease.params,
        provider=lease.provider,
        timeout=left,
        leased=lease.id,
        bearer=question.bearer,
    )


async def _answered(
    kernel: Kernel,
    lease: SessionLease,
    prompt: SessionPrompt,
    request: RunRequest,
    listener: Listener | None,
    stored: StoredSessions | None,
) -> RunResult:
    began = monotonic()
    try:
        result = await _run(kernel, prompt, request, listener)
    except Fault as fault:
        _found(kernel, lease, fault)
        if fault.data.get("cancelled") and stored is not None and not prompt.stopped:
            prompt.stopped = await stored.is_cancelled(lease, prompt)
        if prompt.stopped and fault.data.get("cancelled"):
            return _cancelled(lease, prompt, str(fault.data.get("partial", "")), monotonic() - began)
        if fails(fault):
            lease.failed = _told(fault, request.bearer)
        raise
    _found(kernel, lease, None)
    lease.thread = result.thread or lease.thread
    lease.turns += 1
    return result


async def _run(
    kernel: Kernel, prompt: SessionPrompt, request: RunRequest, listener: Listener | None
) -> RunResult:
    work = prompt.work = asyncio.create_task(kernel.run(request, listener), name=f"prompt {prompt.run_id}")
    try:
        await asyncio.wait({work})
    except asyncio.CancelledError:
        work.cancel()
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise
    if work.cancelled():  # before it began
        raise Fault(FaultType.UPSTREAM, "the run was cancelled", data={"cancelled": True})
    return work.result()


def _found(kernel: Kernel, lease: SessionLease, fault: Fault | None) -> None:
    """Update the lease with the current state of its thread."""
    known = kernel.conversation(lease.agent, lease.handle)
    if fault is not None and lease.begun and fault.data.get(REASON) == "not_found":
        # Its owner deleted the thread: the next prompt begins another.
        lease.handle, lease.begun, lease.thread = mint(), False, ""
    elif known is not None:
        lease.begun, lease.thread = True, known.thread


def _cancelled(lease: SessionLease, prompt: SessionPrompt, partial: str, seconds: float) -> RunResult:
    """The result of a prompt that was cancelled: no error, and the text it had written (DR-16)."""
    return RunResult(
        run_id=prompt.run_id,
        texts=(partial,) if partial else (),
        conversation=lease.handle,
        seconds=seconds,
        stop_reason="cancelled",
        thread=lease.thread,
    )
