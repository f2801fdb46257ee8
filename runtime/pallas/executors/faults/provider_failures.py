"""Answers of a model provider that fails, in the form of the one that is asked."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Literal

import httpx2
import msgspec

from pallas.executors.replay.replay import wants_stream
from pallas.recordings.event_stream import events_of

Form = Literal["anthropic", "google", "responses", "chat"]

MARK: Final = "injected fault"
"""Is in the text of each error, so that nobody takes it for a real one."""
TEXT: Final = "This answer breaks off in the middle, since a fault was injected into it. " * 4
_ERRORS: Final[Mapping[int, tuple[str, str, str, str]]] = {
    401: ("invalid x-api-key", "authentication_error", "invalid_api_key", "UNAUTHENTICATED"),
    429: ("too many requests", "rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED"),
    500: ("internal server error", "api_error", "server_error", "INTERNAL"),
}
"""Text, type of Anthropic's, code of OpenAI's and status of Google's error."""
_JSON, _EVENTS = "application/json", "text/event-stream"
_GARBAGE: Final = f"<html><body>502 {MARK}"
GARBAGE: Final = _GARBAGE.encode()
"""What is not JSON."""


def status_answer(status: int, retry_after: float | None, request: httpx2.Request) -> httpx2.Response:
    """An error with an HTTP status."""
    text, kind, code, name = _ERRORS[status]
    message = f"{text} ({MARK})"
    document: Any
    match _form(request):
        case "anthropic":
            document = {"type": "error", "error": {"type": kind, "message": message}}
        case "google":
            document = {"error": {"code": status, "message": message, "status": name}}
        case _:
            document = {"error": {"message": message, "type": code, "param": None, "code": code}}
    return status_response(status, retry_after, document, request)


def status_response(
    status: int, retry_after: float | None, document: Any, request: httpx2.Request
) -> httpx2.Response:
    """An HTTP error with a document as JSON."""
    again = {"retry-after": f"{retry_after:g}"} if retry_after is not None else {}
    body = msgspec.json.encode(document)
    return httpx2.Response(status, headers={"content-type": _JSON, **again}, content=body, request=request)


def garbage_answer(request: httpx2.Request) -> httpx2.Response:
    """An answer that cannot be read: neither JSON nor events of JSON."""
    if not wants_stream(request):
        return garbage_response(request)
    body = f'data: {{"{_GARBAGE}\n\n'.encode()
    return httpx2.Response(200, headers={"content-type": _EVENTS}, stream=_WholeStream(body), request=request)


def garbage_response(request: httpx2.Request) -> httpx2.Response:
    """What says that it is JSON, and is not."""
    headers = {"content-type": _JSON}
    return httpx2.Response(200, headers=headers, stream=_WholeStream(GARBAGE), request=request)


def cut_answer(request: httpx2.Request) -> httpx2.Response:
    """The first half of an answer; then reading it raises httpx2.RemoteProtocolError."""
    document = _answer(_form(request))
    if not wants_stream(request):
        body = msgspec.json.encode(document)
        return cut_response(body[: len(body) // 2], _JSON, request)
    events = events_of(document)
    return cut_response("".join(events[: len(events) // 2]).encode(), _EVENTS, request)


def cut_response(body: bytes, content_type: str, request: httpx2.Request) -> httpx2.Response:
    """A body that never ends: after it reading raises httpx2.RemoteProtocolError."""
    stream = _CutStream(body)
    return httpx2.Response(200, headers={"content-type": content_type}, stream=stream, request=request)


class _WholeStream(httpx2.AsyncByteStream):
    """A body that is read as one from the network is: with ``content`` it would count as read already."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body


class _CutStream(httpx2.AsyncByteStream):
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body
        raise httpx2.RemoteProtocolError("peer closed connection without sending complete message body")


def _form(request: httpx2.Request) -> Form:
    path = request.url.path
    if "enerateContent" in path:
        return "google"
    if path.endswith("/messages"):
        return "anthropic"
    return "responses" if path.endswith("/responses") else "chat"


def _answer(form: Form) -> dict[str, Any]:
    head: dict[str, Any]
    match form:
        case "anthropic":
            content = [{"type": "text", "text": TEXT}]
            usage = {"input_tokens": 1, "output_tokens": 1}
            head = {"id": "msg_fault", "type": "message", "role": "assistant", "model": MARK}
            end = {"stop_reason": "end_turn", "stop_sequence": None}
            return {**head, "content": content, **end, "usage": usage}
        case "google":
            return {"candidates": [{"content": {"role": "model", "parts": [{"text": TEXT}]}, "index": 0}]}
        case "responses":
            part = {"type": "output_text", "text": TEXT, "annotations": []}
            item = {"id": "msg_fault", "type": "message", "role": "assistant", "status": "completed"}
            head = {"id": "resp_fault", "object": "response", "created_at": 1, "model": MARK}
            rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
            return {**head, **rest, "status": "completed", "output": [{**item, "content": [part]}]}
        case _:
            message = {"role": "assistant", "content": TEXT}
            head = {"id": "fault", "object": "chat.completion", "created": 1, "model": MARK}
            return {**head, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
