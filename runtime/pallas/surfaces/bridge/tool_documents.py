"""The bridge's results: one JSON document as text, and again as structured content."""

import json
from collections.abc import Mapping
from typing import Any, Final

from fastmcp.tools.base import ToolResult
from mcp_types import TextContent

from pallas.bounds.sizes import MAX_RESULT, json_size
from pallas.model import AgentInfo, Fault, FaultType, ProviderFacts, RunResult, SessionRecord, Usage
from pallas.model.money import cost_fields
from pallas.surfaces.send_message_call import fault_result, result_of

# A result has the document twice; this is for names, numbers and the JSON around them.
_AROUND: Final = 2_000

_STOPPED: Final[Mapping[str, str]] = {
    "endturn": "end_turn",
    "stop": "end_turn",
    "stopsequence": "end_turn",
    "tooluse": "end_turn",
    "pause": "end_turn",
    "continue": "end_turn",
    "maxturns": "max_turns",
    "maxturnrequests": "max_turns",
    "maxiterations": "max_turns",
    "limit": "max_turns",  # of what it may spend
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "timeout": "cancelled",
    "maxtokens": "max_tokens",
    "length": "max_tokens",
    "safety": "content_filter",
    "refusal": "content_filter",
    "contentfilter": "content_filter",
}


def stop_reason(wire_reason: str) -> str:
    """Return why an answer ended as one of five words, for any executor's word."""
    return _STOPPED.get(wire_reason.replace("_", "").replace("-", "").casefold(), "end_turn")


def millis(seconds: float) -> int:
    """Return seconds as milliseconds, the unit of all times of the bridge."""
    return round(seconds * 1000)


def document(body: Mapping[str, Any], meta: Mapping[str, Any] | None = None) -> ToolResult:
    """Return a document as a result. Raises Fault (UPSTREAM) for one that is too large for clients."""
    text = json.dumps(body, ensure_ascii=False)
    # Measured as JSON within JSON, as it is sent.
    size = json_size(text)
    if size > MAX_RESULT:
        raise Fault(
            FaultType.UPSTREAM,
            f"the answer has {size} bytes as it travels; at most {MAX_RESULT} reach every MCP client; ask "
            "for a part of it, or for a shorter one",
            data={"size": size, "limit": MAX_RESULT},
        )
    found = ToolResult(content=[TextContent(type="text", text=text)], meta=dict(meta) if meta else None)
    if 2 * size + _AROUND <= MAX_RESULT:
        found.structured_content = dict(body)
    return found


def agent_document(info: AgentInfo) -> dict[str, Any]:
    """Return an agent as discovery shows it, without the fields that are not known (DR-23)."""
    body: dict[str, Any] = {
        "id": info.id,
        "capabilities": list(info.capabilities),
        "status": info.status,
        "kind": info.kind,
    }
    details = {
        "title": info.title,
        "description": info.description,
        "reason": info.reason,
        "match": info.match,
    }
    body |= {name: value for name, value in details.items() if value}
    if info.shadows:
        body["shadows"] = list(info.shadows)
    if info.providers is not None:
        body["providers"] = [_provider(each) for each in info.providers]
    return body


def session_created(record: SessionRecord) -> dict[str, Any]:
    """Return the result of ``sessions_create``."""
    return {
        "sessionId": record.id,
        "agentId": record.agent,
        "status": "active",
        "createdAt": millis(record.created_at),
    }


def session_status(record: SessionRecord) -> dict[str, Any]:
    """Return the result of ``sessions_status``; it has ``threadId`` if the session has a stored message."""
    body: dict[str, Any] = {
        "sessionId": record.id,
        "agentId": record.agent,
        "status": record.status,
        "lastActivityAt": millis(record.last_activity_at),
    }
    if record.expires_at:
        body["expiresAt"] = millis(record.expires_at)
    details = {"reason": record.reason, "threadId": record.thread, "provider": record.provider}
    return body | {name: value for name, value in details.items() if value}


def answer(result: RunResult) -> dict[str, Any]:
    """Return the agent's answer, its agent if there was a choice (DR-32), and ``usage`` if it was counted."""
    body: dict[str, Any] = {"text": result.text, "stopReason": stop_reason(result.stop_reason)}
    if result.run_id:
        body["requestId"] = result.run_id
    if usage := _usage(result.usage):
        body["usage"] = usage
    if not result.tree.is_empty:
        body["cost"] = cost_fields(result.usage, result.tree)
    return body | result.who_answered


def about_run(result: RunResult) -> Mapping[str, Any]:
    """Return the metadata of a run, the same as on every other surface (DR-32)."""
    return result_of(result).meta or {}


def failed_task(session: str, fault: Fault) -> ToolResult:
    """Return the result of a failed delegation: the body of the Fault, marked as no success (DR-18)."""
    known = {"sessionId": session} if session else {}
    found = fault_result(fault)
    body = {"success": False, **known, **fault.to_body()}
    found.content = [TextContent(type="text", text=json.dumps(body, ensure_ascii=False))]
    return found


def _provider(facts: ProviderFacts) -> dict[str, Any]:
    body: dict[str, Any] = {"id": facts.id, "models": list(facts.models), "kind": facts.kind}
    if facts.capabilities:
        body["capabilities"] = dict(facts.capabilities)
    details = {"displayName": facts.display_name, "description": facts.description}
    return body | {name: value for name, value in details.items() if value}


def _usage(usage: Usage) -> dict[str, int]:
    counted = {"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens}
    return {name: value for name, value in counted.items() if value is not None}
