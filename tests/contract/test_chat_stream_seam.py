"""Chat completions that are sent and read directly, beside the library's own: both do the same."""

import asyncio
import functools
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from fast_agent.llm.provider import streaming_timeouts
from fast_agent.llm.provider.openai import llm_openai
from hypothesis import given
from hypothesis import strategies as st
from openai import APIConnectionError, APIStatusError, APITimeoutError, AsyncOpenAI, NotGiven
from openai._models import construct_type
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessage

from pallas.bounds.bodies import TooLarge
from pallas.executors.fastagent import chat_stream_seam, model_client_seam
from pallas.executors.fastagent.chat_stream_seam import (
    CompletionStream,
    chunk_of,
    send_streams_directly,
)
from pallas.executors.model_client import event_lines
from pallas.executors.model_client.event_lines import read_json
from pallas.executors.model_client.provider_connections import ClientKey, PooledClient, provider_connections
from pallas.model import Fault

ATOMS = st.none() | st.integers(-(2**70), 2**70) | st.text(max_size=5)
ODD = st.booleans() | st.floats(allow_nan=False) | st.lists(ATOMS, max_size=2) | st.just({"a": 1})
CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def fields(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), ATOMS | ODD, max_size=4)


DELTAS = st.builds(
    dict,
    fields("role", "content", "refusal", "reasoning_content", "index") | st.just({"tool_calls": [CALL]}),
)
CHOICES = st.builds(
    lambda rest, delta: {**rest, **delta},
    fields("index", "finish_reason", "logprobs", "other"),
    st.fixed_dictionaries({}, optional={"delta": DELTAS}),
)
CHUNKS = st.builds(
    lambda rest, choices: {**rest, **choices},
    fields("id", "object", "created", "model", "usage", "system_fingerprint", "service_tier", "x"),
    st.fixed_dictionaries({}, optional={"choices": st.lists(CHOICES, max_size=2)}),
)


def inside(value: Any) -> Any:
    """A value with everything that objects of the library hold."""
    if isinstance(value, list):
        return [inside(each) for each in value]
    if not hasattr(value, "__pydantic_fields_set__"):
        return type(value), value
    parts = {name: inside(each) for name, each in vars(value).items()}
    return type(value), list(parts.items()), value.__pydantic_extra__, value.__pydantic_fields_set__


@given(CHUNKS)
def test_pieces_are_what_the_library_makes_of_them(data: dict[str, Any]) -> None:
    expected = inside(construct_type(type_=ChatCompletionChunk, value=json.loads(json.dumps(data))))
    assert inside(chunk_of(data)) == expected


def test_a_piece_of_text_does_not_go_through_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pallas.executors.fastagent.chat_stream_seam.construct_type", None)
    choice = {"index": 0, "delta": {"role": "assistant", "content": "hi"}, "finish_reason": None}
    piece = chunk_of({"id": "c", "created": 1, "model": "m", "choices": [choice], "x": "y"})
    assert piece.choices[0].delta.content == "hi"
    assert piece.model_dump()["x"] == "y"
    assert piece.model_copy(deep=True) == piece


@pytest.mark.parametrize("text", ["NaN", '"\\ud800"', '{"a": 1e400}', '"é"', "12345678901234567890123"])
def test_json_is_read_as_the_library_reads_it(text: str) -> None:
    assert repr(read_json(text.encode())) == repr(json.loads(text))


@pytest.mark.parametrize("text", [b"{", b'"\xff', b""])
def test_what_is_no_json_raises_as_in_the_library(text: bytes) -> None:
    with pytest.raises(ValueError):
        read_json(text)


