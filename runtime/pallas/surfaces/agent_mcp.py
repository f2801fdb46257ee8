"""What each agent serves over MCP: two tools, a hidden alias and a prompt."""

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import mcp_types as mt
from fastmcp import FastMCP
from fastmcp.exceptions import PromptError
from fastmcp.prompts import Message as PromptMessage
from fastmcp.prompts import Prompt, PromptArgument, PromptResult
from fastmcp.server.dependencies import FastMCPRequestContext, fastmcp_request_ctx
from fastmcp.server.middleware import Middleware, MiddlewareContext
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from mcp_types import ImageContent, TextContent
from pydantic import PrivateAttr

from pallas import __version__
from pallas.conversations import mint, principal_of
from pallas.kernel import Kernel
from pallas.model import Fault, FaultType, Health, Image, Message, Principal, RunRequest, RunResult
from pallas.surfaces.health import health_text
from pallas.surfaces.progress import ProgressSender
from pallas.text import one_line

log = logging.getLogger(__name__)

SEND_MESSAGE: Final = "send_message"
GET_HEALTH: Final = "get_health"
HEALTH_DESCRIPTION: Final = "Returns the health status of this agent and its downstream dependencies."
META: Final = "local.pallas"
STREAM_META: Final = f"{META}/streamText"
NEW_CONVERSATION: Final = "new"

_IMAGES: Final[dict[str, Any]] = {
    "type": "array",
    "description": "Pictures that go with the message; the agent's model must have vision.",
    "items": {
        "type": "object",
        "properties": {
            "data": {"type": "string", "description": "The picture's bytes as base64."},
            "mime_type": {"type": "string", "description": "For example image/png."},
        },
        "required": ["data", "mime_type"],
        "additionalProperties": False,
    },
}
_SEND_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "Text message to the agent."},
        "images": _IMAGES,
        "conversation_id": {
            "type": "string",
            "description": "Continues a conversation. Choose one nobody can guess, or say 'new' and find "
            "the made one in the result's metadata. Without it nothing is remembered.",
        },
        "history": {
            "type": "array",
            "description": "Earlier messages of a conversation that the agent does not know yet.",
            "items": {
                "type": "object",
                "properties": {
                    "role": {"type": "string", "enum": ["user", "assistant"]},
                    "content": {"type": "string"},
                    "images": _IMAGES,
                },
                "required": ["role", "content"],
            },
        },
        "stream_text": {
            "type": "boolean",
            "description": "Also send the model's text as progress while it is written.",
        },
    },
    "required": ["message"],
    "additionalProperties": False,
}
_EMPTY_SCHEMA: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}


def agent_app(
    kernel: Kernel,
    name: str,
    *,
    description: str,
    health: Callable[[], Awaitable[Health]],
    history: bool = True,
) -> FastMCP:
    """The MCP server of one agent (PR-15).

    Tools ``send_message`` and ``get_health``; the agent's own name is accepted for the former but not
    listed (C1). With ``history`` the prompt ``{agent}_history``.
    """
    server: FastMCP = FastMCP(
        name,
        instructions=description,
        version=__version__,
        on_duplicate="error",
        dereference_schemas=False,  # ours hold no references
    )
    server.add_tool(_SendMessage(kernel, name, description))
    server.add_tool(_GetHealth(health))
    if history:
        server.add_prompt(_History(kernel, name))
    if name not in (SEND_MESSAGE, GET_HEALTH):
        server.add_middleware(_Alias(name))
    _answer_schema_lookups(
        server, {SEND_MESSAGE: _SEND_SCHEMA, name: _SEND_SCHEMA, GET_HEALTH: _EMPTY_SCHEMA}
    )
    return server


def _answer_schema_lookups(server: FastMCP, schemas: dict[str, dict[str, Any]]) -> None:
    """Tell the SDK a tool's schema at once: else it lists all tools, inside, before every modern call."""
    server._mcp_server.get_tool_input_schema = schemas.get


