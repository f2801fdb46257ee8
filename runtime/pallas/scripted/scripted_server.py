"""The HTTP server: OpenAI's chat completions, answered from a script."""

import asyncio
import json
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from time import time
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from pallas.surfaces.host_guard import HostOriginGuard

from .openai_wire import Head, answer_of, chunks, completion, error_body
from .script_file import load_script
from .script_rules import Refusal, Script, ScriptRule, When
from .scripted_conversation import BadRequest, ScriptedConversation, read_conversation
from .template import Facts

__all__ = ["RequestRecord", "load_script", "record_of", "scripted_app"]

log = logging.getLogger(__name__)

MAX_BODY: Final = 8 * 1024 * 1024
KEPT: Final = 200
# 200 bodies with a picture each would fill the memory of a small machine.
KEPT_BYTES: Final = 32 * 1024 * 1024
_CLIENT_GONE: Final = 499


def find_rule(script: Script, seen: ScriptedConversation) -> tuple[ScriptRule, re.Match[str] | None]:
    """The first rule that fits, with the match of its regex where it has one."""
    subject = _Subject(seen)
    for rule in script.rules:
        fits, match = subject.fits(rule.when)
        if fits:
            return rule, match
    raise LookupError("a script ends with a rule that fits everything")


class _Subject:
    """A conversation with its texts casefolded once, however many rules look at them."""

    def __init__(self, seen: ScriptedConversation) -> None:
        self._seen, self._newest = seen, seen.newest
        self._text, self._user = self._newest.casefold(), seen.user.casefold()
        self._system = seen.system.casefold()

    def fits(self, when: When) -> tuple[bool, re.Match[str] | None]:
        seen = self._seen
        plain = (
            when.last in (None, seen.last)
            and when.model in (None, seen.model)
            and (when.tool is None or any(result.tool == when.tool for result in seen.results))
            and when.images in (None, seen.images > 0)
            and (when.text or "") in self._text
            and (when.user or "") in self._user
            and (when.system or "") in self._system
        )
        if not plain or when.pattern is None:
            return plain, None
        match = when.pattern.search(self._newest)
        return match is not None, match


@dataclass(slots=True)
class RequestRecord:
    """A record of the server's requests, for tests; not readable over HTTP.

    ``calls`` counts all completions requested, ``active`` those being answered now. The last 200 bodies are
    kept, fewer when they are large; headers, and so keys, are not kept.
    """

    calls: int = 0
    active: int = 0
    _kept: deque[tuple[Any, int]] = field(default_factory=deque)
    _size: int = 0

    @property
    def requests(self) -> tuple[Any, ...]:
        """The bodies as they were sent, oldest first."""
        return tuple(body for body, _ in self._kept)

    def add(self, body: Any, size: int) -> None:
        """Keep a body of ``size`` bytes, and drop the oldest beyond the limits."""
        self.calls += 1
        self._kept.append((body, size))
        self._size += size
        while len(self._kept) > KEPT or (self._size > KEPT_BYTES and len(self._kept) > 1):
            self._size -= self._kept.popleft()[1]

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Count a completion as active within the block."""
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1


def scripted_app(script: Script) -> Starlette:
    """The server as an ASGI app. It answers to localhost names only, on any address it is bound to."""
    record = RequestRecord()
    server = _Server(script, record)
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", server.complete, methods=["POST"]),
            Route("/v1/models", server.models),
            Route("/healthz", _healthz),
        ],
        middleware=[Middleware(HostOriginGuard, allowed_hosts=())],
        exception_handlers={404: _no_such_path, 405: _no_such_path},
    )
    app.state.record = record
    app.state.server = server
    return app


def replace_script(app: Starlette, script: Script) -> None:
    """Let the app made by ``scripted_app`` use ``script`` from the next request on."""
    app.state.server.script = script


def record_of(app: Starlette) -> RequestRecord:
    """Return the record of the app made by ``scripted_app``."""
    record = app.state.record
    assert isinstance(record, RequestRecord)
    return record


class _TooLarge(Exception):
    pass


class _Server:
    def __init__(self, script: Script, record: RequestRecord) -> None:
        self.script, self._record = script, record
        self._numbers = count(1)

    async def models(self, request: Request) -> Response:
        listed = [
            {"id": name, "object": "model", "created": 0, "owned_by": "pallas"} for name in self.script.models
        ]
        return _json({"object": "list", "data": listed})

    async def complete(self, request: Request) -> Response:
        try:
            raw = await _body(request)
            body = json.loads(raw)
            seen = read_conversation(body)
        except ClientDisconnect:
            return Response(status_code=_CLIENT_GONE)
        except _TooLarge:
            return _error(f"the request is larger than {MAX_BODY // 2**20} MiB", 413)
        except BadRequest as refused:
            return _error(str(refused), 400)
        except (ValueError, RecursionError):
            return _error("the body is not JSON", 400)
        self._record.add(body, len(raw))
        rule, match = find_rule(self.script, seen)
        log.debug("answered by %s", rule.where)
        facts = Facts(seen, match)
        with self._record.answering():
            if rule.delay and await _gone(request, rule.delay):
                return Response(status_code=_CLIENT_GONE)
        if rule.error:
            return _refused(rule.error, facts)
        answer = answer_of(rule, facts)
        head = Head(f"chatcmpl-{next(self._numbers)}", int(time()), seen.model)
        if not seen.stream:
            return _json(completion(head, answer))
        events = self._paced(rule, chunks(head, answer, usage=seen.include_usage))
        return StreamingResponse(
            events, media_type="text/event-stream", headers={"cache-control": "no-cache"}
        )

    async def _paced(self, rule: ScriptRule, events: Iterator[bytes]) -> AsyncIterator[bytes]:
        # A client that disconnects ends the response, and with it the wait here.
        with self._record.answering():
            for number, event in enumerate(events):
                if number and rule.pace:
                    await asyncio.sleep(rule.pace)
                yield event


async def _body(request: Request) -> bytes:
    """The whole body. Raises _TooLarge before more than the limit is kept."""
    data = bytearray()
    async for part in request.stream():
        if len(data) + len(part) > MAX_BODY:
            raise _TooLarge
        data += part
    return bytes(data)


async def _gone(request: Request, seconds: float) -> bool:
    """Return whether the client disconnects within ``seconds``; returns as soon as it does."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while (await request.receive())["type"] != "http.disconnect":
                pass
            return True
    return False


async def _healthz(request: Request) -> Response:
    return _json({"status": "ok"})


async def _no_such_path(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return _error("ask POST /v1/chat/completions, GET /v1/models or GET /healthz", status)


def _refused(refusal: Refusal, facts: Facts) -> Response:
    headers = {} if refusal.retry_after is None else {"retry-after": f"{refusal.retry_after:g}"}
    return _error(refusal.message.render(facts), refusal.status, headers)


def _error(message: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return _json(error_body(message, status), status, headers)


def _json(body: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    # Escaped to ASCII: half of a surrogate pair, which a template may cut, is no UTF-8.
    return Response(json.dumps(body), status, headers, media_type="application/json")
