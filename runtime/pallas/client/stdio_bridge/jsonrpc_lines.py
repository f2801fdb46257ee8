"""JSON-RPC as it stands on a line: what is asked, under which protocol, and how a Fault is told."""

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
# What stands in ``Mcp-Name``, by method: servers compare it with the body.
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PLAIN: Final = re.compile(r"[\x20-\x7E]*")
_ENCODED: Final = re.compile(r"=\?base64\?.*\?=")


def modern(document: Mapping[str, Any]) -> str:
    """The version of the newer protocol that a request speaks; empty for the handshake era's."""
    params = document.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    found = meta.get(_VERSION) if isinstance(meta, dict) else None
    return found if isinstance(found, str) else ""


def headers_of(document: Mapping[str, Any]) -> dict[str, str]:
    """What the newer protocol wants said in headers as well; nothing for the handshake era."""
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
    """The answer to a request that came to nothing: a call's as a result with ``isError`` (DR-21)."""
    body = fault.to_body()
    if document.get("method") != CALL:
        return error(document.get("id"), fault.code, fault.message, body["data"])
    text = json.dumps(body, ensure_ascii=False)
    result = {"content": [{"type": "text", "text": text}], "isError": True, "resultType": "complete"}
    return _line({"jsonrpc": "2.0", "id": document.get("id"), "result": result})


def error(id: Any, code: int, message: str, data: Any = None) -> bytes:  # noqa: A002 - JSON-RPC's own word
    """A JSON-RPC error; with ``id`` None to a message of which no more could be understood."""
    told = {"code": code, "message": message} | ({"data": data} if data is not None else {})
    return _line({"jsonrpc": "2.0", "id": id, "error": told})


def one_line_of(text: str) -> bytes:
    """A message of a server as one line; what holds line breaks between its parts is written anew."""
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
