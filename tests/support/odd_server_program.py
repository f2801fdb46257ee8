"""One odd MCP server: a program of the standard library for stdio, and the engine of one over HTTP.

It says what its spec says, a JSON object that ``OddServer`` makes, and checks nothing: all can be odd.
``python odd_server_program.py SPEC_FILE`` serves standard input and output.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

_LISTS: Final = (
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
)
_EXTRA: Final[dict[str, Any]] = {"xOdd": {"is": [1, None, {}]}, "x-odd/more": None}
Message = dict[str, Any]


class BrokenError(Exception):
    """The server dies at a message: the program exits, over HTTP the status is 500."""


class OddEngine:
    """One session with the server of a spec."""

    def __init__(self, spec: Message) -> None:
        self._spec = spec
        self._is_open = False
        self._held: dict[str, Message] = {}

    def hear(self, message: Message) -> list[Message]:
        """What the server sends at a message, in order. Raises BrokenError."""
        method, number = message.get("method"), message.get("id")
        if method is None:  # an answer to a question of ours
            held = self._held.pop(str(number), None)
            return [] if held is None else [self._answer(held)]
        if number is None:
            return []
        if refusal := self._refusal(message):
            return [_error(number, *refusal)]
        if method == "ping" and self._spec.get("ping"):
            return [] if self._spec["ping"] == "silent" else [_error(number, -32601, "Method not found")]
        if method == "initialize":
            self._is_open = True
        elif not self._is_open and self._spec.get("first"):
            return self._too_early(self._spec["first"], number)
        before = [{"jsonrpc": "2.0", **each} for each in self._spec.get("before", ())]
        if method == "tools/call":
            before += self._flood(message)
        if self._spec.get("cancels"):
            before.append(_cancelled(number))
        if method == "initialize" and self._spec.get("asks_early"):
            self._held["early"] = message
            return [{"jsonrpc": "2.0", "id": "early", "method": self._spec["asks_early"], "params": {}}]
        if method == "tools/call" and self._spec.get("asks"):
            ours, params = f"odd-{number}", self._spec.get("asks_params", {})
            self._held[ours] = message
            return [*before, {"jsonrpc": "2.0", "id": ours, "method": self._spec["asks"], "params": params}]
        after = [{"jsonrpc": "2.0", **each} for each in self._spec.get("after", ())]
        answers = [self._answer(message)] * (2 if self._spec.get("twice") else 1)
        return [*before, *answers, *after]

    def _flood(self, message: Message) -> list[Message]:
        """Notifications of a call; those of its progress have its token."""
        flood = self._spec.get("flood_before", {"message": {}, "count": 0})
        said = {"jsonrpc": "2.0", **flood["message"]}
        if said.get("params", {}).get("progressToken") == "own":
            token = message["params"].get("_meta", {}).get("progressToken", "none")
            said["params"] = {**said["params"], "progressToken": token}
        return [said] * flood["count"] if message["params"].get("name") == flood.get("tool") else []

    def _refusal(self, message: Message) -> tuple[Any, ...] | None:
        """Code, text and data of the error for a message that it is too strict for."""
        params = message.get("params")
        if self._spec.get("needs_params") and params is None and message["method"] != "ping":
            return -32603, "Cannot read properties of undefined (reading 'cursor')"
        if (
            self._spec.get("refuses_meta")
            and message["method"].endswith("/list")
            and (params or {}).keys() - {"cursor"}
        ):
            return -32602, "Unrecognized key in params"
        only = self._spec.get("only_version")
        if message["method"] != "initialize" or not only or params["protocolVersion"] == only["version"]:
            return None
        if only["said"] == "text":
            return -32602, f"Unsupported protocol version. Supported: {only['version']}"
        return -32602, "Unsupported protocol version", {"supported": [only["version"]]}

    def wire(self, message: Message) -> bytes:
        """A message as its bytes, without the end of a line."""
        message = self._formed(message)
        said: Any = [message] if self._spec.get("batch") else message
        text = json.dumps(said, ensure_ascii=bool(self._spec.get("ascii")), indent=self._spec.get("indent"))
        if self._spec.get("raw_tabs"):
            text = text.replace("\\t", "\t")
        text = self._spec.get("prefix", "") + text + self._spec.get("suffix", "")
        encoded = text.encode(self._spec.get("encoding", "utf-8"), "replace")
        head = f"Content-Length: {len(encoded)}\r\n\r\n" if self._spec.get("content_length") else ""
        return head.encode() + encoded

    def _formed(self, message: Message) -> Message:
        """A message as its serialiser writes it."""
        if self._spec.get("string_id") and "method" not in message:
            message = {**message, "id": str(message["id"])}
        if self._spec.get("null_error") and ("result" in message) != ("error" in message):
            message = {"result": None, "error": None, **message}
        if self._spec.get("float_id") and isinstance(message.get("id"), int):
            message = {**message, "id": float(message["id"])}
        if self._spec.get("all_keys"):
            nulls = ("id", "params") if "method" in message else ("method", "params", "error")
            message = {**dict.fromkeys(nulls), **message}
        if "jsonrpc" in self._spec:
            message = {**message, "jsonrpc": self._spec["jsonrpc"]}
            message = {key: value for key, value in message.items() if key != "jsonrpc" or value is not None}
        return _with_extras(message) if self._spec.get("extra") else message

    def _too_early(self, manner: str, number: object) -> list[Message]:
        if manner == "exits":
            raise BrokenError
        if manner == "silent":
            return []
        number = None if manner == "null-id" else number
        return [_error(number, -32002, "initialize must come first")]

    def _answer(self, message: Message) -> Message:
        method, number, params = message["method"], message["id"], message.get("params") or {}
        if method == self._spec["opening"]:
            return self._result(message, self._spec["hello"])
        if method == "ping":
            return self._result(message, {})
        if method == "tools/list":
            return self._page(message, params)
        if method == "tools/call" and params.get("name") in self._spec["results"]:
            return self._result(message, self._spec["results"][params["name"]])
        if method == "tools/call":
            return _error(number, -32602, f"Unknown tool: {params.get('name')}")
        side = self._spec.get("side", {}).get(method, {"error": "Method not found", "code": -32601})
        if side == "breaks":
            raise BrokenError
        if "error" in side:
            return _error(number, side["code"], side["error"])
        return self._result(message, side)

    def _page(self, message: Message, params: Message) -> Message:
        if self._spec.get("tools_error"):
            return _error(message["id"], -32603, self._spec["tools_error"])
        if steps := self._spec.get("steps"):
            taken = Path(steps["file"])
            count = taken.stat().st_size if taken.exists() else 0
            if count < steps["count"]:
                taken.write_text("." * (count + 1))
                return _error(message["id"], -32603, f"still loading, step {count + 1} of {steps['count']}")
        cursor = str(params.get("cursor") or "")
        if self._spec.get("endless") and cursor not in self._spec["pages"]:
            return self._result(message, {"tools": [], "nextCursor": f"more-{time.time_ns()}"})
        if cursor not in self._spec["pages"]:
            return _error(message["id"], -32602, "Invalid cursor")
        page = self._spec["pages"][cursor]
        if (form := self._spec.get("tools_as")) is None:
            return self._result(message, page)
        named = {each["name"]: each for each in page["tools"]}
        forms = {"object": {"tools": named}, "null": {"tools": None}, "nothing": {}, "bare": page["tools"]}
        return self._result(message, forms[form])

    def _result(self, message: Message, result: Any) -> Message:
        if self._spec["opening"] == "server/discover" and isinstance(result, dict):
            cached = {"cacheScope": "private", "ttlMs": 0} if message["method"] in _LISTS else {}
            meta = {"_meta": self._spec["meta"]} if self._spec.get("meta") else {}
            result = {"resultType": "complete", **meta, **cached, **result}
        if isinstance(result, dict) and "odd_error" in result:
            return {"jsonrpc": "2.0", "id": message["id"], "error": result["odd_error"]}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def _error(number: object, code: int, text: str, data: Any = None) -> Message:
    more = {} if data is None else {"data": data}
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text, **more}}


def _cancelled(number: object) -> Message:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}


def _with_extras(message: Message) -> Message:
    """The message with unknown fields in itself, its result, and each thing that the result lists."""
    message = {**message, **_EXTRA}
    if isinstance(result := message.get("result"), dict):
        lists = {key: value for key, value in result.items() if isinstance(value, list)}
        listed = {key: [_extended(each) for each in value] for key, value in lists.items()}
        objects = {key: _extended(result[key]) for key in ("capabilities", "serverInfo") if key in result}
        message["result"] = {**result, **listed, **objects, **_EXTRA}
    return message


def _extended(value: Any) -> Any:
    return {**value, **_EXTRA} if isinstance(value, dict) else value


def main(path: str) -> int:
    """Serve standard input and output until the input ends; return the exit status."""
    spec = json.loads(Path(path).read_text("utf-8"))
    if gate := spec.get("gate"):
        Path(f"{gate}.waits").touch()
        while not Path(gate).exists():  # a test opens it
            time.sleep(0.02)
    out, engine = sys.stdout.buffer, OddEngine(spec)
    out.write(spec.get("banner", "").encode())
    out.flush()
    end = spec.get("end", "\n").encode()
    for line in sys.stdin.buffer:
        try:
            messages = engine.hear(json.loads(line))
        except BrokenError:
            print("this server cannot do that", file=sys.stderr)
            return 3
        for _ in range(spec.get("flood", 0) // 80):
            sys.stderr.write("stderr " + "." * 72 + "\n")
        for message in messages:
            _write(out, spec.get("noise", "").encode() + engine.wire(message) + end, spec.get("piece"))
        ends = spec.get("ends_after")
        if ends and messages and json.loads(line).get("method") == ends["method"]:
            return int(ends["status"])
    return 0


def _write(out: Any, line: bytes, piece: int | None) -> None:
    for start in range(0, len(line), piece or len(line)):
        out.write(line[start : start + (piece or len(line))])
        out.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
