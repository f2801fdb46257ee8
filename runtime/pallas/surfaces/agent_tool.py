"""An agent as a tool: ``chat``, which starts or continues a thread (AG-23)."""

from collections.abc import Mapping
from typing import Any, Final

from fastmcp.server.dependencies import FastMCPRequestContext, fastmcp_request_ctx
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from mcp_types import TextContent
from pydantic import PrivateAttr

from pallas.bounds.sizes import MAX_RESULT, json_size
from pallas.model import Fault, FaultType, Params, RunRequest, RunResult
from pallas.model.ids import mint
from pallas.runs.kernel import Kernel
from pallas.safe_text import one_line

from .mcp_run import run_for
from .published_agent import CHAT
from .send_message_call import (
    IMAGES_SCHEMA,
    META,
    bearer_of,
    caller_of,
    client_of,
    fault_result,
    images_in,
    result_of,
    trace_of,
    wants_text,
)

THREAD_ID: Final = "threadId"
TURN_INDEX: Final = "turnIndex"
# A result has the answer's text twice; this is for names, numbers and the JSON around them.
_AROUND: Final = 2_000

_PARAMS: Final[Mapping[str, dict[str, Any]]] = {
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "top_p": {"type": "number", "minimum": 0, "maximum": 1},
    "top_k": {"type": "integer", "minimum": 0},
    "max_tokens": {"type": "integer", "minimum": 1},
    "stop": {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": 4}],
        "description": "Up to 4 texts at which the model stops.",
    },
    "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "seed": {"type": "integer"},
    "response_format": {
        "type": "object",
        "description": 'For example {"type": "json_object"}; text, json_object and json_schema are known.',
    },
    "tool_choice": {
        "anyOf": [{"type": "string", "enum": ["auto", "none", "required"]}, {"type": "object"}],
        "description": 'Or {"type": "function", "function": {"name": ...}}.',
    },
    "tools_allowlist": {
        "type": "array",
        "items": {"type": "string"},
        "description": "The only tools that the agent may call for this message; an empty list allows none.",
    },
    "systemOverride": {"type": "string", "description": "Replaces the agent's instruction for this message."},
    "systemAppend": {
        "type": "string",
        "description": "Appended to the agent's instruction for this message.",
    },
    "messages": {
        "type": "array",
        "items": {"type": "object"},
        "description": "A whole conversation, instead of message and of the thread's messages.",
    },
    "model": {"type": "string", "description": "The name of another model of the provider."},
    "extra": {"type": "object", "description": "Further parameters of the provider."},
}

CHAT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What to say to the agent."},
        THREAD_ID: {
            "type": "string",
            "description": "The thread of an earlier answer, to continue it. Without it a new one begins.",
        },
        "images": IMAGES_SCHEMA,
        # null clears what the agent has as its own default.
        **{key: {"anyOf": [schema, {"type": "null"}]} for key, schema in _PARAMS.items()},
    },
    "additionalProperties": False,
}
"""What ``chat`` takes: a message, or ``messages``; each parameter of a run in either spelling."""


class ChatTool(Tool):
    """The tool ``name`` by which callers chat with an agent."""

    _kernel: Kernel = PrivateAttr()
    _agent: str = PrivateAttr()

    def __init__(self, kernel: Kernel, agent: str, description: str, name: str = CHAT) -> None:
        super().__init__(name=name, description=description, parameters=CHAT_SCHEMA, output_schema=None)
        self._kernel, self._agent = kernel, agent

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Return the answer with its thread; a Fault is returned as an error."""
        context = fastmcp_request_ctx.get()
        try:
            request = chat_request(self._agent, arguments, context)
            return chat_result(await run_for(self._kernel, request, context))
        except Fault as fault:
            return fault_result(fault)


def chat_request(
    agent: str, arguments: Mapping[str, Any], context: FastMCPRequestContext | None
) -> RunRequest:
    """Return the arguments as a request to the kernel. Raises Fault (PROTOCOL) that names the mistake."""
    given = dict(arguments)
    thread = _either(given, THREAD_ID, "thread_id")
    text, images = given.pop("message", None), images_in(given.pop("images", None), "images")
    params = Params.read(given, strict=True)
    if text is None and params.get("messages"):
        text = ""
    if not isinstance(text, str):
        raise _bad("message is missing or not a string")
    if thread is not None and (not isinstance(thread, str) or not thread):
        raise _bad(f"{THREAD_ID} is not the id of a thread; leave it out for a new one")
    return RunRequest(
        agent=agent,
        text=text,
        images=images,
        conversation=thread or mint(),
        new_conversation=thread is None,
        principal=caller_of(context),
        stream_text=wants_text({}, context),
        caller=client_of(context),
        trace=trace_of(context),
        params=params,
        surface="agent-tool",
        bearer=bearer_of(context),
    )


def chat_result(result: RunResult) -> ToolResult:
    """Return the answer as text, followed by its thread for models, and as structured content for
    programs."""
    found = result_of(result)
    thread = result.thread or result.conversation or ""
    facts: dict[str, Any] = {THREAD_ID: thread, TURN_INDEX: result.turn_index}
    found.meta = {**(found.meta or {}), **{f"{META}/{name}": value for name, value in facts.items()}}
    found.content.append(TextContent(type="text", text=f"({THREAD_ID}: {thread})"))
    # Clients with structured content show it in place of the text: it has the text too if both fit.
    if 2 * json_size(result.text) + _AROUND <= MAX_RESULT:
        found.structured_content = {"text": result.text, **facts, **result.who_answered}
    return found


def _either(given: dict[str, Any], *names: str) -> Any:
    """Remove and return the value that is given under one of these names."""
    there = [name for name in names if name in given]
    if len(there) > 1:
        raise _bad(f"{there[0]} and {there[1]} are the same; leave one out")
    return given.pop(there[0]) if there else None


def _bad(problem: str) -> Fault:
    allowed = ", ".join(("message", THREAD_ID, "images"))
    return Fault(FaultType.PROTOCOL, f"{one_line(problem)}; chat takes {allowed} and parameters of a run")
