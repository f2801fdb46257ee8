"""Calls of MCP 2026-07-28 whose runs wait for a person: the caller is asked by a result, and comes back.

The result ``input_required`` has the open questions and a ``requestState``, which names the call. The run
goes on without a request. The caller sends the same call again with its answers and that state, to any
process that shares the ledger, and gets the result, or the next questions. From the first question on the
call is a task (``pallas.tasks``), so its result is stored. Closing the connection cancels the run as ever;
between two requests there is none.
"""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from fastmcp.server.dependencies import FastMCPRequestContext, fastmcp_request_ctx, get_context
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp_types import CallToolResult, InputRequiredResult, Result
from pydantic import ValidationError

from pallas.model import Event, Fault, FaultType, Principal, QuestionAsked, RunStarted, TaskRecord
from pallas.model.codec import fault_of
from pallas.model.refusals import OTHERS, REASON
from pallas.runs.run import Listener
from pallas.tasks import TaskOutcome, is_ended

from .client_capabilities import is_modern, takes_forms
from .progress_notifications import Report, reporter
from .send_message_call import TextResult, caller_of
from .send_message_task import as_json

if TYPE_CHECKING:
    from pallas.tasks import Tasks

VALID_S: Final = 7 * 24 * 3600.0
"""Seconds in which a ``requestState`` is accepted; its call may be over long before."""
_TOGETHER_S: Final = 0.05
"""Seconds that a first question waits for others of the same moment, which go with it."""

Made = ToolResult | Result
Make = Callable[[], Awaitable[Any]]


class OpenCall:
    """A call whose client can be asked by its result. Hears the events of its run."""

    def __init__(self, context: FastMCPRequestContext) -> None:
        self.run_id = self.agent = ""
        self.asked = asyncio.Event()
        self._report: Report | None = reporter(context)
        self._listeners: list[Listener] = []
        self._last: QuestionAsked | None = None

    def hear(self, event: Event) -> None:
        """Take one event of the run."""
        if isinstance(event, RunStarted) and not self.run_id:
            self.run_id, self.agent = event.run_id, event.agent
        elif isinstance(event, QuestionAsked):
            self._last = event
            self.asked.set()
        for listener in self._listeners:
            listener(event)

    async def report(self, progress: float, total: float | None, message: str) -> None:
        """Send progress while the request is open."""
        if self._report is not None:
            await self._report(progress, total, message)

    async def outcome(self, work: "asyncio.Task[Any]", hear: Listener) -> TaskOutcome:
        """Return the result of the call as that of a task, which hears its run from now on."""
        self._report = None
        self._listeners.append(hear)
        if self._last is not None:  # others may have come since the task was made
            hear(self._last)
        result = await work
        if isinstance(result, TextResult):
            result = result.for_sdk()
        if not isinstance(result, ToolResult):
            raise Fault(FaultType.INTERNAL, "the call ended without a result of its tool")
        fault = _fault_in(result)
        if fault is not None and fault.data.get(REASON) in OTHERS:
            raise fault
        return TaskOutcome(as_json(result), fault=fault)


current_call: Final[ContextVar[OpenCall | None]] = ContextVar("pallas.open_call", default=None)
"""The call that the code runs for, if its client can be asked by its result."""


class ParkedCalls:
    """The parked calls of a fleet. Belongs to its event loop. Without ``tasks`` no call is parked.

    ``key`` is the secret of all processes that may get a call again.
    """

    def __init__(self, tasks: "Callable[[], Tasks | None]", key: bytes) -> None:
        self._tasks = tasks
        # Whose call it is, its task says.
        self.security = RequestStateSecurity(
            keys=[hmac.digest(key, b"mcp request state", "sha256")], ttl=VALID_S, bind_principal=None
        )

    async def sealed(
        self, server: str, name: str, arguments: Mapping[str, Any], asked: InputRequiredResult
    ) -> InputRequiredResult:
        """Return what the caller of a tool of that server is asked, with its state as the SDK seals it."""
        seal: Any = RequestStateBoundary(self.security, default_audience=server)

        async def made(_: Any) -> InputRequiredResult:
            return asked

        call = SimpleNamespace(method="tools/call", params={"name": name, "arguments": arguments})
        found: InputRequiredResult = await seal(call, made)
        return found

    async def call(self, name: str, arguments: Mapping[str, Any] | None, make: Make) -> Any:
        """Return the result of the current call, which ``make`` makes, or what its caller is asked.

        Raises Fault: not found for a state whose call is unknown, or another caller's.
        """
        context, tasks = fastmcp_request_ctx.get(), self._tasks()
        if context is None or not is_modern(context):
            return await make()
        state, given = _answered()
        if state is not None:
            if tasks is None:
                raise _unknown()
            return await _continued(tasks, state, given, caller_of(context))
        if tasks is None or not takes_forms(context):
            return await make()
        preview = str((arguments or {}).get("message") or (arguments or {}).get("prompt") or "")
        return await _begun(tasks, name, preview, context, make)


