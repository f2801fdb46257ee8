"""What a model said is read from the documents of every provider."""

from typing import Any

import pytest

from pallas.model import ToolCall
from pallas.recordings.said_by_model import said_by_model

FIND = {"what": "lamps"}
FIND_JSON = '{"what": "lamps"}'
CHAT = {
    "choices": [
        {
            "message": {
                "role": "assistant",
                "content": "I look.",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "find", "arguments": FIND_JSON}},
                    {"id": "c2", "type": "function", "function": {"name": "count", "arguments": ""}},
                ],
            }
        }
    ]
}  # fmt: skip
RESPONSES = {
    "object": "response",
    "output": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "id": "f1", "call_id": "c1", "name": "find", "arguments": FIND_JSON},
        {"type": "function_call", "id": "f2", "call_id": "c2", "name": "count", "arguments": "[broken"},
    ],
}  # fmt: skip
ANTHROPIC = {
    "type": "message",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c1", "name": "find", "input": FIND},
        {"type": "tool_use", "id": "c2", "name": "count", "input": {}},
    ],
}
GOOGLE = {
    "candidates": [
        {
            "content": {
                "parts": [
                    {"text": "hm", "thought": True},
                    {"text": "I look."},
                    {"functionCall": {"name": "find", "args": FIND}},
                    {"functionCall": {"name": "count"}},
                ]
            }
        }
    ]
}


@pytest.mark.parametrize(
    "document", [CHAT, RESPONSES, ANTHROPIC, GOOGLE], ids=["chat", "responses", "anthropic", "google"]
)
def test_text_and_calls_are_read(document: dict[str, Any]) -> None:
    ids = ("", "") if document is GOOGLE else ("c1", "c2")
    assert said_by_model(document) == (
        "I look.", (ToolCall(ids[0], "find", FIND), ToolCall(ids[1], "count", {})),
    )  # fmt: skip


@pytest.mark.parametrize(
    "document", [None, "text", [], {}, {"choices": [None, {"message": 3}]}, {"content": "x"}]
)
def test_nothing_is_read_from_other_documents(document: Any) -> None:
    assert said_by_model(document) == ("", ())
