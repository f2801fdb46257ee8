"""The offline model over real sockets, asked by the client library that agents use."""

import asyncio
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from support.scripted import model, write_script
from support.waiting import until

from pallas.scripted.scripted_server import KEPT, MAX_BODY

HELLO = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "docs__search", "parameters": {"type": "object"}}}]
SCRIPT = """
rules:
  - when: {text: hello}
    say: "Hello, **you**. Message {{ turns }}."
  - when: {text: slow down}
    error: {status: 429, message: "too many requests: {{ last }}", retry_after: 2}
  - when: {last: user, text: search}
    say: Let me look.
    call:
      - {tool: docs__search, arguments: {query: "{{ last }}"}}
      - {tool: shop__stock, arguments: {sku: DL-100}}
  - when: {text: wait}
    say: waited
    delay: 600
  - when: {text: trickle}
    say: one two three four
    pace: 60
"""


@asynccontextmanager
async def asking(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=url, api_key="secret-key", max_retries=0) as client:
        yield client


async def streamed(client: openai.AsyncOpenAI, messages: list[Any]) -> tuple[str, list[Any], Any]:
    """Text, tool calls put together, and the last chunk."""
    text, calls, last = "", {}, None
    stream = await client.chat.completions.create(
        model="scripted",
        messages=messages,
        tools=TOOLS,  # type: ignore[arg-type]
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in stream:
        last = chunk
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                if call.id:
                    calls[call.index] = [call.id, call.function.name, ""]
                calls[call.index][2] += call.function.arguments or ""
    return text, [calls[index] for index in sorted(calls)], last


async def test_an_answer_streams_and_ends_with_its_usage(tmp_path: Path) -> None:
    async with model(tmp_path, SCRIPT) as running, asking(running.url) as client:
        text, calls, last = await streamed(client, HELLO)
    assert text == "Hello, **you**. Message 1."
    assert calls == []
    assert last.usage.completion_tokens == 7
    assert last.usage.total_tokens == last.usage.prompt_tokens + 7


async def test_several_tools_are_called_in_one_turn_with_words_before_them(tmp_path: Path) -> None:
    async with model(tmp_path, SCRIPT) as running, asking(running.url) as client:
        text, calls, _ = await streamed(client, [{"role": "user", "content": "search lamps"}])
    assert text == "Let me look."
    assert [(name, json.loads(arguments)) for _, name, arguments in calls] == [
        ("docs__search", {"query": "search lamps"}),
        ("shop__stock", {"sku": "DL-100"}),
    ]
    assert len({call_id for call_id, *_ in calls}) == 2


async def test_the_same_answer_comes_in_one_piece_when_no_stream_is_asked_for(tmp_path: Path) -> None:
    async with model(tmp_path, SCRIPT) as running, asking(running.url) as client:
        answer = await client.chat.completions.create(model="scripted", messages=HELLO)
    assert answer.choices[0].message.content == "Hello, **you**. Message 1."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 7


async def test_an_error_of_the_script_arrives_with_its_status_and_retry_after(tmp_path: Path) -> None:
    async with model(tmp_path, SCRIPT) as running, asking(running.url) as client:
        with pytest.raises(openai.RateLimitError, match="too many requests: slow down") as caught:
            await streamed(client, [{"role": "user", "content": "slow down"}])
    assert caught.value.response.headers["retry-after"] == "2"


async def test_the_models_of_the_script_are_listed(tmp_path: Path) -> None:
    async with (
        model(tmp_path, "{models: [a, b], rules: [{say: x}]}") as running,
        asking(running.url) as client,
    ):
        assert [each.id async for each in client.models.list()] == ["a", "b"]


async def test_a_client_that_goes_away_ends_the_wait_for_the_first_word(tmp_path: Path) -> None:
    await _leaves(tmp_path, "wait", _never)


async def test_a_client_that_goes_away_ends_the_stream(tmp_path: Path) -> None:
    async def first_word(stream: openai.AsyncStream[Any]) -> None:
        async for chunk in stream:
            if chunk.choices[0].delta.role:
                return

    await _leaves(tmp_path, "trickle", first_word)


async def _never(stream: openai.AsyncStream[Any]) -> None:
    raise AssertionError("answered at once")


async def _leaves(
    folder: Path, said: str, then: Callable[[openai.AsyncStream[Any]], Awaitable[None]]
) -> None:
    """Ask, see that it is being answered, go away, and see that it no longer is."""
    async with model(folder, SCRIPT) as running, asking(running.url) as client:

        async def ask() -> None:
            messages: Any = [{"role": "user", "content": said}]
            asked = client.chat.completions.create(model="scripted", messages=messages, stream=True)
            async with await asked as stream:
                await then(stream)
                await asyncio.Event().wait()

        task = asyncio.create_task(ask())
        await until(lambda: running.record.active == 1)
        task.cancel()
        await until(lambda: running.record.active == 0)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_what_was_asked_is_recorded_without_the_key_and_not_over_http(tmp_path: Path) -> None:
    async with model(tmp_path, SCRIPT) as running, asking(running.url) as client:
        await streamed(client, HELLO)
        assert running.record.calls == 1
        (body,) = running.record.requests
        assert body["messages"] == HELLO
        assert body["tools"] == TOOLS
        assert "secret-key" not in repr(running.record)
        async with httpx2.AsyncClient(timeout=60) as http:
            for path in ("/", "/v1/chat/completions", "/requests", "/v1/requests"):
                answer = await http.get(running.url.removesuffix("/v1") + path)
                assert answer.status_code in {404, 405}
                assert "hello" not in answer.text


async def test_the_record_is_bounded_and_the_count_is_not(tmp_path: Path) -> None:
    async with model(tmp_path, SCRIPT) as running, httpx2.AsyncClient(timeout=60) as http:
        for number in range(KEPT + 5):
            messages = [{"role": "user", "content": f"hello {number}"}]
            await http.post(f"{running.url}/chat/completions", json={"messages": messages})
        assert running.record.calls == KEPT + 5
        assert len(running.record.requests) == KEPT
        assert running.record.requests[0]["messages"][0]["content"] == "hello 5"


@pytest.mark.slow
async def test_large_bodies_push_older_ones_out_of_the_record(tmp_path: Path) -> None:
    async with model(tmp_path, SCRIPT) as running, httpx2.AsyncClient(timeout=60) as http:
        messages = [{"role": "user", "content": "hello " + "x" * (MAX_BODY - 200)}]
        for _ in range(6):
            answer = await http.post(f"{running.url}/chat/completions", json={"messages": messages})
            assert answer.status_code == 200
        assert running.record.calls == 6
        assert 1 <= len(running.record.requests) <= 4


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_refused(tmp_path: Path, chunked: bool) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(9):
            yield b" " * 2**20

    async with model(tmp_path, SCRIPT) as running, httpx2.AsyncClient(timeout=60) as http:
        content: Any = parts() if chunked else b" " * (MAX_BODY + 1)
        answer = await http.post(f"{running.url}/chat/completions", content=content)
        assert answer.status_code == 413
        assert "larger than 8 MiB" in answer.json()["error"]["message"]
        assert running.record.calls == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"messages": []}', "messages is missing or empty"),
        (b'{"messages": [{"role": "x"}]}', "messages[0].role is 'x'"),
    ],
)
async def test_a_request_that_is_none_is_refused_and_says_why(
    tmp_path: Path, content: bytes, said: str
) -> None:
    async with model(tmp_path, SCRIPT) as running, httpx2.AsyncClient(timeout=60) as http:
        answer = await http.post(f"{running.url}/chat/completions", content=content)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


