"""MCP servers and the model that calls them, for figures of their client.

``python -m benchmarks.tool_server PORT`` serves over HTTP: MCP of 2026-07-28 at ``/NAME/mcp``, a model of
OpenAI's chat completions at ``/v1``, and ``Counts`` at ``/counts``. A server whose name begins with ``late``
takes ``LATE`` seconds to open a connection. Without PORT it is such an MCP server on stdio.

At a message ``TOOL 11`` the model calls that tool eleven times at once. To the results it says ``done``, or
the first that is a failure. The tool ``echo`` returns its text. The tool ``meet`` does so once as many
callers as the text says have called it.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from .programs import own_server

ROOT = Path(__file__).resolve().parent.parent
VERSION = "2026-07-28"
LATE = 0.2
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [{"name": name, "description": name, "inputSchema": SCHEMA} for name in ("echo", "meet")]
RETURNED = ("text ", *"123456789")
"""How results begin that are no failures."""
INFO = {"io.modelcontextprotocol/serverInfo": {"name": "bench", "version": "1"}}


@dataclass(slots=True)
class Counts:
    """What came over HTTP since the last time, without the probes of the health.

    ``connections`` are those of TCP, ``openings`` those of MCP, ``connecting`` the seconds from the first
    opening to the last list of tools that was answered.
    """

    connections: int = 0
    openings: int = 0
    connecting: float = 0.0


@dataclass(slots=True)
class _State:
    peers: set[tuple[str, int]] = field(default_factory=set)
    openings: int = 0
    began: float = 0.0
    listed: float = 0.0
    met: int = 0
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def meet(self, callers: int) -> None:
        """Wait until so many have come, then let all go."""
        async with self.arrived:
            self.met += 1
            wanted = -(-self.met // callers) * callers
            self.arrived.notify_all()
            await self.arrived.wait_for(lambda: self.met >= wanted)


async def result_of(message: dict[str, Any], state: _State) -> dict[str, Any] | None:
    """The result of a request; None for a method that there is not."""
    cached = {"cacheScope": "private", "ttlMs": 0}
    whole = {"resultType": "complete", "_meta": INFO}
    match message["method"]:
        case "server/discover":
            return {**whole, **cached, "capabilities": {"tools": {}}, "supportedVersions": [VERSION]}
        case "tools/list":
            return {**whole, **cached, "tools": TOOLS}
        case "tools/call":
            text = message["params"]["arguments"]["text"]
            if message["params"]["name"] == "meet":
                await state.meet(int(text))
            return {**whole, "content": [{"type": "text", "text": text}]}
        case _:
            return None


async def response_to(message: dict[str, Any], state: _State) -> dict[str, Any]:
    """The response to a request."""
    about = {"jsonrpc": "2.0", "id": message["id"]}
    result = await result_of(message, state)
    if result is None:
        return {**about, "error": {"code": -32601, "message": "Method not found"}}
    return {**about, "result": result}


def app() -> Starlette:
    """All that is served over HTTP."""
    state = _State()

    async def mcp(request: Request) -> Response:
        message = await request.json()
        if "id" not in message:
            return Response(status_code=202)
        if "pallas-health" in request.headers.get("user-agent", ""):
            return JSONResponse(await response_to(message, state))
        assert request.client is not None
        state.peers.add((request.client.host, request.client.port))
        if message["method"] == "server/discover":
            state.openings += 1
            state.began = state.began or perf_counter()
            if request.path_params["name"].startswith("late"):
                await asyncio.sleep(LATE)
        response = await response_to(message, state)
        if message["method"] == "tools/list":
            state.listed = perf_counter()
        return JSONResponse(response, 404 if "error" in response else 200)

    async def counts(_: Request) -> Response:
        found = Counts(len(state.peers), state.openings, max(0.0, state.listed - state.began))
        state.peers.clear()
        state.openings, state.began = 0, 0.0
        return JSONResponse(asdict(found))

    return Starlette(
        routes=[
            Route("/{name}/mcp", mcp, methods=["POST"]),
            Route("/v1/chat/completions", _complete, methods=["POST"]),
            Route("/counts", counts),
        ]
    )


_numbers = itertools.count()


async def _complete(request: Request) -> Response:
    body = await request.json()
    last = body["messages"][-1]
    said = ""
    if last["role"] == "tool":
        results = [_text_of(each["content"]) for each in body["messages"] if each["role"] == "tool"]
        said = next((each for each in results if not each.startswith(RETURNED)), "done")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": said}]
    finish = "stop"
    if last["role"] != "tool":
        finish = "tool_calls"
        deltas.append({"tool_calls": [*_calls(_text_of(last["content"]))]})
    about = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    chunks.append({"choices": [], "usage": usage})

    async def lines() -> AsyncIterator[str]:
        for chunk in chunks:
            yield f"data: {json.dumps({**about, **chunk})}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


def _text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _calls(message: str) -> Iterator[dict[str, Any]]:
    """The calls that a message asks for; their texts differ, since an agent stops a call that repeats."""
    tool, number = message.split()
    meets = tool.endswith("__meet")
    for index in range(1 if meets else int(number)):
        text = number if meets else f"text {next(_numbers)}"
        function = {"name": tool, "arguments": json.dumps({"text": text})}
        yield {"index": index, "id": f"call_{next(_numbers)}", "type": "function", "function": function}


def tool_server() -> AbstractContextManager[str]:
    """The origin of one in a process of its own, ended with the block."""
    return own_server("benchmarks.tool_server")


def counts_of(origin: str) -> Counts:
    """What came since the last time."""
    return Counts(**httpx2.get(f"{origin}/counts", timeout=10.0).json())


async def stdio() -> None:
    """Answer on standard output what standard input asks, until that ends."""
    state = _State()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks: set[asyncio.Task[None]] = set()

    async def answer(message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(await response_to(message, state)) + "\n")
        sys.stdout.flush()

    while line := await reader.readline():
        message = json.loads(line)
        if "id" in message:
            tasks.add(task := asyncio.create_task(answer(message)))
            task.add_done_callback(tasks.discard)


def main() -> None:
    """Serve."""
    if sys.argv[1:]:
        uvicorn.run(app(), host="127.0.0.1", port=int(sys.argv[1]), log_config=None, access_log=False)
    else:
        asyncio.run(stdio())


if __name__ == "__main__":
    main()