@dataclass
class Server:
    """Answers every request with ``answer``, a whole response, in pieces of ``size`` bytes."""

    answer: bytes = b""
    size: int = 1 << 20
    url: str = ""
    heads: list[list[bytes]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    keys: dict[int, set[bytes]] = field(default_factory=dict)
    """The credentials that came over each connection."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        keys = self.keys.setdefault(len(self.keys), set())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
                keys.update(line for line in lines if line.lower().startswith(b"authorization:"))
                length = next(int(each[15:]) for each in lines if each.lower().startswith(b"content-length:"))
                self.heads.append(lines)
                self.bodies.append(await reader.readexactly(length))
                for start in range(0, len(self.answer), self.size):
                    writer.write(self.answer[start : start + self.size])
                    await writer.drain()
                    await asyncio.sleep(0)
                if b"connection: close" in self.answer:
                    break
        writer.close()


@asynccontextmanager
async def serving(answer: bytes = b"", size: int = 1 << 20) -> AsyncIterator[Server]:
    found = Server(answer, size)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        async with provider_connections().held():
            yield found
    finally:
        server.close()
        server.close_clients()


@pytest.fixture(scope="module", autouse=True)
def _authorities_once() -> Iterator[None]:
    """Each client reads the system's certificates, tens of milliseconds; they are read once here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx2, "create_ssl_context", functools.cache(httpx2.create_ssl_context))
        yield


def client_of(url: str, key: str = "key", *, direct: bool = True, **options: Any) -> AsyncOpenAI:
    pool = provider_connections().client(ClientKey(url, key))
    made = AsyncOpenAI(api_key=key, base_url=url, http_client=pool, max_retries=0, **options)
    if direct:
        send_streams_directly(made, pool)
    return made


def pool_of(client: AsyncOpenAI) -> PooledClient:
    assert isinstance(client._client, PooledClient)
    return client._client


def response(body: bytes, *heads: str, status: str = "200 OK", kind: str = "text/event-stream") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", *heads]
    if not any(each.startswith("transfer-encoding") for each in heads):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def piece(text: str, **more: Any) -> str:
    return json.dumps({"id": "c", "choices": [{"index": 0, "delta": {"content": text}, **more}]})


async def outcome(client: AsyncOpenAI, **arguments: Any) -> Any:
    """The pieces of an answer and the error that ended it, with all that a caller may see of it."""
    pieces: list[Any] = []
    try:
        messages: Any = [{"role": "user", "content": "hi"}]
        arguments = {"model": "m", "messages": messages, "stream": True, **arguments}
        async with asyncio.timeout(60):
            async for each in await client.chat.completions.create(**arguments):
                pieces.append(inside(each))  # noqa: PERF401 - those before an error count
    except Exception as error:
        status = (error.status_code, error.response.text) if isinstance(error, APIStatusError) else None
        request = getattr(error, "request", None)
        seen = str(request.url) if request is not None else None
        text = re.sub(r"position \d+", "position", str(error))  # the library counts from the line's begin
        return pieces, type(error), text, seen, getattr(error, "body", None), status
    return pieces


TEXT = [piece("one "), piece("two "), piece("", finish_reason="stop")]
TOOLS = [
    json.dumps({"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [CALL]}}]}),
    json.dumps({"id": "c", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}),
]


def events(datas: list[str], *, end: str = "\n", last: bool = True) -> bytes:
    return "".join(f"data: {each}{end}{end}" for each in [*datas, *(["[DONE]"] if last else [])]).encode()


ANSWERS = {
    "text": response(events(TEXT)),
    "tools": response(events(TOOLS)),
    "carriage returns": response(events(TEXT, end="\r\n")),
    "returns alone": response(events(TEXT, end="\r")),
    "no end": response(events(TEXT, last=False)),
    "cut in an event": response(events(TEXT, last=False) + b'data: {"id"'),
    "comments and names": response(b": ping\n\nevent: x\nid: 1\n" + events(TEXT)),
    "two lines of data": response(b'data: {"id": "c",\ndata: "choices": []}\n\n' + events(TEXT)),
    "no space": response(events(TEXT).replace(b"data: ", b"data:")),
    "after the end": response(events(TEXT) + b"data: 1\n\n"),
    "empty": response(b""),
    "an error": response(events([TEXT[0], '{"error": {"message": "too long"}}', TEXT[1]])),
    "an error without a text": response(events(['{"error": "odd"}'])),
    "no json": response(events([TEXT[0], "{", TEXT[1]])),
    "no utf-8": response(events(TEXT[:1], last=False) + b'data: "\xff"\n\n'),
    "null": response(events(["null"])),
    "a list": response(events(["[1]"])),
    "broken off": response(events(TEXT)[:40], "content-length: 5000", "connection: close").replace(
        b"content-length: 40\r\n", b""
    ),
    "another type": response(b'{"choices": []}', kind="application/json"),
    "refused": response(b'{"error": {"message": "no key"}}', status="401 No", kind="application/json"),
    "too many": response(b"{}", "retry-after: 3", status="429 No", kind="application/json"),
    "failed": response(b"down", status="503 No", kind="text/plain"),
    "unknown encoding": response(b"x", "content-encoding: br"),
}


@pytest.mark.parametrize("size", [1 << 20, 7], ids=["at once", "in pieces"])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_streams_and_errors_are_those_of_the_library(answer: bytes, size: int) -> None:
    async with serving(answer, size) as server:
        theirs = client_of(server.url, direct=False)
        ours = client_of(server.url)
        assert await outcome(ours) == await outcome(theirs)
        assert await outcome(ours) == await outcome(theirs)
        assert pool_of(ours).transport.in_use == 0
    assert len(server.bodies) == 4


REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {"temperature": 0.5, "stream_options": {"include_usage": True}},
    "unicode": {"messages": [{"role": "user", "content": "é \u2028 \U0001f600"}]},
    "tools": {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"enum": [1, None]}}}]},
    "more in the body": {"extra_body": {"top_k": 4, "temperature": 1}, "temperature": 0.5},
    "left out": {"seed": NotGiven(), "stop": ["a"]},
    "own headers": {"extra_headers": {"x-team": "a"}},
    "own query": {"extra_query": {"a": "b"}},
    "own timeout": {"timeout": 60.0},
    "the library's types": {"messages": [ChatCompletionMessage(role="assistant", content="a")]},
    "no number": {"extra_body": {"x": float("inf")}, "stop": None},
}


