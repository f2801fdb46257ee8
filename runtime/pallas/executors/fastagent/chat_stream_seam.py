"""Streamed chat completions of OpenAI's API, sent and read without what OpenAI's library does for each call.

The library builds each request's options, headers and URL, sends it through three layers of HTTP client, and
reads the answer through four nested generators, with a look at the type of each field of each piece. Here
headers and URL are prepared once for each client, and pieces of text come straight from the connection. What
is not a plain stream (errors, redirects, encoded answers, unusual parameters) goes through the library, so
its errors are those that callers know; so does every request while an interceptor is asked first. Both ways
read the events with the same reader (``model_client.chat_answer``).

``tests/contract/test_chat_stream_seam.py`` compares both.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from math import isfinite
from time import monotonic
from typing import Any, Final, Self

import aiohttp
import httpx2
import msgspec
from openai import APIConnectionError, APITimeoutError, AsyncOpenAI, AsyncStream
from openai._models import FinalRequestOptions, construct_type
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import Choice, ChoiceDelta

from pallas.aiohttp_transport import (
    AiohttpTransport,
    mapped_errors,
    read_rest,
    timeouts,
)
from pallas.bounds import MAX_STREAM, in_mib
from pallas.bounds.bodies import TooLarge, accept_bounded_encodings
from pallas.executors.model_client.answer_reader import Event
from pallas.executors.model_client.chat_answer import ChatAnswer
from pallas.executors.model_client.checked_answer import check_answer
from pallas.executors.model_client.event_lines import EventLines, is_end
from pallas.executors.model_client.provider_connections import PooledClient, limit_answer, refuse_other_origin
from pallas.executors.model_client.step_observer import STEP, AnswerRecord, note_response
from pallas.telemetry.open_step import OpenStep
from pallas.telemetry.step_record import current_step

_ELSEWHERE: Final = ("extra_headers", "extra_query", "timeout")
"""Parameters of the library's call that change more than the body."""
_OMITTED: Final = frozenset({"NotGiven", "Omit"})
_TURN_S: Final = 0.005
"""Seconds of reading pieces that have arrived already, after which other tasks run."""
_EVENT_STREAM: Final = "text/event-stream"

_PLAIN: Final = frozenset({str, int, type(None)})
"""Types of values that the library passes on unchanged, whatever the field."""
_set: Final = object.__setattr__

_OWN_WAYS: Final = ("_provider_runtime", "_workload_identity_auth", "_api_key_provider")
"""What changes each request of a client, or asks for its key each time, where it is not None."""

type Create = Callable[..., Awaitable[Any]]


def send_streams_directly(client: AsyncOpenAI, pool: PooledClient) -> None:
    """Make ``client.chat.completions.create`` send plain streams itself, over ``pool``."""
    if type(client) is not AsyncOpenAI or any(getattr(client, name) is not None for name in _OWN_WAYS):
        return
    completions: Any = client.chat.completions
    completions.create = _ChatCompletions(client, pool, completions.create).create


