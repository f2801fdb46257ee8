"""An agent that does as the message says, over real MCP on a real socket.

Messages it knows, else it echoes what it was told:

- ``work``: loop steps and a downstream call as progress, then the answer
- ``delegate``: progress of a sub-agent and its calls; tokens and a run id in the result's metadata
- ``recall``: everything that was said in this conversation, as far as the agent knows it
- ``hold``: progress and some text, then waits until ``release`` is called
- ``markdown``: an answer with a heading, a list, a table, code, a link and hostile markup
- ``count``: how many messages this conversation has had
- ``picture``: the kinds and sizes of the images that came along
- ``hostile``: terminal escapes in progress, text and answer
- ``big``: an answer of 2 MiB
- ``fault`` / ``crash``: an error result with the body of docs/connect.md#errors / an exception

``get_health`` answers with ``health``, and only once ``healthy`` is set; ``polls`` counts it, and ``rpc`` has
every JSON-RPC method that came. ``only`` makes it refuse the other era, ``wants_key`` everybody (401),
``key`` everybody without that bearer. ``bearers`` has the Authorization of each request, ``metas`` the
metadata of each call. With ``plain`` it takes a message and nothing else, as a stranger's server may.
"""

import asyncio
import base64
import json
import socket
from collections import Counter
from contextlib import suppress
from typing import Any, Literal, Self

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, TextContent
from starlette.responses import JSONResponse

from support.waiting import until

MARKDOWN = """# What was found

Three **customers** were hit:

- Acme
- Globex

| customer | amount |
|---|---|
| Acme | 12.00 |

```python
print("hello")
```

See [the page](https://example.invalid/page) and [bold red]this[/] <b>tag</b>.
"""
DELEGATED = (
    "echo step 1 (llm)",
    "echo step 2 (tool)",
    "research/ask: started",
    "research step 1 (tool)",
    "docs/search: started",
    "docs/search: completed",
    "vault/lookup: started",
    "vault/lookup: failed",
    "research/ask: completed",
    "echo step 3 (llm)",
)
HOSTILE = "\x1b]52;c;cm0gLXJmIC8=\x07 [@click=app.quit]quit[/] \u202egnp.exe"


