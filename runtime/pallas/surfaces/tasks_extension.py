"""The MCP extension ``io.modelcontextprotocol/tasks`` (2026-07-28): long work with a handle for its result.

A ``tools/call`` whose request declares the extension is answered with a task; the client polls its state
with ``tasks/get``, answers questions with ``tasks/update`` and ends it with ``tasks/cancel``. Other clients
get the plain answer. A failure of the work is a result with ``isError``, as the tool itself would return
it: a task is ``failed`` on the wire only if the tool never answered.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import time
from typing import TYPE_CHECKING, Any, Final, Literal

from fastmcp.server.context import Context
from fastmcp.server.dependencies import FastMCPRequestContext, fastmcp_request_ctx
from fastmcp.server.extensions import (
    MethodBinding,
    ServerExtension,
    ToolCallContinuation,
    ToolCallOutcome,
)
from fastmcp.utilities.tasks import TASKS_EXTENSION_ID
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    RequestParams,
    Result,
)
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from pallas.model import Fault, Principal, TaskRecord
from pallas.model.refusals import REASON
from pallas.model.time_text import iso
from pallas.safe_text import one_line, sanitize
from pallas.tasks import is_ended

from .agent_access import Authorize, Permit
from .client_capabilities import MODERN, declared, takes_forms
from .send_message_call import caller_of, fault_result, trace_of

if TYPE_CHECKING:
    from pallas.tasks import Tasks

IDENTIFIER: Final = TASKS_EXTENSION_ID
POLL_EARLY: Final = 500
POLL_LATER: Final = 2_000
"""Milliseconds between two polls, as proposed to clients: in the first ten seconds, and after them."""
_EARLY: Final = 10.0
_INTERNAL: Final = -32603

Begin = Callable[["Tasks", Mapping[str, Any], FastMCPRequestContext, bool], Awaitable[TaskRecord]]
"""Begins the task of a call: with its arguments, its context, and whether its caller can be asked. Raises
Fault."""


class _Task(Result):
    """The result of a call that became a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int

    @model_serializer(mode="wrap")
    def _with_null_ttl(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Add the null that means that the task is kept while it runs."""
        return {"ttlMs": None, **handler(self)}


class _TaskParams(RequestParams):
    task_id: str


class _Answers(_TaskParams):
    input_responses: dict[str, Any] = Field(default_factory=dict)


class TasksExtension(ServerExtension):
    """``begins`` maps the tools whose calls become tasks to the functions that begin them.

    With ``agent`` only tasks of that agent are known here. ``authorize`` and ``permit`` are called for each
    request about a task, as before the tool itself.
    """

    identifier = IDENTIFIER

    def __init__(
        self,
        tasks: "Callable[[], Tasks | None]",
        begins: Mapping[str, Begin],
        *,
        agent: str = "",
        authorize: Authorize | None = None,
        permit: Permit | None = None,
    ) -> None:
        self._tasks = tasks
        self._begins = dict(begins)
        self._agent = agent
        self._authorize = authorize
        self._permit = permit

    def methods(self) -> Sequence[MethodBinding]:
        """Return the three methods, which the handshake era does not have."""
        return (
            MethodBinding("tasks/get", _TaskParams, self._get, MODERN),
            MethodBinding("tasks/update", _Answers, self._update, MODERN),
            MethodBinding("tasks/cancel", _TaskParams, self._cancel, MODERN),
        )

    async def intercept_tool_call(
        self, params: CallToolRequestParams, context: Context, call_next: ToolCallContinuation
    ) -> ToolCallOutcome:
        """Return a task to a client that declared the extension on this call, else the tool's result."""
        begin, tasks, call = self._begins.get(params.name), self._tasks(), fastmcp_request_ctx.get()
        if begin is None or tasks is None or call is None or not declares(call):
            return await call_next()
        try:
            return created(await begin(tasks, params.arguments or {}, call, takes_forms(call)))
        except Fault as fault:
            return fault_result(fault)

    async def _get(self, context: ServerRequestContext[Any, Any], params: _TaskParams) -> dict[str, Any]:
        tasks, principal = await self._admit(context, params)
        return {"resultType": "complete", **detailed(await self._found(tasks, params.task_id, principal))}

    async def _update(self, context: ServerRequestContext[Any, Any], params: _Answers) -> dict[str, Any]:
        tasks, principal = await self._admit(context, params)
        await self._found(tasks, params.task_id, principal)
        await _as_error(tasks.answer(params.task_id, principal, params.input_responses))
        return {"resultType": "complete"}

    async def _cancel(self, context: ServerRequestContext[Any, Any], params: _TaskParams) -> dict[str, Any]:
        tasks, principal = await self._admit(context, params)
        await self._found(tasks, params.task_id, principal)
        await _as_error(tasks.cancel(params.task_id, principal))
        return {"resultType": "complete"}

    async def _admit(
        self, context: ServerRequestContext[Any, Any], params: _TaskParams
    ) -> "tuple[Tasks, Principal]":
        call, tasks = fastmcp_request_ctx.get(), self._tasks()
        if not _is_named(call, params.task_id):
            raise MCPError(
                code=HEADER_MISMATCH,
                message=f"{MCP_NAME_HEADER} header does not match the request body's 'taskId' parameter",
            )
        if self.client_settings(context) is None:
            raise undeclared()
        principal = caller_of(call)
        if self._authorize is not None:
            await _as_error(self._authorize(next(iter(self._begins)), principal))
        if self._permit is not None:
            try:
                self._permit(principal, trace_of(call))
            except Fault as fault:
                raise _error(fault) from None
        if tasks is None:
            raise MCPError(code=INVALID_PARAMS, message="this fleet keeps no tasks any more: it is stopping")
        return tasks, principal

    async def _found(self, tasks: "Tasks", task_id: str, principal: Principal) -> TaskRecord:
        found = await _as_error(tasks.find(task_id, principal))
        if self._agent and found.agent != self._agent:
            raise MCPError(
                code=INVALID_PARAMS, message=f"task not found: {self._agent} has no task with that id"
            )
        return found


def declares(context: FastMCPRequestContext | None) -> bool:
    """Return whether the client declared on this request that it supports tasks."""
    return IDENTIFIER in (declared(context).get("extensions") or {})


def undeclared() -> MCPError:
    """Return the error for a client without that declaration, if only a task could answer it."""
    needed: dict[str, Any] = {"extensions": {IDENTIFIER: {}}}
    return MCPError(
        code=MISSING_REQUIRED_CLIENT_CAPABILITY,
        message=f"Missing required client capability: declare the extension {IDENTIFIER}",
        data={"requiredCapabilities": needed},
    )


def created(task: TaskRecord) -> Result:
    """Return the result of a call that became a task."""
    return _Task.model_validate(_seed(task))


def detailed(task: TaskRecord) -> dict[str, Any]:
    """Return a task as ``tasks/get`` sends it."""
    task_body = _seed(task)
    if task.status == "input_required":
        return {**task_body, "inputRequests": dict(task.request or {})}
    if task.result is not None and task.status != "cancelled":
        return {**task_body, "status": "completed", "result": {"resultType": "complete", **task.result}}
    if task.status == "failed":
        fault = task.fault or {}
        message = sanitize(str(fault.get("error") or "the task failed"), 1_000)
        return {**task_body, "error": {"code": _INTERNAL, "message": message, "data": dict(fault)}}
    return task_body


def _seed(task: TaskRecord) -> dict[str, Any]:
    task_body: dict[str, Any] = {
        "taskId": task.id,
        "status": task.status,
        "createdAt": iso(task.created_at),
        "lastUpdatedAt": iso(task.updated_at),
        # The time to live starts with its end: until then the task is kept.
        "ttlMs": round((task.updated_at - task.created_at + task.ttl) * 1000)
        if is_ended(task) and task.ttl is not None
        else None,
        "pollIntervalMs": POLL_EARLY if time() - task.created_at < _EARLY else POLL_LATER,
    }
    message = one_line(str((task.fault or {}).get("error") or ""), 300) or task.progress
    return {**task_body, "statusMessage": message} if message else task_body


def _is_named(context: FastMCPRequestContext | None, task_id: str) -> bool:
    """Return whether the header that names the task for proxies matches the body.

    The SDK compares it in the same way for the methods of the protocol itself.
    """
    if context is None or context.request is None:  # stdio has no headers
        return True
    return decode_header_value(context.request.headers.get(MCP_NAME_HEADER)) == task_id


async def _as_error[T](work: Awaitable[T]) -> T:
    try:
        return await work
    except Fault as fault:
        raise _error(fault) from None


def _error(fault: Fault) -> MCPError:
    """Return a Fault as an error of the protocol: an unknown task is an invalid parameter."""
    missing = fault.data.get(REASON) == "not_found"
    body = fault.to_body()
    return MCPError(code=INVALID_PARAMS if missing else fault.code, message=fault.message, data=body["data"])