class _ChatCompletions:
    """The chat completions of one client: its address and credential do not change."""

    def __init__(self, client: AsyncOpenAI, pool: PooledClient, create: Create) -> None:
        self._client = client
        self._transport: AiohttpTransport = pool.transport
        self._create = create
        options = FinalRequestOptions.construct(
            method="post", url="/chat/completions", json_data={}, security={"bearer_auth": True}
        )
        request = client._build_request(options)
        accept_bounded_encodings(request)
        self._url = request.url
        del request.headers["content-length"]
        self._headers = request.headers.multi_items()
        self._extensions = request.extensions
        self._timeout = timeouts(request.extensions.get("timeout", {}))

    async def create(self, **arguments: Any) -> Any:
        """As the library's, whose errors it raises."""
        body = None
        is_intercepted = self._transport.interceptor() is not None
        if arguments.get("stream") is True and not self._url.userinfo and not is_intercepted:
            body = _body_of(arguments)
        if body is None:
            return await self._create(**arguments)
        step = current_step()
        if step is not None:
            url, headers = str(self._url), self._headers
            step.send(len(body), lambda: (url, headers, body), url)
        try:
            response = await self._transport.send("POST", str(self._url), self._headers, body, self._timeout)
        except httpx2.TimeoutException as error:
            raise APITimeoutError(request=self._request(body)) from error
        except httpx2.TransportError as error:
            raise APIConnectionError(request=self._request(body)) from error
        if response.status == 200 and _is_plain_stream(response):
            if step is not None:
                step.answered(200)
            return CompletionStream(response, self._transport, step, self._request)
        return await self._through_library(response, body, step, arguments)

    def _request(self, body: bytes = b"") -> httpx2.Request:
        return httpx2.Request(
            "POST", self._url, headers=self._headers, content=body, extensions=self._extensions
        )

    async def _through_library(
        self,
        response: aiohttp.ClientResponse,
        body: bytes,
        step: OpenStep | None,
        arguments: dict[str, Any],
    ) -> Any:
        request = self._request(body)
        request.extensions = {**request.extensions, STEP: step}
        answer = self._transport.as_httpx(response, request)
        await limit_answer(answer)
        await note_response(answer)
        if answer.is_redirect:  # nothing was done yet where it was sent to
            await answer.aclose()
            await refuse_other_origin(answer)
            return await self._create(**arguments)
        if not answer.is_success:
            await answer.aread()
            raise self._client._make_status_error_from_response(answer)
        await check_answer(answer)
        return AsyncStream(cast_to=ChatCompletionChunk, response=answer, client=self._client)


def _body_of(arguments: dict[str, Any]) -> bytes | None:
    """Return the body of a request; None if the library must make it."""
    if any(name in arguments for name in _ELSEWHERE):
        return None
    given = {name: each for name, each in arguments.items() if type(each).__name__ not in _OMITTED}
    more = given.pop("extra_body", None)
    if more is not None and type(more) is not dict:
        return None
    body = {**given, **more} if more else given
    if any(type(each) is float and not isfinite(each) for each in body.values()):
        return None  # would be null
    try:
        return msgspec.json.encode(body, enc_hook=_refused)
    except (NotImplementedError, TypeError, ValueError, OverflowError, msgspec.MsgspecError):
        return None


def _refused(value: Any) -> Any:
    raise NotImplementedError(type(value).__name__)


def _is_plain_stream(response: aiohttp.ClientResponse) -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == _EVENT_STREAM and "content-encoding" not in response.headers


