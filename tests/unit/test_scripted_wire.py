"""Answers in OpenAI's form, and pictures by their headers."""

import base64
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pallas.bounds.picture_header import PictureHeader, picture_of
from pallas.scripted.openai_wire import Head, ScriptedAnswer, ScriptedToolCall, chunks, completion

HEAD = Head("chatcmpl-1", 1_750_000_000, "scripted")


def events(answer: ScriptedAnswer, usage: bool = True) -> list[Any]:
    raw = b"".join(chunks(HEAD, answer, usage=usage)).decode()
    lines = [line.removeprefix("data: ") for line in raw.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def deltas(answer: ScriptedAnswer) -> list[dict[str, Any]]:
    return [event["choices"][0]["delta"] for event in events(answer, usage=False)]


@given(st.text())
def test_the_pieces_of_a_text_are_the_text(text: str) -> None:
    pieces = [delta["content"] for delta in deltas(ScriptedAnswer(text, (), 0, 0)) if delta.get("content")]
    assert "".join(pieces) == text


def test_a_text_is_cut_between_words() -> None:
    pieces = [
        delta["content"] for delta in deltas(ScriptedAnswer("One two,  three.\n\nFour", (), 0, 0))[1:-1]
    ]
    assert pieces == ["One", " two,", "  three.", "\n\nFour"]


def test_a_long_answer_has_few_pieces() -> None:
    assert len(deltas(ScriptedAnswer("word " * 100_000, (), 0, 0))) <= 403


def test_a_call_is_told_by_name_first_and_then_by_fragments_of_its_arguments() -> None:
    arguments = json.dumps({"query": "lamps " * 20})
    answer = ScriptedAnswer(
        "Let me see.",
        (ScriptedToolCall("call_1", "a", "{}"), ScriptedToolCall("call_2", "b", arguments)),
        0,
        0,
    )
    found: dict[int, dict[str, str]] = {}
    for delta in deltas(answer):
        for call in delta.get("tool_calls", ()):
            if call["index"] not in found:
                assert call["type"] == "function"
                assert call["function"]["arguments"] == ""
                found[call["index"]] = {"id": call["id"], "name": call["function"]["name"], "arguments": ""}
            found[call["index"]]["arguments"] += call["function"]["arguments"]
    assert found == {
        0: {"id": "call_1", "name": "a", "arguments": "{}"},
        1: {"id": "call_2", "name": "b", "arguments": arguments},
    }
    assert events(answer, usage=False)[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_usage_comes_after_the_finish_and_only_when_it_is_asked_for() -> None:
    answer = ScriptedAnswer("hi", (), 7, 1)
    *_, finish, usage = events(answer)
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}
    assert not any("usage" in event for event in events(answer, usage=False))


def test_one_object_holds_the_same_answer() -> None:
    body = completion(HEAD, ScriptedAnswer("", (ScriptedToolCall("call_1", "a", '{"b": 1}'),), 3, 4))
    choice = body["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "a", "arguments": '{"b": 1}'}
    assert body["usage"]["total_tokens"] == 7


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def encoded(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    data = io.BytesIO()
    Image.new(mode, (321, 123)).save(data, kind, **options)
    return data.getvalue()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("PNG", encoded("PNG")),
        ("GIF", encoded("GIF", "P")),
        ("JPEG", encoded("JPEG")),
        ("JPEG", encoded("JPEG", progressive=True, comment=b"\xff\xc0" * 5_000)),
        ("WebP", encoded("WEBP")),
        ("WebP", encoded("WEBP", lossless=True)),
        ("WebP", encoded("WEBP", exif=b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0")),
    ],
)
def test_a_picture_tells_its_kind_and_size(kind: str, data: bytes) -> None:
    assert picture_of(data_url(data)) == PictureHeader(kind, 321, 123, len(data))


@pytest.mark.parametrize("data", [encoded("PNG"), encoded("JPEG"), encoded("GIF", "P"), encoded("WEBP")])
def test_a_picture_cut_short_is_unknown_and_never_an_error(data: bytes) -> None:
    for length in range(min(len(data), 200)):
        found = picture_of(data_url(data[:length]))
        assert (found.width, found.height) in {(0, 0), (321, 123)}


@given(st.binary(max_size=64), st.sampled_from([b"", b"\xff\xd8\xff", b"RIFF____WEBPVP8X", b"GIF89a"]))
def test_no_bytes_at_all_break_the_reader(tail: bytes, head: bytes) -> None:
    assert picture_of(data_url(head + tail)).bytes == len(head + tail)


@pytest.mark.parametrize(
    "url", ["https://example.com/a.png", "data:image/png,abc", "data:;base64,a", "", "x"]
)
def test_a_picture_that_was_not_sent_is_not_fetched(url: str) -> None:
    assert picture_of(url) == PictureHeader()
