"""A stdio MCP server of the handshake versions that notifies without end; standard library only.

``progress`` sends ``times`` progress notifications that name a tool each, ``changed`` says as often that its
tools have changed; ``listed`` returns how often it was asked for its tools.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

COMMAND: Final = str(Path(__file__).resolve())
_NAMES: Final = ("progress", "changed", "listed")
_TOOLS: Final = [{"name": name, "inputSchema": {"type": "object"}} for name in _NAMES]


def _write(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def _notify(name: str, times: int, token: Any) -> None:
    for number in range(times):
        if name == "changed":
            _write(method="notifications/tools/list_changed")
        else:
            params = {"progressToken": token, "progress": number, "message": f"deep/tool{number}: started"}
            _write(method="notifications/progress", params=params)


def main() -> None:
    """Answer until stdin ends."""
    listed = 0
    for line in sys.stdin:
        message = json.loads(line)
        params = message.get("params") or {}
        result: dict[str, Any] = {}
        if message.get("method") == "initialize":
            version = params["protocolVersion"]
            info = {"name": "chatty", "version": "1"}
            capabilities = {"tools": {"listChanged": True}}
            result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
        elif message.get("method") == "tools/list":
            listed += 1
            result = {"tools": _TOOLS}
        elif message.get("method") == "tools/call":
            times = params.get("arguments", {}).get("times", 0)
            if params["name"] != "listed":
                _notify(params["name"], times, params.get("_meta", {}).get("progressToken"))
            result = {"content": [{"type": "text", "text": str(listed)}]}
        if "id" in message:
            _write(id=message["id"], result=result)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
