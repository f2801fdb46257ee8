"""A ``send_message`` call: its arguments, its caller, and its result on the wire."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastmcp.server.dependencies import FastMCPRequestContext
from fastmcp.tools.base import ToolResult
from mcp_types import TextContent
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from pallas.bounds.images import check_images
from pallas.model import (
    NO_PARAMS,
    Fault,
    FaultType,
    Image,
    Message,
    Params,
    Principal,
    RunRequest,
    RunResult,
    TraceContext,
)
from pallas.model.ids import mint
from pallas.model.money import cost_fields
from pallas.model.spend_limits import ANY, SpendLimits, limits_in
from pallas.runs.chat_messages import MAX_MESSAGES
from pallas.runs.conversations import MAX_HANDLE
from pallas.runs.run_keys import MAX_KEY, is_key
from pallas.safe_text import has_lone_surrogate, one_line
from pallas.telemetry.trace_context import incoming

from .request_caller import bearer_in as bearer_in
from .request_caller import principal_in

log = logging.getLogger(__name__)

META: Final = "local.pallas"
SEALED_SESSION: Final = "pallas.session"
"""The scope's key for the name of a session that several processes know."""
STREAM_META: Final = f"{META}/streamText"
IDEMPOTENCY_META: Final = f"{META}/idempotency"
"""In a call the key of its run; in the list of tools ``true``, where keys outlive the fleet."""
CANCEL_META: Final = f"{META}/cancel"
JOIN_META: Final = f"{META}/join"
"""The message is asked again: of the first request, all but the message may have been different."""
PARAMS_META: Final = f"{META}/params"
LIMITS_META: Final = f"{META}/limits"
"""What the caller lets the run spend: it can only lower the limits of the files."""
BRANCH_META: Final = f"{META}/branchOf"
"""The conversation whose earlier messages ``history`` has: the new one becomes a branch of it."""
NEW_CONVERSATION: Final = "new"

