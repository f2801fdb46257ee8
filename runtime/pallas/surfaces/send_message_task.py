"""``send_message`` as a task: the same run, with a handle for its result."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastmcp.server.dependencies import FastMCPRequestContext
from fastmcp.tools.base import ToolResult
from mcp_types import CallToolResult

from pallas.model import RunResult, TaskRecord
from pallas.model.ids import mint_run
from pallas.runs.kernel import Kernel
from pallas.runs.run import Listener
from pallas.tasks import TaskOutcome

from .send_message_call import request_of, result_of

if TYPE_CHECKING:
    from pallas.tasks import Tasks


async def begin_sending(
    kernel: Kernel,
    agent: str,
    tasks: "Tasks",
    arguments: Mapping[str, Any],
    context: FastMCPRequestContext,
    answers: bool,
) -> TaskRecord:
    """Begin the task of a ``send_message``. Raises Fault for wrong arguments, or if no task can begin."""
    request = replace(
        request_of(agent, dict(arguments), context), stream_text=False, session=None, run_id=mint_run()
    )

    async def run(hear: Listener) -> TaskOutcome:
        return outcome_of(await kernel.run(request, hear))

    return await tasks.begin(
        agent,
        request.principal,
        run,
        preview=request.text,
        run_id=request.run_id,
        answers=answers,
    )


def outcome_of(result: RunResult) -> TaskOutcome:
    """Return a run's result as that of its task."""
    return TaskOutcome(as_json(result_of(result)), result.text, result.thread)


def as_json(result: ToolResult) -> dict[str, Any]:
    """Return a tool's result as JSON."""
    given = result.to_mcp_result()
    if not isinstance(given, CallToolResult):
        content, structured = given if isinstance(given, tuple) else (given, None)
        given = CallToolResult(content=list(content), structured_content=structured)
    document: dict[str, Any] = given.model_dump(mode="json", by_alias=True, exclude_none=True)
    document.pop("resultType", None)
    return document
