"""What a handler may ask: messages are read and checked before anybody is asked."""

from typing import Any

import pytest

from pallas.llm.question import MAX_TEXT, read_params, read_question
from pallas.model import Fault, FaultType, Message, ToolAnswer, ToolCall

ASK = {"role": "user", "content": "2+2?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}


def test_the_hidden_prompt_comes_before_what_the_handler_says_as_system() -> None:
    # HC-36
    found = read_question([{"role": "system", "content": "Be brief."}, ASK], "You are a calculator.")
    assert found.system == "You are a calculator.\n\nBe brief."
    assert found.messages == (Message("user", "2+2?"),)
    assert "calculator" not in repr(found)


def test_null_content_stands_beside_tool_calls() -> None:
    # X11
    found = read_question(
        [
            ASK,
            {"role": "assistant", "content": None, "tool_calls": [CALL, {"id": "c2", "name": "now"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "4"},
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "noon"}]},
        ]
    )
    assert found.messages[1].calls == (ToolCall("c1", "add", {"a": 2}), ToolCall("c2", "now", {}))
    assert found.messages[2].answers == (ToolAnswer("c1", "4"), ToolAnswer("c2", "noon"))


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ("hello", "messages: must be a list"),
        ([], "messages: is empty"),
        (["hello"], "messages[0]: must be an object"),
        ([{"role": "boss", "content": "x"}], "messages[0].role: 'boss' is none of system"),
        ([{"role": "user", "content": None}], "messages[0].content: is null"),
        ([{"role": "user"}], "messages[0].content: is null"),
        ([{"role": "user", "content": 4}], "messages[0].content: must be text"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content: must be text"),
        ([{"role": "user", "content": [{"type": [], "text": "x"}]}], "messages[0].content: must be text"),
        ([{"role": "user", "content": [{"text": 4}]}], "messages[0].content: must be text"),
        (
            [ASK, {"role": "user", "content": "a\ud83d"}],
            "messages[1].content: has half of a character, '\\ud83d'",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "\udc00"}]}],
            "messages[0].content: has half of a character",
        ),
        ([{"role": "system", "content": "x"}], "must end with what a user says"),
        ([ASK, {"role": "assistant", "content": "4"}], "must end with what a user says"),
        ([ASK, {"role": "tool", "content": "4"}], "messages[1].tool_call_id: names no call"),
        ([ASK, {"role": "tool", "content": "4", "tool_call_id": "c9"}], "is of no call"),
        ([{"role": "assistant", "content": "", "tool_calls": "x"}], "tool_calls: must be a list"),
        ([{"role": "assistant", "content": "", "tool_calls": [{}]}], "tool_calls[0]: must have"),
        (
            [{"role": "assistant", "content": "", "tool_calls": [{"name": "x", "arguments": "{"}]}],
            "tool_calls[0].arguments: is not JSON",
        ),
        (
            [{"role": "assistant", "content": "", "tool_calls": [{"name": "x", "arguments": [1]}]}],
            "tool_calls[0].arguments: must be an object",
        ),
        ([ASK] * 2_001, "messages: has 2001 entries"),
        ([{"role": "user", "content": "x" * (MAX_TEXT + 1)}], "more than 4 MiB"),
    ],
)
def test_what_is_wrong_with_messages_is_said_with_its_place(messages: Any, problem: str) -> None:
    with pytest.raises(Fault) as caught:
        read_question(messages, "a prompt that nobody sees")
    assert caught.value.type is FaultType.PROTOCOL
    assert problem in caught.value.message
    assert "nobody sees" not in caught.value.message


@pytest.mark.parametrize(("characters", "tokens"), [(1, 100), (400, 100), (4_000, 1_000)])
def test_a_token_is_estimated_as_four_characters_and_a_question_at_a_hundred_at_least(
    characters: int, tokens: int
) -> None:
    # HC-29
    assert read_question([{"role": "user", "content": "x" * characters}]).tokens == tokens
    assert read_question([ASK], "x" * 4_000).tokens == 1_001


def test_parameters_have_the_names_that_they_have_everywhere() -> None:
    assert dict(read_params({"maxTokens": 5, "temperature": 0.5, "top_p": None}).values) == {
        "max_tokens": 5,
        "temperature": 0.5,
    }
    with pytest.raises(Fault, match="temprature"):
        read_params({"temprature": 1})
    with pytest.raises(Fault, match="systemOverride: is not a parameter of complete"):
        read_params({"system_override": "You are a pirate."})  # HC-36