IMAGES_SCHEMA: Final[dict[str, Any]] = {
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
SEND_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "Text message to the agent."},
        "images": IMAGES_SCHEMA,
        "conversation_id": {
            "type": "string",
            "description": "Continues a conversation. Choose one nobody can guess, or say 'new' and find "
            "the made one in the result's metadata. Without it nothing is remembered.",
        },
        "history": {
            "type": "array",
            "description": "Earlier messages of a conversation that the agent does not know yet.",
            "maxItems": MAX_MESSAGES,
            "items": {
                "type": "object",
                "properties": {
                    "role": {"type": "string", "enum": ["user", "assistant"]},
                    "content": {"type": "string"},
                    "images": IMAGES_SCHEMA,
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


@dataclass(frozen=True, slots=True)
class TextResult:
    """What an agent's own tool answers: one text, with metadata or as an error."""

    text: str
    meta: dict[str, Any] | None = None
    is_error: bool = False

    def for_sdk(self) -> ToolResult:
        """Return it as FastMCP wants it."""
        return ToolResult(
            content=[TextContent(type="text", text=self.text)], meta=self.meta, is_error=self.is_error
        )


def fault_text(fault: Fault) -> TextResult:
    """Return a Fault as a result: the JSON body of a Fault, as an error."""
    return TextResult(json.dumps(fault.to_body(), ensure_ascii=False), is_error=True)


def fault_result(fault: Fault) -> ToolResult:
    """Return a Fault as a tool result: ``is_error`` and the JSON body of a Fault."""
    return fault_text(fault).for_sdk()


def result_of(result: RunResult) -> ToolResult:
    """Return a run's result: one text block with all its text, and the run's metadata."""
    return text_of(result).for_sdk()


def text_of(result: RunResult) -> TextResult:
    """Return a run's result: all its text, and the run's metadata."""
    text = result.text
    answer = result.texts[-1] if result.texts else ""
    meta: dict[str, Any] = {
        f"{META}/runId": result.run_id,
        # The offset of the last block, which is the answer itself.
        f"{META}/finalOffset": len(text) - len(answer),
        f"{META}/stopReason": result.stop_reason,
        f"{META}/seconds": round(result.seconds, 6),
        f"{META}/steps": result.steps,
        f"{META}/tools": result.tools,
    }
    if result.conversation is not None:
        meta[f"{META}/conversationId"] = result.conversation
    if result.thread:
        meta[f"{META}/threadId"] = result.thread
    if result.turn_index is not None:
        meta[f"{META}/turnIndex"] = result.turn_index
    if result.backend:
        meta[f"{META}/backend"] = result.backend
    if result.routed:
        meta[f"{META}/routed"] = result.routed
    if result.rerouted:
        meta[f"{META}/rerouted"] = list(result.rerouted)
    if result.notices:
        meta[f"{META}/notices"] = list(result.notices)
    if result.missing:
        meta[f"{META}/missingServers"] = dict(result.missing)
    if result.usage.input_tokens is not None or result.usage.output_tokens is not None:
        meta[f"{META}/usage"] = {
            "inputTokens": result.usage.input_tokens,
            "outputTokens": result.usage.output_tokens,
        }
    if not result.tree.is_empty:
        meta[f"{META}/cost"] = cost_fields(result.usage, result.tree)
    return TextResult(text, meta)


def session_of(context: FastMCPRequestContext | None) -> str | None:
    """Return the handshake-era session of the call; None for the newer protocol, regardless of headers."""
    if context is None or context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return None
    request = context.request
    sealed: str | None = request.scope.get(SEALED_SESSION) if request is not None else None
    return sealed or _header(context, "mcp-session-id")


def _header(context: FastMCPRequestContext | None, name: str) -> str | None:
    request = context.request if context is not None else None
    return request.headers.get(name) if request is not None else None


def bearer_of(context: FastMCPRequestContext | None) -> str | None:
    return bearer_in(_header(context, "authorization"))


def caller_of(context: FastMCPRequestContext | None) -> Principal:
    """Return the caller: the one the gate let in, else the holder of the bearer token."""
    request = context.request if context is not None else None
    return principal_in(request.scope) if request is not None else Principal()


def client_of(context: FastMCPRequestContext | None) -> str:
    """Return the client's name for itself, sanitised; empty without one. Any client may claim any name."""
    params = context.session.client_params if context is not None else None
    return one_line(params.client_info.name, 60) if params is not None else ""


def trace_of(context: FastMCPRequestContext | None) -> TraceContext | None:
    """Return the caller's span: from ``_meta``, else from the HTTP headers."""
    if context is None:
        return None
    request = context.request
    return incoming(context.meta, request.headers if request is not None else None)


def request_of(agent: str, arguments: dict[str, Any], context: FastMCPRequestContext | None) -> RunRequest:
    """Return the arguments as a request to the kernel. Raises Fault (PROTOCOL) that names the mistake."""
    unknown = set(arguments) - set(SEND_SCHEMA["properties"])
    if unknown:
        raise _bad(f"unknown argument {one_line(', '.join(sorted(unknown)), 120)}")
    text = arguments.get("message")
    if not isinstance(text, str):
        raise _bad("message is missing or not a string")
    wanted = arguments.get("conversation_id")
    if wanted is not None and not isinstance(wanted, str):
        raise _bad("conversation_id is not a string")
    new = wanted == NEW_CONVERSATION
    if new:
        wanted = mint()
    return RunRequest(
        agent=agent,
        text=text,
        images=images_in(arguments.get("images"), "images"),
        conversation=wanted,
        session=session_of(context),
        principal=caller_of(context),
        history=_history(agent, arguments.get("history")),
        stream_text=wants_text(arguments, context),
        new_conversation=new,
        caller=client_of(context),
        trace=trace_of(context),
        params=params_of(context),
        limits=limits_of(context),
        branch_of=branch_of(context),
        bearer=bearer_of(context),
    )


def wants_text(arguments: dict[str, Any], context: FastMCPRequestContext | None) -> bool:
    """Return whether the caller asked for text as it is written, and for progress, which carries it."""
    meta = (context.meta or {}) if context is not None else {}
    if meta.get("progressToken") is None:
        return False
    return arguments.get("stream_text") is True or meta.get(STREAM_META) is True


def key_of(context: FastMCPRequestContext | None) -> str:
    """Return the idempotency key in ``_meta``, empty without one. Raises Fault (PROTOCOL)."""
    given = (context.meta or {}).get(IDEMPOTENCY_META) if context is not None else None
    if given is None:
        return ""
    if not isinstance(given, str) or not is_key(given):
        text = f'_meta["{IDEMPOTENCY_META}"] is not a key; send 1 to {MAX_KEY} printable ASCII characters'
        raise Fault(FaultType.PROTOCOL, text)
    return given


def is_cancel(context: FastMCPRequestContext | None) -> bool:
    """Return whether the call cancels the run of its key, in place of a message."""
    return context is not None and (context.meta or {}).get(CANCEL_META) is True


def is_join(context: FastMCPRequestContext | None) -> bool:
    """Return whether the call asks again for the run of its key."""
    return context is not None and (context.meta or {}).get(JOIN_META) is True


def params_of(context: FastMCPRequestContext | None) -> Params:
    """Return the run's parameters in ``_meta``, in either spelling; unknown ones go to the provider.

    Raises Fault (PROTOCOL) that names the key.
    """
    given = (context.meta or {}).get(PARAMS_META) if context is not None else None
    if given is None:
        return NO_PARAMS
    if not isinstance(given, Mapping):
        text = f'_meta["{PARAMS_META}"] is not an object; write {{"temperature": 0.2}}, for example'
        raise Fault(FaultType.PROTOCOL, text)
    return Params.read(given, strict=False)


def branch_of(context: FastMCPRequestContext | None) -> str:
    """Return the conversation of which the call's is a branch, empty without one."""
    given = (context.meta or {}).get(BRANCH_META) if context is not None else None
    return given if isinstance(given, str) and len(given) <= MAX_HANDLE else ""


def limits_of(context: FastMCPRequestContext | None) -> SpendLimits:
    """Return the limits of the run in ``_meta``. Raises Fault (PROTOCOL) that names the key."""
    given = (context.meta or {}).get(LIMITS_META) if context is not None else None
    return ANY if given is None else limits_in(given, f'_meta["{LIMITS_META}"]')


def images_in(value: Any, where: str) -> tuple[Image, ...]:
    """Return the images of a call. Raises Fault (PROTOCOL) that names an invalid one."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _bad(f"{where} is not a list")
    images = []
    for index, each in enumerate(value):
        data = each.get("data") if isinstance(each, dict) else None
        mime_type = each.get("mime_type", each.get("mimeType")) if isinstance(each, dict) else None
        if not isinstance(data, str) or not isinstance(mime_type, str):
            raise _bad(f"{where}[{index}] needs data (base64) and mime_type, both strings")
        images.append(Image(data, mime_type))
    return tuple(images)


def _history(agent: str, rows: Any) -> tuple[Message, ...]:
    """Return the valid rows; invalid ones are left out with one warning (PR-18).

    Raises Fault (PROTOCOL) if there are more than ``MAX_MESSAGES``.
    """
    if rows is None:
        return ()
    if not isinstance(rows, list):
        log.warning("%s: history is not a list and was left out", agent)
        return ()
    if len(rows) > MAX_MESSAGES:
        raise Fault(
            FaultType.PROTOCOL,
            f"history has {len(rows)} rows; at most {MAX_MESSAGES}: send the newest, or continue the "
            "conversation with conversation_id",
            data={"key": "history", "limit": MAX_MESSAGES},
        )
    messages, wrong, first = [], 0, ""
    for index, row in enumerate(rows):
        found = _row(row)
        if isinstance(found, Message):
            messages.append(found)
        else:
            wrong, first = wrong + 1, first or f"history[{index}]: {found}"
    if wrong:
        log.warning("%s: %d of %d rows of history were left out; %s", agent, wrong, len(rows), first)
    return tuple(messages)


def _row(row: Any) -> Message | str:
    """Return a row of ``history`` as a message, or the reason why it is invalid."""
    if not isinstance(row, dict):
        return "it is not an object; write role and content"
    role, content = row.get("role"), row.get("content")
    if role not in ("user", "assistant"):
        return "its role is neither user nor assistant"
    if not isinstance(content, str):
        return "its content is not text"
    if has_lone_surrogate(content):
        return "its content holds half of a surrogate pair"
    try:
        images = images_in(row.get("images"), "images")
        check_images(images, vision=True, model="")  # whether the model has it is checked when it runs
    except Fault as fault:
        return one_line(fault.message)
    return Message(role, content, images)


def _bad(problem: str) -> Fault:
    allowed = ", ".join(SEND_SCHEMA["properties"])
    return Fault(FaultType.PROTOCOL, f"{problem}; send_message takes {allowed}")