@pytest.mark.parametrize("arguments", REQUESTS.values(), ids=REQUESTS)
async def test_requests_are_those_of_the_library(arguments: dict[str, Any]) -> None:
    async with serving(ANSWERS["text"]) as server:
        options = {"default_headers": {"x-own": "1"}, "organization": "org"}
        ours = await outcome(client_of(server.url, **options), **arguments)
        theirs = await outcome(client_of(server.url, direct=False, **options), **arguments)
        if isinstance(theirs, tuple):  # the library refuses it
            assert ours == theirs
            return
    (one, two), (first, second) = server.heads, server.bodies
    assert json.loads(first) == json.loads(second)
    assert sorted(heads(one)) == sorted(heads(two))
    assert any(each.lower() == b"authorization: bearer key" for each in one)


def heads(lines: list[bytes]) -> list[bytes]:
    """All of a request's head but the length, since a number may be written in two ways."""
    return [each for each in lines if not each.lower().startswith(b"content-length")]


async def test_what_is_not_streamed_is_sent_by_the_library() -> None:
    async with serving(response(b'{"choices": []}', kind="application/json")) as server:
        ours = client_of(server.url)
        made = await ours.chat.completions.create(model="m", messages=[])
        assert type(made).__name__ == "ChatCompletion"


@pytest.mark.parametrize(
    ("location", "error"),
    [("http://127.0.0.1:1/v1/chat/completions", Fault), ("/v1/elsewhere", APIConnectionError)],
)
async def test_a_redirect_ends_as_the_library_ends_it(location: str, error: type[Exception]) -> None:
    # To another origin it is refused, to another path it is followed: here again and again.
    there = response(b"", f"location: {location}", status="307 There", kind="text/plain")
    async with serving(there) as server:
        found = [await outcome(client_of(server.url, direct=d)) for d in (True, False)]
    assert found[0] == found[1]
    assert found[0][1] is error


async def test_a_server_that_is_silent_or_absent_raises_what_the_library_raises() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n") as server:
        limit = httpx2.Timeout(60.0, read=0.2)
        found = [await outcome(client_of(server.url, direct=d, timeout=limit)) for d in (True, False)]
        assert found[0] == found[1]
        assert found[0][1] is APITimeoutError
    async with serving() as gone:
        pass
    async with provider_connections().held():
        found = [await outcome(client_of(gone.url, direct=d)) for d in (True, False)]
    assert found[0] == found[1]
    assert found[0][1] is APIConnectionError


async def test_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_stream_seam, "MAX_STREAM", 100)
    async with serving(ANSWERS["text"]) as server:
        assert (await outcome(client_of(server.url)))[1] is TooLarge
    monkeypatch.undo()
    monkeypatch.setattr(event_lines, "MAX_MESSAGE", 100)
    for text in (b"data: " + b"x" * 200, b"data: \r\ndata: " + b"x" * 200):
        async with serving(response(text), 50) as server:
            assert (await outcome(client_of(server.url)))[1] is TooLarge


