"""A stdio MCP server that asks its client, in both protocol versions; standard library only.

Its tool ``ask`` takes ``method`` and ``params`` of the request to make and ``times``, and returns what the
client answered as JSON: a list of results and errors. With ``late`` (handshake versions) it returns first and
asks then, and the next call returns those answers. ``capabilities`` returns what the client declared.
"""

import json
import sys
from itertools import count
from pathlib import Path
from typing import Any, Final

COMMAND: Final = str(Path(__file__).resolve())
_MODERN: Final = "2026-07-28"
_TOOLS: Final = [
    {"name": name, "description": name, "inputSchema": {"type": "object"}} for name in ("ask", "capabilities")
]
_ids = count(1)
_declared: dict[str, Any] = {}
_late_answers: list[Any] = []


def _read() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    message: dict[str, Any] = json.loads(line)
    return message


def _write(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def _ask(method: str, params: dict[str, Any], times: int) -> list[Any]:
    """Handshake versions: one request after the other while the call is open."""
    answers = []
    for _ in range(times):
        id_ = f"q{next(_ids)}"
        _write(id=id_, method=method, params=params)
        while (reply := _read()).get("id") != id_:
            pass
        answers.append(reply.get("result", {"error": reply.get("error")}))
    return answers


def _text(value: Any) -> dict[str, Any]:
    return {"resultType": "complete", "content": [{"type": "text", "text": json.dumps(value)}]}


def _called(params: dict[str, Any], modern: bool) -> dict[str, Any]:
    if params["name"] == "capabilities":
        return _text(_declared)
    given = params.get("arguments", {})
    method, body, times = given["method"], given.get("params", {}), given.get("times", 1)
    if given.get("late"):
        found = _text(_late_answers)
        _late_answers.clear()
        return found
    if not modern:
        return _text(_ask(method, body, times))
    if "inputResponses" in params:
        return _text(list(params["inputResponses"].values()))
    requests = {f"q{number}": {"method": method, "params": body} for number in range(times)}
    return {"resultType": "input_required", "inputRequests": requests, "requestState": "asked"}


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params", {})
    meta = params.get("_meta", {})
    modern = meta.get("io.modelcontextprotocol/protocolVersion") == _MODERN
    if modern:
        _declared.update(meta.get("io.modelcontextprotocol/clientCapabilities", {}))
    if message["method"] == "server/discover":
        return {
            "resultType": "complete", "supportedVersions": [_MODERN], "capabilities": {"tools": {}},
            "ttlMs": 0, "cacheScope": "private",
        }  # fmt: skip
    if message["method"] == "initialize":
        _declared.update(params["capabilities"])
        return {
            "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "curious", "version": "1"},
        }  # fmt: skip
    if message["method"] == "tools/list":
        return {"resultType": "complete", "tools": _TOOLS, "ttlMs": 0, "cacheScope": "private"}
    return _called(params, modern) if message["method"] == "tools/call" else {}


if __name__ == "__main__":
    while True:
        received = _read()
        if "id" in received and "method" in received:
            _write(id=received["id"], result=_answer(received))
            wanted = received.get("params", {}).get("arguments") or {}
            if wanted.get("late"):
                _late_answers += _ask(wanted["method"], wanted["params"], wanted.get("times", 1))
