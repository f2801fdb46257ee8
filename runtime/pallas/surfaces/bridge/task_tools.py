"""Delegations as tasks: by the Tasks extension, and by handles for clients that do not support it.

The handles are three additions, if the project has ``tasks: {tools: true}``: ``wait: false`` of
``tasks_delegate``, and the tools ``tasks_status`` and ``tasks_result``. Otherwise there are exactly eight
tools.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from fastmcp.server.dependencies import FastMCPRequestContext
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from mcp_types import CallToolResult

from pallas.model import Fault, FaultType, TaskRecord, refusals
from pallas.runs.run import Listener
from pallas.safe_text import one_line
from pallas.surfaces.send_message_call import caller_of
from pallas.surfaces.send_message_task import as_json
from pallas.tasks import TaskOutcome, is_ended

from ..tasks_extension import Begin
from .bridge_tools import BridgeTool, BridgeWork, delegated
from .tool_arguments import Arguments
from .tool_documents import document, millis
from .tool_schemas import DELEGATE as DELEGATE
from .tool_schemas import ToolListing

if TYPE_CHECKING:
    from pallas.sessions import DelegationOutcome
    from pallas.tasks import Tasks

RESULT_WAIT: Final = 50.0
"""Seconds that ``tasks_result`` waits at most: many clients give a tool a minute."""
_TASK: Final = {"type": "string", "description": "The task, as tasks_delegate named it."}


def _takes(**properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": ["taskId"],
        "additionalProperties": False,
    }


DELEGATE_HANDLE: Final = DELEGATE._replace(
    description=DELEGATE.description
    + " With wait: false it returns a taskId at once; ask tasks_status and tasks_result for it then.",
    schema={
        **DELEGATE.schema,
        "properties": {
            **DELEGATE.schema["properties"],
            "wait": {
                "type": "boolean",
                "default": True,
                "description": "false: do not wait for the answer; the work continues without you.",
            },
        },
    },
)
TASK_STATUS: Final = ToolListing(
    "tasks_status",
    "State of a task",
    "How far a task is that was delegated with wait: false.",
    _takes(taskId=_TASK),
    reads=True,
    again=True,
)
TASK_RESULT: Final = ToolListing(
    "tasks_result",
    "Result of a task",
    "The outcome of a task that was delegated with wait: false, as tasks_delegate answers it.",
    _takes(
        taskId=_TASK,
        timeout={
            "type": "integer",
            "exclusiveMinimum": 0,
            "description": f"Milliseconds to wait for its end, {RESULT_WAIT:g} s at most; without it none.",
        },
    ),
    reads=True,
    again=True,
)


def begins(work: BridgeWork, *, handles: Callable[[], bool]) -> Begin:
    """Return how a ``tasks_delegate`` becomes a task; with ``handles`` it accepts ``wait``, without
    effect."""

    async def begin(
        tasks: "Tasks", arguments: Mapping[str, Any], context: FastMCPRequestContext, answers: bool
    ) -> TaskRecord:
        about = DELEGATE_HANDLE if handles() else DELEGATE
        return await _begun(work, tasks, Arguments(about, arguments), context, answers=answers)

    return begin


def bridge_tools(tasks: "Callable[[], Tasks | None]") -> Sequence[Tool]:
    """Return the two tools that look up a task by its handle."""

    def there() -> "Tasks":
        if (found := tasks()) is None:
            raise refusals.stopping()
        return found

    async def status(given: Arguments, context: FastMCPRequestContext | None) -> ToolResult:
        return document(_about(await there().find(given.text("taskId"), caller_of(context))))

    async def result(given: Arguments, context: FastMCPRequestContext | None) -> ToolResult:
        wait = min(given.seconds("timeout") or 0.0, RESULT_WAIT)
        found = await there().wait(given.text("taskId"), caller_of(context), wait)
        if not is_ended(found):
            text = "the task is not over; ask tasks_status how far it is, or try again later"
            raise Fault(FaultType.TIMEOUT, text, data={"taskId": found.id, "status": found.status})
        if found.result is None:
            body = found.fault or {}
            return _failure({"success": False, "taskId": found.id, **body})
        return ToolResult.from_mcp_result(CallToolResult.model_validate(found.result))

    return [BridgeTool(TASK_STATUS, status), BridgeTool(TASK_RESULT, result)]


def with_handles(tools: Sequence[Tool], work: BridgeWork, tasks: "Callable[[], Tasks | None]") -> list[Tool]:
    """Return the bridge's tools with ``wait`` added to ``tasks_delegate``, and the two tools for tasks."""

    async def delegate(given: Arguments, context: FastMCPRequestContext | None) -> ToolResult:
        found = tasks()
        if given.flag("wait", True) or found is None or context is None:
            return await work.delegate(given, context)
        return document({"success": True, **_about(await _begun(work, found, given, context))})

    own = BridgeTool(DELEGATE_HANDLE, delegate)
    return [*(own if tool.name == own.name else tool for tool in tools), *bridge_tools(tasks)]


async def _begun(
    work: BridgeWork,
    tasks: "Tasks",
    given: Arguments,
    context: FastMCPRequestContext,
    *,
    answers: bool = False,
) -> TaskRecord:
    does = work.delegation(given, context)

    async def run(hear: Listener) -> TaskOutcome:
        return outcome_of(await does(hear))

    return await tasks.begin(
        work.meant(given, context),
        caller_of(context),
        run,
        kind="tasks_delegate",
        preview=given.text("prompt"),
        answers=answers,
    )


def outcome_of(done: "DelegationOutcome") -> TaskOutcome:
    """Return a piece of work as the result of its task."""
    answer = done.result.text if done.result is not None else ""
    thread = done.result.thread if done.result is not None else ""
    return TaskOutcome(as_json(delegated(done)), answer, thread, done.fault)


def _about(task: TaskRecord) -> dict[str, Any]:
    body: dict[str, Any] = {
        "taskId": task.id,
        "agentId": task.agent,
        "status": task.status,
        "createdAt": millis(task.created_at),
        "lastActivityAt": millis(task.updated_at),
    }
    if is_ended(task) and task.ttl is not None:
        body["expiresAt"] = millis(task.updated_at + task.ttl)
    reason = one_line(str((task.fault or {}).get("error") or ""), 300)
    details = {"progress": task.progress, "reason": reason, "requestId": task.run_id, "threadId": task.thread}
    return body | {name: value for name, value in details.items() if value}


def _failure(body: Mapping[str, Any]) -> ToolResult:
    found = document(body)
    found.is_error, found.structured_content = True, None
    return found