class EchoAgent:
    """The server; use as ``async with``. It runs on the caller's loop, on a free port of 127.0.0.1."""

    def __init__(
        self,
        name: str = "echo",
        port: int = 0,
        *,
        only: Literal["", "modern", "handshake"] = "",
        plain: bool = False,
    ) -> None:
        self.name = name
        self.only = only
        self.plain = plain
        self.wants_key = False
        self.key = ""
        self.bearers: list[str] = []
        self.metas: list[dict[str, Any]] = []
        self.cancelled = 0
        self.held = asyncio.Event()
        self.health: dict[str, Any] | str = {"status": "ok", "timestamp": "2026-03-12T15:42:00Z"}
        self.healthy = asyncio.Event()
        self.healthy.set()
        self.polls = 0
        self.rpc: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self._released = asyncio.Event()
        self._counts: Counter[str] = Counter()
        self._said: dict[str, list[str]] = {}
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    async def __aenter__(self) -> Self:
        app = self._noting(_server(self).streamable_http_app())
        config = uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._server.capture_signals = suppress  # type: ignore[method-assign, assignment]  # pytest keeps ctrl+c
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        await until(lambda: self._server.started)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._released.set()
        self.healthy.set()
        self._server.should_exit = True
        self.hang_up()
        await asyncio.wait({self._task}, timeout=60)
        self._task.cancel()
        self._socket.close()

    def _noting(self, app: Any) -> Any:
        async def noting(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            modern = dict(scope["headers"]).get(b"mcp-protocol-version") == b"2026-07-28"
            refused = {"modern": not modern, "handshake": modern}.get(self.only, False)
            bearer = dict(scope["headers"]).get(b"authorization", b"").decode()
            self.bearers.append(bearer)
            wants_key = self.wants_key or (self.key != "" and bearer != f"Bearer {self.key}")
            if refused or wants_key:
                error: Any = {
                    "jsonrpc": "2.0",
                    "id": None,
                    "error": {"code": -32600, "message": "Bad Request"},
                }
                if wants_key:
                    error = {"error": "invalid_token", "error_description": "Authentication required"}
                await JSONResponse(error, 401 if wants_key else 400)(scope, receive, send)
                return

            async def noted() -> Any:
                message = await receive()
                with suppress(ValueError, AttributeError):
                    body = json.loads(message.get("body") or "{}")
                    self.rpc.append(body.get("method", ""))
                    if body.get("method") == "tools/call":
                        self.metas.append(body["params"].get("_meta", {}))
                return message

            await app(scope, noted, send)

        return noting

    def hang_up(self) -> None:
        """Cut every connection, as a process that dies does."""
        for connection in list(self._server.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()

    def release(self) -> None:
        """Let a held call, and all to come, go on."""
        self._released.set()

    async def answer(self, arguments: dict[str, Any], ctx: Context[Any, Any]) -> Any:
        """What ``send_message`` returns."""
        self.calls.append(arguments)
        handle = arguments["conversation_id"] or ""
        said = self._said.setdefault(handle, [row["content"] for row in arguments["history"]])
        said.append(arguments["message"])
        message: str = arguments["message"]
        count = 0

        async def tell(text: str, *, ended: bool = False) -> None:
            nonlocal count
            count += 1
            await ctx.report_progress(count, count if ended else None, text)

        async def write(text: str) -> None:
            if arguments["stream_text"]:
                await tell(f"{self.name} » {text}")

        match message.split()[0]:
            case "recall":
                return " | ".join(said[:-1]) or "nothing"
            case "delegate":
                for line in DELEGATED:
                    await tell(line, ended=not line.endswith(("started", ")")))
                await write("All of them.")
                return CallToolResult(
                    content=[TextContent(type="text", text="All of them.")],
                    _meta={
                        "local.pallas/runId": "run-of-echo",
                        "local.pallas/usage": {"inputTokens": 1000, "outputTokens": 100},
                        "local.pallas/steps": 3,
                        "local.pallas/tools": 3,
                    },
                )
            case "work":
                await self._work(tell, write)
                return f"did the work: {message}"
            case "hold":
                await tell(f"{self.name} step 1 (llm)")
                await write("so far ")
                await write("so good")
                self.held.set()
                try:
                    await self._released.wait()
                except asyncio.CancelledError:
                    self.cancelled += 1
                    raise
                return "released"
            case "markdown":
                for line in MARKDOWN.splitlines(keepends=True):
                    await write(line)
                return MARKDOWN
            case "count":
                self._counts[arguments["conversation_id"] or ""] += 1
                return f"message {self._counts[arguments['conversation_id'] or '']} of this conversation"
            case "picture":
                return "; ".join(
                    f"{image['mime_type']} {len(base64.b64decode(image['data']))}"
                    for image in arguments["images"]
                )
            case "hostile":
                await tell(f"evil/{HOSTILE}: started")
                await write(HOSTILE)
                return HOSTILE
            case "big":
                await tell(f"{self.name} step 1 (llm)")
                return "x" * (2 * 1024 * 1024)
            case "fault":
                body = {
                    "error": "the model is overloaded; try again in a minute",
                    "code": -32002,
                    "data": {"type": "UPSTREAM", "retryable": True},
                }
                return CallToolResult(
                    content=[TextContent(type="text", text=json.dumps(body))], is_error=True
                )
            case "crash":
                raise ValueError("boom in the agent")
        return f"you said: {message}"

    async def _work(self, tell: Any, write: Any) -> None:
        await tell(f"{self.name} step 1 (llm)")
        await write("Let me look.")
        await tell(f"{self.name} step 2 (tool)")
        await tell("docs/search: started")
        await tell("docs/search: completed", ended=True)
        await tell(f"{self.name} step 3 (llm)")


def _server(agent: EchoAgent) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer(agent.name, log_level="ERROR")

    async def take(message: str, ctx: Context[Any, Any]) -> Any:
        """Send a message."""
        arguments = {
            "message": message,
            "images": [],
            "conversation_id": None,
            "stream_text": False,
            "history": [],
        }
        return await agent.answer(arguments, ctx)

    if agent.plain:
        server.tool(name="send_message", structured_output=False)(take)
    else:
        _full(server, agent)

    @server.tool(structured_output=False)
    async def get_health() -> str:
        """Tell how it is."""
        agent.polls += 1
        await agent.healthy.wait()
        return agent.health if isinstance(agent.health, str) else json.dumps(agent.health)

    return server


def _full(server: MCPServer[Any], agent: EchoAgent) -> None:
    @server.tool(structured_output=False)
    async def send_message(
        message: str,
        ctx: Context[Any, Any],
        images: list[dict[str, str]] | None = None,
        conversation_id: str | None = None,
        stream_text: bool = False,
        history: list[dict[str, Any]] | None = None,
    ) -> Any:
        """Send a message."""
        arguments = {
            "message": message,
            "images": images or [],
            "conversation_id": conversation_id,
            "stream_text": stream_text,
            "history": history or [],
        }
        return await agent.answer(arguments, ctx)
