"""Providers of models on a local port: chat completions, Messages, Responses and Gemini, all streaming.

They answer as a test says and remember every request.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pallas.surfaces.listener import Listener, bind

MODELS = {
    "chat": "generic.qwen3",
    "openai": "openai.gpt-4.1",
    "messages": "anthropic.claude-haiku-4-5",
    "responses": "responses.gpt-5-mini",
    "gemini": "google.gemini-2.5-flash",
}
"""A model of each kind of provider."""

Kind = Literal["openai", "anthropic", "responses", "google"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model says: its reasoning, its text, and the tools it calls, by name with arguments."""

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    reasoning: str = ""
    tokens: int = 3
    """How many tokens the request is said to have had."""

    @property
    def usage(self) -> dict[str, int]:
        """In the form of chat completions."""
        return {"prompt_tokens": self.tokens, "completion_tokens": 2, "total_tokens": self.tokens + 2}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to a model."""

    kind: Kind
    body: dict[str, Any]
    headers: dict[str, str]
    port: int = 0
    """The caller's: it is the same for requests over one connection."""

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools that the model is shown."""
        return tuple((tool.get("function") or tool)["name"] for tool in self.body.get("tools") or ())

    @property
    def system(self) -> str:
        """What the model is told before the conversation."""
        if self.kind == "openai":
            return "".join(m["content"] for m in self.body["messages"] if m["role"] == "system")
        told = self.body.get("system", self.body.get("instructions", ""))
        return told if isinstance(told, str) else "".join(block["text"] for block in told)

    @property
    def said(self) -> str:
        """The last text of the user."""
        for message in reversed(self._messages()):
            if message.get("role") != "user":
                continue
            content = message["content"]
            texts = (
                [content]
                if isinstance(content, str)
                else [block["text"] for block in content if block.get("type") in ("text", "input_text")]
            )
            if texts:
                return str(texts[-1])
        return ""

    @property
    def results(self) -> tuple[str, ...]:
        """The results of tools since the user spoke last, as text."""
        found: list[str] = []
        for message in self._messages():
            if message.get("type") == "function_call_output":
                found.append(_text(message["output"]))
            elif message.get("role") == "tool":
                found.append(_text(message["content"]))
            elif message.get("role") == "user":
                blocks = message["content"] if isinstance(message["content"], list) else []
                given = [block for block in blocks if block.get("type") == "tool_result"]
                found = found + [_text(block["content"]) for block in given] if given else []
        return tuple(found)

    def _messages(self) -> list[dict[str, Any]]:
        name = {"responses": "input", "google": "contents"}.get(self.kind, "messages")
        return list(self.body[name])


Answer = Callable[[Asked], Reply]


def in_turn(*replies: Reply) -> Answer:
    """Answers a turn with these, one at each step of its loop; the last one again and again."""
    return lambda asked: replies[min(_steps(asked), len(replies) - 1)]


def _steps(asked: Asked) -> int:
    """How often the model has called tools since the user spoke."""
    steps = 0
    for message in asked._messages():
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        kinds = {block.get("type") for block in blocks} | {message.get("type")}
        kinds |= {name for part in message.get("parts", ()) for name in part}  # Google's
        if message.get("role") == "user" and not kinds & {"tool_result", "functionResponse"}:
            steps = 0
        elif message.get("tool_calls") or kinds & {"tool_use", "function_call", "functionCall"}:
            steps += 1
    return steps


@dataclass
class Provider:
    """A running provider: ``base`` has no path, ``asked`` are the requests in order."""

    answer: Answer = lambda asked: Reply("ok")
    base: str = ""
    asked: list[Asked] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)

    def config(self, model: str, **more: Any) -> dict[str, Any]:
        """Keys of the fast-agent configuration that make ``provider.model`` be asked here."""
        provider = model.partition(".")[0]
        base = self.base if provider in ("anthropic", "google") else f"{self.base}/v1"
        return {"default_model": model, provider: {"api_key": "none", "base_url": base, **more}}

    async def _hear(self, request: Request, kind: Kind) -> tuple[Asked, Reply] | Response:
        port = request.client.port if request.client is not None else 0
        asked = Asked(kind, json.loads(await request.body()), dict(request.headers), port)
        self.asked.append(asked)
        return asked, self.answer(asked)

    async def openai(self, request: Request) -> Response:
        """``POST /v1/chat/completions``."""
        heard = await self._hear(request, "openai")
        return heard if isinstance(heard, Response) else _stream(_openai(*heard, self.numbers))

    async def anthropic(self, request: Request) -> Response:
        """``POST /v1/messages``."""
        heard = await self._hear(request, "anthropic")
        return heard if isinstance(heard, Response) else _stream(_anthropic(*heard, self.numbers))

    async def responses(self, request: Request) -> Response:
        """``POST /v1/responses``."""
        heard = await self._hear(request, "responses")
        return heard if isinstance(heard, Response) else _stream(_responses(*heard, self.numbers))

    async def google(self, request: Request) -> Response:
        """``POST /v1beta/models/MODEL:streamGenerateContent``."""
        heard = await self._hear(request, "google")
        return heard if isinstance(heard, Response) else _stream(_google(*heard))


@asynccontextmanager
async def provider(answer: Answer | None = None) -> AsyncIterator[Provider]:
    """A provider of all kinds on a free port of this loop."""
    running = Provider() if answer is None else Provider(answer)
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", running.openai, methods=["POST"]),
            Route("/v1/messages", running.anthropic, methods=["POST"]),
            Route("/v1/responses", running.responses, methods=["POST"]),
            Route("/v1beta/models/{call}", running.google, methods=["POST"]),
            Route("/{rest:path}", lambda request: JSONResponse({"error": "unknown"}, 404)),
        ]
    )
    listener = Listener(app, bind("127.0.0.1", 0, "model provider"))
    await listener.start()
    running.base = f"http://127.0.0.1:{listener.port}"
    try:
        yield running
    finally:
        await listener.stop()


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def _stream(lines: Iterator[str]) -> Response:
    return StreamingResponse(lines, media_type="text/event-stream")


def _halves(text: str) -> tuple[str, ...]:
    middle = len(text) // 2
    return tuple(part for part in (text[:middle], text[middle:]) if part)


def _openai(asked: Asked, reply: Reply, numbers: Iterator[int]) -> Iterator[str]:
    number = next(numbers)

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _data(
            {
                "id": f"c{number}",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": asked.body["model"],
                "choices": [choice],
            }
        )

    yield chunk({"role": "assistant"})
    for part in _halves(reply.reasoning):
        yield chunk({"reasoning_content": part})
    for part in _halves(reply.text):
        yield chunk({"content": part})
    for index, (name, arguments) in enumerate(reply.calls):
        function = {"name": name, "arguments": ""}
        head = {"index": index, "id": f"call_{number}_{index}", "type": "function", "function": function}
        yield chunk({"tool_calls": [head]})
        for part in _halves(json.dumps(dict(arguments))):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield chunk({}, "tool_calls" if reply.calls else "stop")
    yield _data(
        {
            "id": f"c{number}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": asked.body["model"],
            "choices": [],
            "usage": reply.usage,
        }
    )
    yield "data: [DONE]\n\n"


def _anthropic(asked: Asked, reply: Reply, numbers: Iterator[int]) -> Iterator[str]:
    number = next(numbers)
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if reply.reasoning:
        thought = [{"type": "thinking_delta", "thinking": part} for part in _halves(reply.reasoning)]
        thought.append({"type": "signature_delta", "signature": "sig"})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, thought))
    if reply.text:
        said = [{"type": "text_delta", "text": part} for part in _halves(reply.text)]
        blocks.append(({"type": "text", "text": ""}, said))
    for index, (name, arguments) in enumerate(reply.calls):
        head = {"type": "tool_use", "id": f"toolu_{number}_{index}", "name": name, "input": {}}
        parts = _halves(json.dumps(dict(arguments)))
        blocks.append((head, [{"type": "input_json_delta", "partial_json": part} for part in parts]))
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": asked.body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": reply.tokens, "output_tokens": 1},
    }
    yield _event({"type": "message_start", "message": message})
    for index, (head, deltas) in enumerate(blocks):
        yield _event({"type": "content_block_start", "index": index, "content_block": head})
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    reason = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": reason, "usage": {"output_tokens": 2}})
    yield _event({"type": "message_stop"})


def _responses(asked: Asked, reply: Reply, numbers: Iterator[int]) -> Iterator[str]:
    number = next(numbers)
    output: list[dict[str, Any]] = []
    if reply.text:
        part = {"type": "output_text", "text": reply.text, "annotations": []}
        output.append(
            {"type": "message", "id": f"m{number}", "role": "assistant", "status": "completed",
             "content": [part]}
        )  # fmt: skip
    for index, (name, arguments) in enumerate(reply.calls):
        output.append(
            {"type": "function_call", "id": f"f{number}_{index}", "call_id": f"call_{number}_{index}",
             "name": name, "arguments": json.dumps(dict(arguments)), "status": "completed"}
        )  # fmt: skip
    response: dict[str, Any] = {
        "id": f"r{number}", "object": "response", "created_at": 1, "model": asked.body["model"],
        "status": "in_progress", "output": [], "parallel_tool_calls": True, "tool_choice": "auto",
        "tools": [], "error": None, "incomplete_details": None, "instructions": None, "metadata": {},
        "temperature": None, "top_p": None,
    }  # fmt: skip
    steps = count()

    def event(kind: str, **more: Any) -> str:
        return _event({"type": kind, "sequence_number": next(steps), **more})

    yield event("response.created", response=response)
    for index, item in enumerate(output):
        empty = {**item, "status": "in_progress"}
        if item["type"] == "message":
            empty["content"] = []
        else:
            empty["arguments"] = ""
        yield event("response.output_item.added", output_index=index, item=empty)
        if item["type"] == "message":
            where = {"item_id": item["id"], "output_index": index, "content_index": 0}
            blank = {"type": "output_text", "text": "", "annotations": []}
            yield event("response.content_part.added", part=blank, **where)
            for text in _halves(reply.text):
                yield event("response.output_text.delta", delta=text, logprobs=[], **where)
            yield event("response.output_text.done", text=reply.text, logprobs=[], **where)
            yield event("response.content_part.done", part=item["content"][0], **where)
        else:
            where = {"item_id": item["id"], "output_index": index}
            yield event("response.function_call_arguments.delta", delta=item["arguments"], **where)
            yield event("response.function_call_arguments.done", arguments=item["arguments"], **where)
        yield event("response.output_item.done", output_index=index, item=item)
    usage = {
        "input_tokens": reply.tokens, "output_tokens": 2, "total_tokens": reply.tokens + 2,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    done = {**response, "status": "completed", "output": output, "usage": usage}
    yield event("response.completed", response=done)


def _google(asked: Asked, reply: Reply) -> Iterator[str]:
    parts = [{"text": text} for text in _halves(reply.text)]
    parts += [{"functionCall": {"name": name, "args": dict(given)}} for name, given in reply.calls]
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    usage = {
        "promptTokenCount": reply.tokens, "candidatesTokenCount": 2, "totalTokenCount": reply.tokens + 2,
    }  # fmt: skip
    yield _data({"candidates": [candidate], "usageMetadata": usage})


def _data(document: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(document)}\n\n"


def _event(document: Mapping[str, Any]) -> str:
    return f"event: {document['type']}\n{_data(document)}"