class _Alias(Middleware):
    """Calls by the agent's own name reach ``send_message`` (PR-16)."""

    def __init__(self, alias: str) -> None:
        self._alias = alias

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        message = context.message
        if message.name == self._alias:
            context = context.copy(message=message.model_copy(update={"name": SEND_MESSAGE}))
        return await call_next(context)


class _SendMessage(Tool):
    _kernel: Kernel = PrivateAttr()
    _agent: str = PrivateAttr()

    def __init__(self, kernel: Kernel, agent: str, description: str) -> None:
        super().__init__(
            name=SEND_MESSAGE,
            description=f"Send a message to {agent}: {description}",
            parameters=_SEND_SCHEMA,
            output_schema=None,
        )
        self._kernel, self._agent = kernel, agent

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        context = fastmcp_request_ctx.get()
        try:
            request = _request(self._agent, arguments, context)
            token = (context.meta or {}).get("progressToken") if context is not None else None
            if context is None or token is None:
                return _result(await self._kernel.run(request))
            with_text = arguments.get("stream_text") is True or (context.meta or {}).get(STREAM_META) is True
            async with ProgressSender(_reporter(context, token), with_text=with_text) as progress:
                result = await self._kernel.run(request, progress.hear)
            return _result(result)
        except Fault as fault:
            return fault_result(fault)


class _GetHealth(Tool):
    _health: Callable[[], Awaitable[Health]] = PrivateAttr()

    def __init__(self, health: Callable[[], Awaitable[Health]]) -> None:
        super().__init__(
            name=GET_HEALTH, description=HEALTH_DESCRIPTION, parameters=_EMPTY_SCHEMA, output_schema=None
        )
        self._health = health

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        if arguments:
            names = one_line(", ".join(map(str, arguments)), 120)
            return fault_result(
                Fault(FaultType.PROTOCOL, f"get_health takes no arguments; leave out {names}")
            )
        return ToolResult(content=[TextContent(type="text", text=health_text(await self._health()))])


class _History(Prompt):
    _kernel: Kernel = PrivateAttr()
    _agent: str = PrivateAttr()

    def __init__(self, kernel: Kernel, agent: str) -> None:
        super().__init__(
            name=f"{agent}_history",
            description=f"What was said in a conversation with {agent}.",
            arguments=[
                PromptArgument(
                    name="conversation_id",
                    description="The conversation; without it, that of this MCP session where there is one.",
                    required=False,
                )
            ],
        )
        self._kernel, self._agent = kernel, agent

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        context = fastmcp_request_ctx.get()
        wanted = (arguments or {}).get("conversation_id")
        session = _session(context)
        if wanted is None and session is None:
            return PromptResult([], description="No conversation: pass its conversation_id.")
        try:
            messages = self._kernel.open(self._agent, wanted, session, _principal(context))
        except Fault as fault:
            if wanted is None:  # a session in which nothing was said yet
                return PromptResult([], description="Nothing was said in this session yet.")
            raise PromptError(fault.message) from None
        return PromptResult(_prompt_messages(messages), description=f"{len(messages)} messages")


def fault_result(fault: Fault) -> ToolResult:
    """A Fault as a tool result: ``is_error`` and the JSON body of SPEC 7.3."""
    return ToolResult(
        content=[TextContent(type="text", text=json.dumps(fault.to_body(), ensure_ascii=False))],
        is_error=True,
    )


def _result(result: RunResult) -> ToolResult:
    text = result.text
    answer = result.texts[-1] if result.texts else ""
    meta: dict[str, Any] = {
        f"{META}/runId": result.run_id,
        # Where the last block, the answer itself, begins in the text (C4).
        f"{META}/finalOffset": len(text) - len(answer),
        f"{META}/stopReason": result.stop_reason,
        f"{META}/seconds": round(result.seconds, 3),
        f"{META}/steps": result.steps,
        f"{META}/tools": result.tools,
    }
    if result.conversation is not None:
        meta[f"{META}/conversationId"] = result.conversation
    if result.usage.input_tokens is not None or result.usage.output_tokens is not None:
        meta[f"{META}/usage"] = {
            "inputTokens": result.usage.input_tokens,
            "outputTokens": result.usage.output_tokens,
        }
    return ToolResult(content=[TextContent(type="text", text=text)], meta=meta)