@pytest.mark.parametrize("stops", ["its reader stops", "it is cancelled"])
async def test_a_stream_that_is_not_read_to_its_end_frees_its_connection(stops: str) -> None:
    begin = response(events(TEXT, last=False)[:150], "content-length: 5000").replace(
        b"content-length: 150\r\n", b""
    )
    async with serving(begin) as server:
        client = client_of(server.url)
        stream = await client.chat.completions.create(model="m", messages=[], stream=True)
        assert isinstance(stream, CompletionStream)
        assert pool_of(client).in_use
        if stops == "it is cancelled":
            begun = asyncio.Event()

            async def read() -> None:
                async for _ in stream:
                    begun.set()

            waiting = asyncio.create_task(read())
            await begun.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not pool_of(client).in_use
        else:
            await anext(stream)
            del stream
            assert not pool_of(client).in_use


async def test_pieces_that_have_arrived_leave_time_for_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_stream_seam, "_TURN_S", -1.0)
    async with serving(response(events([piece(str(n)) for n in range(50)]))) as server:
        stream = await client_of(server.url).chat.completions.create(model="m", messages=[], stream=True)
        others = 0

        async def work() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(work())
        seen = [others async for _ in stream]
        task.cancel()
    assert len(seen) == 50
    assert seen == sorted(set(seen))


async def test_tasks_that_were_given_text_run_twice_before_the_answer_ends() -> None:
    async with serving(response(events([piece("a"), piece("b")]))) as server:
        client = client_of(server.url)
        stream = await client.chat.completions.create(model="m", messages=[], stream=True)
        while not stream._ready:  # from here on the whole answer is there
            await stream._read()
        given, turns = asyncio.Event(), 0

        async def send() -> None:
            nonlocal turns
            await given.wait()
            turns += 1
            await asyncio.sleep(0)  # in the next turn its socket has been written to
            turns += 1

        sending = asyncio.create_task(send())
        await asyncio.sleep(0)
        async for _ in stream:
            given.set()
        assert turns == 2
        await sending


async def test_pieces_that_have_arrived_need_no_timer_each(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = 0
    wait_for: Callable[..., Any] = asyncio.wait_for

    def counted(*given: Any, **options: Any) -> Any:
        nonlocal waits
        waits += 1
        return wait_for(*given, **options)

    monkeypatch.setattr(streaming_timeouts.asyncio, "wait_for", counted)
    hooked = model_client_seam.ready_first().wrap(streaming_timeouts.with_stream_idle_timeout)
    async with serving(response(events([piece(str(n)) for n in range(50)]))) as server:
        stream = await client_of(server.url).chat.completions.create(model="m", messages=[], stream=True)
        timed = hooked(stream, idle_timeout_seconds=60)
        assert len([each async for each in timed]) == 50
        assert timed.timing.events_received == 50
        assert 0 < waits < 10
        theirs = client_of(server.url, direct=False)
        other = await theirs.chat.completions.create(model="m", messages=[], stream=True)
        assert type(hooked(other, idle_timeout_seconds=60)) is streaming_timeouts._IdleTimeoutAsyncStream
        await other.close()
    assert llm_openai.with_stream_idle_timeout.__module__ == streaming_timeouts.__name__


def test_the_usage_of_an_answer_is_found_wherever_a_server_puts_it() -> None:
    model_client_seam.ready_first()
    hooked = model_client_seam.usage_hook().wrap(llm_openai._openai_usage)
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    choice = {"index": 0, "delta": {"content": "x"}}
    for data in (
        {"choices": [choice]},
        {"choices": []},
        {"choices": [], "usage": usage},
        {"choices": [{**choice, "usage": usage}]},
        {"choices": [choice], "usage": None},
    ):
        piece = chunk_of({"id": "c", **data})
        assert hooked(piece) == llm_openai._openai_usage(piece)
    assert hooked(None) is None


@pytest.mark.slow
async def test_no_credential_of_fifty_reaches_the_connection_of_another() -> None:
    async with serving(ANSWERS["text"]) as server:
        clients = [client_of(server.url, f"key-{number}") for number in range(50)]
        for _ in range(3):
            found = await asyncio.gather(*map(outcome, clients))
            assert all(len(each) == 3 for each in found)
    assert len(server.bodies) == 150
    assert all(len(keys) == 1 for keys in server.keys.values())
    assert len({key for keys in server.keys.values() for key in keys}) == 50