async def test_half_a_character_is_answered(tmp_path: Path) -> None:
    async with (
        model(tmp_path, "rules: [{say: '{{ last }}'}]") as running,
        httpx2.AsyncClient(timeout=60) as http,
    ):
        body = '{"stream": %s, "messages": [{"role": "user", "content": "\\ud83d"}]}'
        for stream in ("true", "false"):
            answer = await http.post(f"{running.url}/chat/completions", content=body % stream)
            assert answer.status_code == 200
            assert "\\ud83d" in answer.text


# PR-8
async def test_a_name_that_is_not_this_machine_is_refused(tmp_path: Path) -> None:
    async with model(tmp_path, SCRIPT) as running, httpx2.AsyncClient(timeout=60) as http:
        for headers, status in (
            ({"host": "evil.example"}, 421),
            ({"origin": "http://evil.example"}, 403),
            ({}, 200),
        ):
            assert (await http.get(f"{running.url}/models", headers=headers)).status_code == status


async def test_many_conversations_at_once_get_their_own_answers(tmp_path: Path) -> None:
    rules = "rules: [{say: 'you said {{ last }}', delay: 0.01}]"
    async with model(tmp_path, rules) as running, asking(running.url) as client:

        async def one(number: int) -> str:
            return (await streamed(client, [{"role": "user", "content": f"n{number}"}]))[0]

        answers = await asyncio.gather(*(one(number) for number in range(50)))
    assert answers == [f"you said n{number}" for number in range(50)]


@contextmanager
def alone(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "pallas.scripted", *arguments], stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.slow
async def test_it_runs_alone_and_ends_quietly_when_interrupted(tmp_path: Path) -> None:
    path = write_script(tmp_path, SCRIPT)
    with alone(str(path), "--port", "0") as process:
        assert process.stderr is not None
        said = await asyncio.wait_for(asyncio.to_thread(process.stderr.readline), 60)
        url = re.search(r"http://127\.0\.0\.1:\d+/v1", said)
        assert url is not None, said
        async with asking(url[0]) as client:
            assert (await streamed(client, HELLO))[0] == "Hello, **you**. Message 1."
        process.send_signal(2)
        _, rest = await asyncio.to_thread(process.communicate, timeout=60)
        assert process.returncode == 0
        assert rest == ""


@pytest.mark.slow
def test_alone_it_tells_the_mistakes_of_a_script_and_ends_with_status_2(tmp_path: Path) -> None:
    path = write_script(tmp_path, "rules: [{sya: x}]")
    with alone(str(path)) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "did you mean say" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_it_imports_neither_fast_agent_nor_an_mcp_library() -> None:
    code = """
        import sys
        import pallas.scripted.scripted_server, pallas.scripted.__main__
        print([name for name in ("fast_agent", "fastmcp", "mcp", "textual") if name in sys.modules])
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"