def _reporter(context: FastMCPRequestContext, token: Any) -> Any:
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


def _session(context: FastMCPRequestContext | None) -> str | None:
    """The handshake-era session of the call; the newer protocol has none."""
    return _header(context, "mcp-session-id")


def _header(context: FastMCPRequestContext | None, name: str) -> str | None:
    request = context.request if context is not None else None
    return request.headers.get(name) if request is not None else None


def _bearer(context: FastMCPRequestContext | None) -> str | None:
    scheme, _, token = (_header(context, "authorization") or "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _principal(context: FastMCPRequestContext | None) -> Principal:
    return principal_of(_bearer(context))


def _request(agent: str, arguments: dict[str, Any], context: FastMCPRequestContext | None) -> RunRequest:
    unknown = set(arguments) - set(_SEND_SCHEMA["properties"])
    if unknown:
        raise _bad(f"unknown argument {one_line(', '.join(sorted(unknown)), 120)}")
    text = arguments.get("message")
    if not isinstance(text, str):
        raise _bad("message is missing or not a string")
    wanted = arguments.get("conversation_id")
    if wanted is not None and not isinstance(wanted, str):
        raise _bad("conversation_id is not a string")
    if wanted == NEW_CONVERSATION:
        wanted = mint()
    bearer = _bearer(context)
    return RunRequest(
        agent=agent,
        text=text,
        images=_images(arguments.get("images"), "images"),
        conversation=wanted,
        session=_session(context),
        principal=principal_of(bearer),
        history=_history(agent, arguments.get("history")),
        bearer=bearer,
    )


def _images(value: Any, where: str) -> tuple[Image, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _bad(f"{where} is not a list")
    images = []
    for index, each in enumerate(value):
        data = each.get("data") if isinstance(each, dict) else None
        mime_type = each.get("mime_type") if isinstance(each, dict) else None
        if not isinstance(data, str) or not isinstance(mime_type, str):
            raise _bad(f"{where}[{index}] needs data (base64) and mime_type, both strings")
        images.append(Image(data, mime_type))
    return tuple(images)


def _history(agent: str, rows: Any) -> tuple[Message, ...]:
    """The rows that are well formed; one that is not is skipped with a warning (PR-18)."""
    if rows is None:
        return ()
    if not isinstance(rows, list):
        log.warning("%s: history is not a list and was left out", agent)
        return ()
    messages = []
    for index, row in enumerate(rows):
        try:
            role, content = row["role"], row["content"]
            if role not in ("user", "assistant") or not isinstance(content, str):
                raise ValueError("role is user or assistant, content a string")
            messages.append(Message(role, content, _images(row.get("images"), "images")))
        except (KeyError, TypeError, ValueError, AttributeError, Fault) as error:
            log.warning("%s: history[%d] was left out: %s", agent, index, one_line(str(error)))
    return tuple(messages)


def _bad(problem: str) -> Fault:
    allowed = ", ".join(_SEND_SCHEMA["properties"])
    return Fault(FaultType.PROTOCOL, f"{problem}; send_message takes {allowed}")


def _prompt_messages(messages: Sequence[Message]) -> list[PromptMessage]:
    shown: list[PromptMessage] = []
    for message in messages:
        if message.role == "tool":
            continue
        role: mt.Role = "user" if message.role == "user" else "assistant"
        if message.text:
            shown.append(PromptMessage(message.text, role=role))
        shown += [
            PromptMessage(ImageContent(type="image", data=image.data, mime_type=image.mime_type), role=role)
            for image in message.images
        ]
    return shown
