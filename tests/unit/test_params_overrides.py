"""``messages`` of a call: what is understood, and what a refusal names."""

from typing import Any

import pytest

from pallas.model import Fault, FaultType, Image, Message, ToolAnswer, ToolCall
from pallas.runs.chat_messages import read_messages

_PNG = "iVBORw0KGgo="
_CALL = {"id": "c1", "type": "function", "function": {"name": "echo__say", "arguments": '{"text": "a"}'}}


def test_the_last_user_message_is_the_text_and_the_rest_is_history() -> None:
    # AG-14
    override = read_messages(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": [{"type": "text", "text": "three"}]},
        ]
    )
    assert override.history == (Message("user", "one"), Message("assistant", "two"))
    assert (override.text, override.images, override.system) == ("three", (), "Be brief.")


def test_calls_and_their_answers_become_one_message_each() -> None:
    second = {"id": "c2", "name": "echo__say", "arguments": {"text": "b"}}
    override = read_messages(
        [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": [_CALL, second]},
            {"role": "tool", "tool_call_id": "c2", "content": "B"},
            {"role": "tool", "toolCallId": "c1", "content": [{"type": "text", "text": "A"}]},
            {"role": "assistant", "content": "done", "toolCalls": None},
            {"role": "user", "content": "more"},
        ]
    )
    _, asked, answered, _ = override.history
    assert asked.calls == (
        ToolCall("c1", "echo__say", {"text": "a"}),
        ToolCall("c2", "echo__say", {"text": "b"}),
    )
    assert answered == Message("tool", "B\nA", answers=(ToolAnswer("c2", "B"), ToolAnswer("c1", "A")))


def test_pictures_come_as_data_urls_or_as_the_api_tells_them() -> None:
    override = read_messages(
        [
            {"role": "user", "content": "see", "images": [{"data": _PNG, "mimeType": "image/png"}]},
            {"role": "assistant", "content": "yes"},
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PNG}"}}],
            },
        ]
    )
    assert override.history[0].images == override.images == (Image(_PNG, "image/png"),)


_USER = {"role": "user", "content": "x"}
_DEEP = f'{{"a": {"[" * 99}{"]" * 99}}}'


@pytest.mark.parametrize(
    ("rows", "key"),
    [
        ([], "messages"),
        ("hello", "messages"),
        ([5], "messages[0]"),
        ([{"role": "bot", "content": ""}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "assistant", "content": None}, _USER], "messages[0].content"),
        ([{"role": "user", "content": 7}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "audio"}]}], "messages[0].content[0]"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]}],
            "messages[0].content[0].image_url",
        ),
        ([{"role": "user", "content": "x", "images": [{"data": 1}]}], "messages[0].images[0]"),
        (
            [{"role": "assistant", "content": "", "images": [{"data": "", "mimeType": "image/png"}]}, _USER],
            "messages[0].content",
        ),
        ([_USER, {"role": "assistant", "content": "y"}], "messages[1].role"),
        ([{"role": "system", "content": "y"}], "messages[0].role"),
        ([_USER, {"role": "tool", "tool_call_id": "c1", "content": ""}, _USER], "messages[1].tool_call_id"),
        ([_USER, {"role": "tool", "content": ""}, _USER], "messages[1].tool_call_id"),
        ([_USER, {"role": "assistant", "tool_calls": [_CALL]}, _USER], "messages[1].tool_calls"),
        (
            [_USER, {"role": "assistant", "tool_calls": [_CALL, _CALL]}, _USER],
            "messages[1].tool_calls[1].id",
        ),
        ([{"role": "user", "content": "x", "tool_calls": [_CALL]}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": {}}, _USER], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": [{}]}, _USER], "messages[0].tool_calls[0].id"),
        (
            [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "x", "arguments": "["}}]}],
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"id": "a", "name": "x", "arguments": _DEEP}]}],
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_row(rows: Any, key: str) -> None:
    with pytest.raises(Fault) as refused:
        read_messages(rows)
    assert refused.value.type is FaultType.PROTOCOL
    assert refused.value.data["key"] == key
    assert refused.value.message.startswith(key)


def test_an_answered_call_may_not_be_answered_again() -> None:
    answer = {"role": "tool", "tool_call_id": "c1", "content": "A"}
    rows = [_USER, {"role": "assistant", "tool_calls": [_CALL]}, answer, answer, _USER]
    with pytest.raises(Fault, match=r"messages\[3\]\.tool_call_id"):
        read_messages(rows)