async def _begun(tasks: "Tasks", name: str, preview: str, context: FastMCPRequestContext, make: Make) -> Any:
    """Make a call; if its run asks something before there is a result, it becomes a task."""
    call = OpenCall(context)
    token = current_call.set(call)
    try:
        work = asyncio.ensure_future(_as_task(make))
    finally:
        current_call.reset(token)
    asked = asyncio.create_task(call.asked.wait())
    principal = caller_of(context)
    try:
        await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            await asyncio.wait({work}, timeout=_TOGETHER_S)
        if work.done():
            return work.result()
        run = partial(call.outcome, work)
        record = await tasks.begin(
            call.agent, principal, run, kind=name, preview=preview, run_id=call.run_id, answers=True
        )
    except BaseException:
        work.cancel()
        raise
    finally:
        asked.cancel()
    return await _next(tasks, record.id, principal, frozenset())


async def _as_task(make: Make) -> Any:
    return await make()


async def _continued(tasks: "Tasks", state: str, given: Mapping[str, Any], principal: Principal) -> Any:
    """Answer questions of a parked call, and return what comes next. Raises Fault (not found)."""
    try:
        answered = await tasks.answer(state, principal, given)
        return await _next(tasks, state, principal, answered)
    except Fault as fault:
        raise (_unknown() if fault.data.get(REASON) == "not_found" else fault) from None


async def _next(tasks: "Tasks", id: str, principal: Principal, answered: frozenset[str]) -> Any:  # noqa: A002
    """Return the call's result once there is one, or its open questions with the answered ones."""
    try:
        async with aclosing(tasks.follow(id, principal)) as changes:
            async for record in changes:
                if is_ended(record):
                    return _result(record)
                wanted = {key: each for key, each in (record.request or {}).items() if key not in answered}
                if wanted:
                    result = {"inputRequests": wanted, "requestState": id}
                    return InputRequiredToolResult(InputRequiredResult.model_validate(result))
    except asyncio.CancelledError:  # the caller left
        tasks.cancel_soon(id, principal)
        raise
    raise _unknown()


def _fault_in(result: ToolResult) -> Fault | None:
    """Return the Fault that an error result of ours has as JSON; None for any other result."""
    text = getattr(result.content[0], "text", "") if result.is_error and result.content else ""
    try:
        body = json.loads(text) if text else None
    except ValueError:
        return None
    return fault_of(body, "the call failed") if body is not None else None


def _result(record: TaskRecord) -> Result:
    if record.result is not None:
        return CallToolResult.model_validate(record.result)
    fault = record.fault or {}
    raise Fault(FaultType.UPSTREAM, str(fault.get("error") or "the call did not end"))


def _answered() -> tuple[str | None, Mapping[str, Any]]:
    """Return the state of a call that comes again, as it was before it was sealed, and its answers.

    Raises Fault (PROTOCOL) for answers that are none.
    """
    try:
        context = get_context()
    except RuntimeError:  # a direct call, which never comes again
        return None, {}
    try:
        state, given = context.request_state, context.input_responses or {}
    except ValidationError:
        text = (
            "inputResponses has something that is not an answer; send the result of each request "
            "under its key"
        )
        raise Fault(FaultType.PROTOCOL, text) from None
    return state, {key: each.model_dump(mode="json", by_alias=True) for key, each in given.items()}


def _unknown() -> Fault:
    return Fault(
        FaultType.PROTOCOL,
        "the call of this requestState is unknown, over for too long, or another caller's; make the call "
        "again without it",
        data={REASON: "not_found"},
    )
