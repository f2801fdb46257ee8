"""What a replay changes in fast-agent: models need no key, and no function or command of an agent is run.

Functions, and the tools for files that fast-agent has itself, are answered from the recording, as calls of
servers are. Commands of its shell are no steps and are not recorded: a call of one is a miss. Outside of a
replay only the templates of instructions are noted.

``tests/contract/test_hooks.py`` fails when a wrapped function changes.
"""

from collections.abc import Mapping
from typing import Any, Final

from fast_agent import FastAgent
from fast_agent.core import direct_decorators
from fast_agent.llm.provider_key_manager import ProviderKeyManager
from fast_agent.tools.filesystem_runtime_base import FilesystemRuntimeBase
from fast_agent.tools.shell_runtime import ShellRuntime
from fastmcp.tools import FunctionTool, ToolResult
from mcp_types import CallToolResult

from pallas.executors.replay.replay import Replay, current_replay, miss_fault, replays_models
from pallas.mcp_client.library_hooks import Hook
from pallas.model.dated_template import names_the_date
from pallas.model.redaction import redact_text
from pallas.model.steps import OWN_CODE
from pallas.safe_text import one_line
from pallas.telemetry.step_record import enclosing_step
from pallas.telemetry.trace_context import current_run

_NO_KEY: Final = "none"
_MAX_TEMPLATES: Final = 1_000
# Instructions that were made of a template with the date, with that template.
_templates: Final[dict[str, str]] = {}


def dated_instructions(fast: FastAgent) -> tuple[str, ...]:
    """Return the instructions of a definition that name the date, as they were written, masked."""
    made = (str(getattr(data.get("config"), "instruction", "")) for data in fast.agents.values())
    written = (_templates.get(each, each) for each in made)
    return tuple(dict.fromkeys(redact_text(each) for each in written if names_the_date(each)))


def _without_key(original: Any) -> Any:
    def get_optional_api_key(provider_name: str, config: Any) -> Any:
        found = original(provider_name, config)
        return _NO_KEY if found is None and replays_models() else found

    return get_optional_api_key


def _noting_template(original: Any) -> Any:
    def _apply_templates(text: str) -> Any:
        made = original(text)
        if names_the_date(text):
            if len(_templates) >= _MAX_TEMPLATES:
                _templates.clear()
            _templates[made] = text
        return made

    return _apply_templates


def _function(original: Any) -> Any:
    async def run(self: Any, arguments: dict[str, Any]) -> Any:
        if (call := _recorded_call()) is None:
            return await original(self, arguments)
        recorded = await _answer(*call, arguments)
        if recorded.is_error:  # as fast-agent shows the text of what a function raises
            raise RuntimeError("\n".join(str(getattr(each, "text", "")) for each in recorded.content))
        return ToolResult(recorded.content, recorded.structured_content)

    return run


def _file_tool(original: Any) -> Any:
    async def _call_with_tracking(
        self: Any,
        tool_name: str,
        arguments: dict[str, Any] | None,
        tool_use_id: str | None,
        request_params: Any,
        method: Any,
    ) -> Any:
        async def answered(given: dict[str, Any] | None, call_id: str | None) -> Any:
            call = _recorded_call()
            return await (method(given, call_id) if call is None else _answer(*call, given or {}))

        return await original(self, tool_name, arguments, tool_use_id, request_params, answered)

    return _call_with_tracking


def _command(original: Any) -> Any:
    async def call_tool(self: Any, name: str, *args: Any, **options: Any) -> Any:
        replay = current_replay()
        if replay is None or replay.plan.is_live(OWN_CODE):
            return await original(self, name, *args, **options)
        why = f"a call of {one_line(name, 80)}, which runs a command, is never in a recording"
        fault = miss_fault(why, f"--tools {OWN_CODE}=live")
        replay.note(fault)
        raise fault

    return call_tool


def _recorded_call() -> tuple[Replay, str, str] | None:
    """The replay that answers the call which this code is in, with the server and tool of its step.

    None outside of a replay, if functions are live, and if this is no call of a function.
    """
    replay, run = current_replay(), current_run()
    if replay is None or replay.plan.is_live(OWN_CODE) or run is None or run.steps is None:
        return None
    step = enclosing_step(run.steps)
    if step is None or step.value.kind != "tool":
        return None
    server, _, tool = step.value.name.partition("__")
    return replay, server, tool


async def _answer(replay: Replay, server: str, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
    # Not imported by a fleet that replays nothing.
    from pallas.executors.replay.recorded_servers import with_stand_ins

    result = await replay.answer_call(server, tool, arguments)
    content = [with_stand_ins(each) for each in result.get("content", ())]
    return CallToolResult.model_validate({**result, "content": content})


KEYS: Final = Hook(
    "replay.keys", ProviderKeyManager, "get_optional_api_key", ("provider_name", "config"), _without_key
)
TEMPLATES: Final = Hook(
    "replay.templates", direct_decorators, "_apply_templates", ("text",), _noting_template
)
FUNCTIONS: Final = Hook("replay.functions", FunctionTool, "run", ("self", "arguments"), _function)
FILES: Final = Hook(
    "replay.files",
    FilesystemRuntimeBase,
    "_call_with_tracking",
    ("self", "tool_name", "arguments", "tool_use_id", "request_params", "method"),
    _file_tool,
)
COMMANDS: Final = Hook(
    "replay.commands",
    ShellRuntime,
    "call_tool",
    (
        "self",
        "name",
        "arguments",
        "tool_use_id",
        "show_tool_call_id",
        "defer_display_to_tool_result",
    ),
    _command,
)
HOOKS: Final = (KEYS, TEMPLATES, FUNCTIONS, FILES, COMMANDS)