class CompletionStream:
    """The pieces of one answer. It ends at ``[DONE]`` or with the response; it is then closed by itself.

    Raises AnswerError for what is no answer, APITimeoutError and APIConnectionError, and TooLarge.
    """

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        transport: AiohttpTransport,
        step: OpenStep | None,
        request: Callable[[], httpx2.Request],
    ) -> None:
        self._response = response
        self._transport = transport
        self._record = AnswerRecord(step) if step is not None else None
        self._request = request
        self._taken = 0
        self._lines = EventLines()
        self._answer = ChatAnswer()
        self._ready: deque[bytes | Event] = deque()
        self._is_over = False
        self._is_open = True
        self._turn = monotonic()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        """Return the next piece."""
        while not self._ready:
            if not self._is_over:
                await self._read()
            elif self._is_open:
                await _let_others_send()
                await self.aclose()
                self._ready.extend(self._answer.last(self._lines))
            else:
                raise StopAsyncIteration
        if self._holds_up_others():
            await asyncio.sleep(0)
            self._turn = monotonic()
        return self._next()

    def take_ready(self) -> Any:
        """Return the next piece if it has arrived and no other task has waited for long, else None."""
        return self._next() if self._ready and not self._holds_up_others() else None

    async def aclose(self) -> None:
        """Free the connection; one whose response does not end now is closed."""
        if self._is_open:
            self._is_open = False
            self._note_end()
            try:
                await read_rest(self._response)
            finally:
                self._response.release()
                self._transport.end_response()

    close = aclose

    def __del__(self) -> None:
        self._abandon()  # does nothing unless its reader stopped in the middle

    def _holds_up_others(self) -> bool:
        return monotonic() - self._turn > _TURN_S

    def _next(self) -> Any:
        try:
            data = self._ready.popleft()
            if type(data) is bytes:
                data, *others = self._answer.read(data)
                self._ready.extendleft(reversed(others))
            return chunk_of(data)
        except BaseException:
            self._abandon()
            raise

    async def _read(self) -> None:
        """Read what arrived."""
        try:
            with mapped_errors():
                data = await self._response.content.readany()
            self._turn = monotonic()
            if data:
                self._keep(data)
            else:
                self._is_over = True
            for event in self._lines.feed(data) if data else self._lines.end():
                if is_end(event):
                    self._answer.is_whole = self._is_over = True
                    return
                self._ready.append(event)
        except httpx2.TimeoutException as error:
            self._abandon()
            raise APITimeoutError(request=self._request()) from error
        except httpx2.TransportError as error:
            self._abandon()
            raise APIConnectionError(request=self._request()) from error
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """Close the connection in the middle of the response."""
        self._is_over = True
        self._ready.clear()
        if self._is_open:
            self._is_open = False
            self._note_end()
            self._response.close()
            self._transport.end_response()

    def _keep(self, data: bytes) -> None:
        """Count the bytes, and keep them for the record of steps."""
        self._taken += len(data)
        if self._taken > MAX_STREAM:
            raise TooLarge(f"the answer holds more than {in_mib(MAX_STREAM)}, decoded")
        if self._record is not None:
            self._record.add(data)

    def _note_end(self) -> None:
        if self._record is not None:
            self._record.end()


async def _let_others_send() -> None:
    """Let tasks that were given text send it: the end of an answer is worked on for a millisecond or more.

    They run in the first turn of the loop, at whose end uvloop writes to their sockets.
    """
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def chunk_of(data: Any) -> Any:
    """Return what the library makes of one piece, read from JSON."""
    return _of_text(data) or construct_type(type_=ChatCompletionChunk, value=data)


def _of_text(data: Any) -> ChatCompletionChunk | None:
    """Return a piece with one choice whose values are text, numbers or null; None for any other."""
    choices = data.get("choices") if type(data) is dict else None
    choice = choices[0] if type(choices) is list and len(choices) == 1 else None
    delta = choice.get("delta") if type(choice) is dict else None
    if type(choice) is not dict or type(delta) is not dict:
        return None
    if not (_PLAIN.issuperset(map(type, delta.values())) and _rest_is_plain(choice) and _rest_is_plain(data)):
        return None
    made = _made(Choice, _CHOICE, {**choice, "delta": _made(ChoiceDelta, _DELTA, delta)})
    return _made(ChatCompletionChunk, _CHUNK, {**data, "choices": [made]})


def _rest_is_plain(value: dict[Any, Any]) -> bool:
    """Whether all values but one are plain."""
    return sum(type(each) not in _PLAIN for each in value.values()) == 1


def _made[M](kind: type[M], defaults: dict[str, Any], values: dict[str, Any]) -> M:
    """Return an object of the library, as its ``construct`` makes it of values that need no conversion."""
    extra = {}
    if not defaults.keys() >= values.keys():
        extra = {name: value for name, value in values.items() if name not in defaults}
        values = {name: value for name, value in values.items() if name in defaults}
    made = kind.__new__(kind)
    _set(made, "__dict__", {**defaults, **values})
    _set(made, "__pydantic_private__", None)
    _set(made, "__pydantic_extra__", extra)
    _set(made, "__pydantic_fields_set__", set(values))
    return made


_DELTA: Final = dict(vars(ChoiceDelta.construct()))
_CHOICE: Final = dict(vars(Choice.construct()))
_CHUNK: Final = dict(vars(ChatCompletionChunk.construct()))
