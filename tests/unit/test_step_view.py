"""What a model step says is read from the documents of each provider."""

import json
from typing import Any

import pytest

from pallas.model.step_view import ModelTool, SentMessage, view_of

TOOL = {"name": "echo", "description": "Say it."}
TEXT = {"type": "text", "text": "look"}
CALL = {"name": "echo", "arguments": '{"a":1}'}
Documents = tuple[dict[str, Any], dict[str, Any]]
CHAT: Documents = (
    {
        "model": "m",
        "temperature": 0.5,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [TEXT, {"type": "image_url", "image_url": {}}],
            },
            {
                "role": "assistant",
                "tool_calls": [{"id": "1", "function": CALL}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "found"},
        ],
        "tools": [{"type": "function", "function": TOOL}],
    },
    {"choices": [{"message": {"role": "assistant", "reasoning_content": "hm", "content": "done"}}]},
)
RESPONSES = (
    {
        "model": "m",
        "temperature": 0.5,
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "look"}, {"type": "input_image"}]},
            {"type": "function_call", "name": "echo", "arguments": '{"a":1}', "call_id": "1"},
            {"type": "function_call_output", "call_id": "1", "output": "found"},
        ],
        "tools": [{"type": "function", **TOOL}],
    },
    {
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "done"}]},
        ]
    },
)
ANTHROPIC = (
    {
        "model": "m",
        "temperature": 0.5,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "source": {}}]},
            {"role": "assistant", "content": [{"type": "tool_use", "name": "echo", "input": '{"a":1}'}]},
            {"role": "tool", "content": [{"type": "tool_result", "content": "found"}]},
        ],
        "tools": [TOOL],
    },
    {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "done"}]},
)
GOOGLE = (
    {
        "temperature": 0.5,
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "look"}, {"inlineData": {}}]},
            {"role": "assistant", "parts": [{"functionCall": {"name": "echo", "args": '{"a":1}'}}]},
            {"role": "tool", "parts": [{"text": "found"}]},
        ],
        "tools": [{"functionDeclarations": [TOOL]}],
    },
    {"candidates": [{"content": {"parts": [{"text": "hm", "thought": True}, {"text": "done"}]}}]},
)


@pytest.mark.parametrize(
    "documents", [CHAT, RESPONSES, ANTHROPIC, GOOGLE], ids=["chat", "responses", "anthropic", "google"]
)
def test_a_step_reads_the_same_whatever_its_provider(
    documents: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    view = view_of(*map(json.dumps, documents))
    assert view.instructions == "Be brief."
    assert view.messages == (
        SentMessage("user", "look\n[image]"),
        SentMessage("assistant", 'call echo {"a":1}'),
        SentMessage("tool", "found"),
    )
    assert view.tools == (ModelTool("echo", "Say it."),)
    assert json.loads(view.tools[0].definition).items() >= TOOL.items()
    assert view.params == (("temperature", "0.5"),)
    assert (view.reasoning, view.answer) == ("hm", "done")


DEEP = '{"messages":' + 5_000 * "[" + 5_000 * "]" + "}"


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", DEEP, '{"messages": 3, "tools": [1], "choices": [{}]}']
)
def test_other_documents_are_read_as_far_as_possible(text: str) -> None:
    assert view_of(text, text).answer == ""


def test_text_from_outside_is_sanitised() -> None:
    shown = view_of(json.dumps({"messages": [{"role": "user", "content": "a\x1b[2Jb\u202ec"}]}), "")
    assert shown.messages[0].text == "a␛[2Jb\\u202ec"
