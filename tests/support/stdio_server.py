"""A stdio MCP server of the standard library alone, in both protocol versions, with the decorator of the SDK.

A project of a test gets this file beside its own servers: importing the SDK takes a second of processor time
for every process that is started. Servers that need progress or resources use the SDK.
``tests/contract/test_stdio_server.py`` holds it to what ``MCPServer`` says on the wire with such tools.
"""

import json
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

_TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}
_LEGACY: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
_MODERN: Final = "2026-07-28"
_VERSION: Final = "io.modelcontextprotocol/protocolVersion"


class RefusedError(Exception):
    """Raised by a tool: the call is answered with a JSON-RPC error, as by ``MCPError`` of the SDK."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message


class FailedError(Exception):
    """Raised by a tool: the result is an error with this text and nothing else."""


class StdioServer:
    """Tools that answer on standard output what standard input asks, each call in a thread of its own."""

    def __init__(self, name: str, *, instructions: str = "") -> None:
        self._info = {"name": name, "version": ""}
        self._more = {"instructions": instructions} if instructions else {}
        self._tools: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {}
        self._cancelled: set[object] = set()
        self._lock = threading.Lock()
        self._call_of_thread = threading.local()

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata of the call that the tool answers."""
        found: dict[str, Any] = self._call_of_thread.meta
        return found

    def tool(
        self, *, name: str = "", description: str = "", structured_output: bool = True
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Add a function; its name, docstring and annotations describe it.

        It returns text, or without ``structured_output`` a block of content, such as a picture.
        """

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self.add_tool(function, name=name, description=description, structured_output=structured_output)
            return function

        return add

    def add_tool(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        description: str = "",
        structured_output: bool = True,
        input_schema: dict[str, Any] | None = None,
        annotations: dict[str, Any] | None = None,
    ) -> None:
        """Add a function under a name, a description or with a schema of its own, or with hints."""
        name = name or function.__name__
        kinds = {key: kind for key, kind in function.__annotations__.items() if key != "return"}
        defaults = dict(zip([*kinds][::-1], (function.__defaults__ or ())[::-1], strict=False))
        fields = {
            key: {
                **({"default": defaults[key]} if key in defaults else {}),
                "title": key.title(),
                "type": _TYPES[kind],
            }
            for key, kind in kinds.items()
        }
        required = [key for key in fields if key not in defaults]
        described: dict[str, Any] = {
            "name": name,
            "description": description or (function.__doc__ or "").strip(),
            "inputSchema": input_schema
            or {
                "type": "object",
                "properties": fields,
                **({"required": required} if required else {}),
                "title": f"{function.__name__}Arguments",
            },
        }
        if structured_output:
            described["outputSchema"] = {
                "type": "object",
                "properties": {"result": {"title": "Result", "type": "string"}},
                "required": ["result"],
                "title": f"{function.__name__}Output",
            }
        if annotations:
            described["annotations"] = annotations
        self._tools[name] = (function, described)

    def run(self) -> None:
        """Answer until standard input ends."""
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if message.get("method") == "notifications/cancelled":
                self._cancelled.add(message["params"]["requestId"])
            elif message.get("method") == "tools/call":
                threading.Thread(target=self._call, args=(message,), daemon=True).start()
            elif "id" in message:
                self._answer(message)

    def _answer(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message.get("params") or {}
        if method == "subscriptions/listen":  # it is answered when the connection ends
            told = {"_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}}
            self._write(
                method="notifications/subscriptions/acknowledged",
                params={**told, "notifications": params["notifications"]},
            )
            return
        cached = {"cacheScope": "private", "ttlMs": 0} if _is_modern(message) else {}
        changes = {"listChanged": bool(cached)}
        can = {"prompts": changes, "resources": {"subscribe": bool(cached), **changes}, "tools": changes}
        results: dict[str, dict[str, Any]] = {
            "server/discover": {
                **cached,
                **self._more,
                "capabilities": can,
                "supportedVersions": [_MODERN],
            },
            "initialize": {
                **self._more,
                "protocolVersion": _known(params.get("protocolVersion")),
                "capabilities": can,
                "serverInfo": self._info,
            },
            "ping": {},
            "tools/list": {**cached, "tools": [described for _, described in self._tools.values()]},
            "prompts/list": {**cached, "prompts": []},
            "resources/list": {**cached, "resources": []},
        }
        if method in results:
            self._reply(message, results[method])
        else:
            self._write(
                id=message["id"], error={"code": -32601, "message": "Method not found", "data": method}
            )

    def _call(self, message: dict[str, Any]) -> None:
        name, arguments = message["params"]["name"], message["params"].get("arguments") or {}
        self._call_of_thread.meta = message["params"].get("_meta") or {}
        text: Any = f"Unknown tool: {name}"
        more = {}
        if name in self._tools:
            function, described = self._tools[name]
            try:
                text = function(**arguments)
                if "outputSchema" in described:
                    more = {"structuredContent": {"result": text}}
            except RefusedError as refused:
                self._write(id=message["id"], error={"code": refused.code, "message": refused.message})
                return
            except FailedError as failed:
                text, name = str(failed), ""
            except Exception:  # an answer to the caller, who sees no more of it
                text, name = f"Error executing tool {name}", ""
        if message["id"] not in self._cancelled:
            content = [text if isinstance(text, dict) else {"type": "text", "text": text}]
            self._reply(message, {"content": content, "isError": name not in self._tools, **more})

    def _reply(self, message: dict[str, Any], result: dict[str, Any]) -> None:
        if _is_modern(message):
            meta = {"io.modelcontextprotocol/serverInfo": self._info}
            result = {**result, "resultType": "complete", "_meta": meta}
        self._write(id=message["id"], result=result)

    def _write(self, **message: Any) -> None:
        with self._lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()


def _is_modern(message: dict[str, Any]) -> bool:
    params = message.get("params") or {}
    return (params.get("_meta") or {}).get(_VERSION) == _MODERN


def _known(version: object) -> object:
    return version if version in _LEGACY else _LEGACY[-1]
