"""A stdio MCP server in both protocol versions that lists what ``surface.json`` beside it says now.

Each change of the file is followed by ``notifications/tools/list_changed``, and by one for each resource of
its ``contents`` that a client follows. Each call is a line of ``calls.log``.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from stdio_server import StdioServer  # type: ignore[import-not-found]

SURFACE = Path("surface.json")


class ChangingServer(StdioServer):  # type: ignore[misc]
    """Lists what the file says."""

    def __init__(self) -> None:
        super().__init__("changing")
        self._listeners: dict[Any, list[str]] = {}
        self._followed: list[str] = []
        self._is_modern = False

    def watch(self) -> None:
        """Notify of each change, for ever."""
        seen = SURFACE.stat().st_mtime_ns
        while True:
            time.sleep(0.02)
            now = SURFACE.stat().st_mtime_ns
            if now == seen:
                continue
            seen = now
            if not self._is_modern:
                self._write(method="notifications/tools/list_changed")
            for uri in self._followed:
                self._write(method="notifications/resources/updated", params={"uri": uri})
            for listener, uris in self._listeners.items():
                meta = {"io.modelcontextprotocol/subscriptionId": listener}
                self._write(method="notifications/tools/list_changed", params={"_meta": meta})
                for uri in uris:
                    params = {"uri": uri, "_meta": meta}
                    self._write(method="notifications/resources/updated", params=params)

    def _reply(self, message: dict[str, Any], result: dict[str, Any]) -> None:
        surface, method = json.loads(SURFACE.read_text("utf-8")), message["method"]
        if method in ("tools/list", "prompts/list", "resources/list"):
            kind = method.split("/")[0]
            result = {**result, kind: surface.get(kind, [])}
        elif method in ("initialize", "server/discover"):
            capabilities = {**result["capabilities"], "tools": {"listChanged": True}}
            if "contents" in surface:
                capabilities["resources"] = {"subscribe": True}
            result = {**result, "capabilities": capabilities, "instructions": surface.get("instructions")}
            self._is_modern = method == "server/discover"
        super()._reply(message, {key: value for key, value in result.items() if value is not None})

    def _answer(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message.get("params") or {}
        if method == "subscriptions/listen":
            uris = params["notifications"].get("resourceSubscriptions") or []
            self._listeners[message["id"]] = uris
        if method == "resources/subscribe":
            self._followed.append(params["uri"])
            self._reply(message, {})
        elif method == "resources/read":
            text = json.loads(SURFACE.read_text("utf-8"))["contents"][params["uri"]]
            cached = {"cacheScope": "private", "ttlMs": 0} if self._is_modern else {}
            self._reply(message, {**cached, "contents": [{"uri": params["uri"], "text": text}]})
        else:
            super()._answer(message)

    def _call(self, message: dict[str, Any]) -> None:
        name = message["params"]["name"]
        with Path("calls.log").open("a", encoding="utf-8") as log:
            log.write(f"{name}\n")
        text = [{"type": "text", "text": f"{name} was called"}]
        StdioServer._reply(self, message, {"content": text, "isError": False})


if __name__ == "__main__":
    server = ChangingServer()
    threading.Thread(target=server.watch, daemon=True).start()
    server.run()
    sys.exit()
