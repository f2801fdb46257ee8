"""JSON-RPC messages as lines: method, protocol version, and how a Fault is reported."""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from pallas.model import Fault

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
CALL: Final = "tools/call"
INITIALIZE: Final = "initialize"
CANCELLED: Final = "notifications/cancelled"

_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
# The value of ``Mcp-Name``, by method: servers compare it with the body.
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PLAIN: Final = re.compile(r"[\x20-\x7E]*")
_ENCODED: Final = re.compile(r"=\?base64\?.*\?=")


def modern(document: Mapping[str, Any]) -> str:
    """Return the newer protocol version that a request uses; empty for the older one."""
    params = document.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    found = meta.get(_VERSION) if isinstance(meta, dict) else None
    return found if isinstance(found, str) else ""


def headers_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that the newer protocol version requires; empty for the older one."""
    version = modern(document)
    if not version:
        return {}
    method = str(document.get("method", ""))
    found = {"mcp-protocol-version": _value(version), "mcp-method": _value(method)}
    name = document["params"].get(_NAMED.get(method, ""))
    if isinstance(name, str):
        found["mcp-name"] = _value(name)
    return found


def failed(document: Mapping[str, Any], fault: Fault) -> bytes:
    """Return the answer to a failed request: for a tool call a result with ``isError`` (DR-21)."""
    body = fault.to_body()
    if document.get("method") != CALL:
        return error(document.get("id"), fault.code, fault.message, body["data"])
    text = json.dumps(body, ensure_ascii=False)
    result = {"content": [{"type": "text", "text": text}], "isError": True, "resultType": "complete"}
    return _line({"jsonrpc": "2.0", "id": document.get("id"), "result": result})


def error(id: Any, code: int, message: str, data: Any = None) -> bytes:  # noqa: A002 - JSON-RPC's own word
    """Return a JSON-RPC error; ``id`` is None when the message could not be parsed that far."""
    error_body = {"code": code, "message": message} | ({"data": data} if data is not None else {})
    return _line({"jsonrpc": "2.0", "id": id, "error": error_body})


def one_line_of(text: str) -> bytes:
    """Return a server's message as one line; one with line breaks between its parts is serialized again."""
    stripped = text.strip()
    if "\n" in stripped or "\r" in stripped:
        return _line(json.loads(stripped))
    return stripped.encode("utf-8", "replace")


def _line(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _value(text: str) -> str:
    if _PLAIN.fullmatch(text) and text == text.strip() and not _ENCODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="
