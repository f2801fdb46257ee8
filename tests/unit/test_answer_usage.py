"""What an answer used, read from the documents that providers send."""

import json
from typing import Any

import pytest

from pallas.executors.model_client.answer_usage import usage_of
from pallas.model import StepUsage


def stream(*events: dict[str, Any], named: bool = False, end: str = "data: [DONE]\n\n") -> bytes:
    lines = [
        (f"event: {each['type']}\n" if named else "") + f"data: {json.dumps(each)}\n\n" for each in events
    ]
    return ("".join(lines) + end).encode()


CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "gpt-4o-2024-08-06",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": 'He said "usage": {}'}}],
    "usage": {
        "prompt_tokens": 1117,
        "completion_tokens": 46,
        "total_tokens": 1163,
        "prompt_tokens_details": {"cached_tokens": 1024, "audio_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 12, "audio_tokens": 3},
    },
}
RESPONSES = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "output": [],
    "usage": {
        "input_tokens": 328,
        "input_tokens_details": {"cached_tokens": 64},
        "output_tokens": 52,
        "output_tokens_details": {"reasoning_tokens": 32},
        "total_tokens": 380,
    },
}
ANTHROPIC_USAGE = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 248,
    "cache_read_input_tokens": 1800,
    "cache_creation": {"ephemeral_5m_input_tokens": 48, "ephemeral_1h_input_tokens": 200},
    "output_tokens": 503,
    "service_tier": "standard",
}
GOOGLE_USAGE = {
    "promptTokenCount": 300,
    "candidatesTokenCount": 1300,
    "thoughtsTokenCount": 80,
    "toolUsePromptTokenCount": 40,
    "cachedContentTokenCount": 100,
    "totalTokenCount": 1720,
    "promptTokensDetails": [
        {"modality": "TEXT", "tokenCount": 42},
        {"modality": "IMAGE", "tokenCount": 258},
    ],
    "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1290}],
}
OF_CHAT = StepUsage(1117, 46, 1024, None, 12, input_audio=20, output_audio=3)
OF_RESPONSES = StepUsage(328, 52, 64, None, 32)
OF_ANTHROPIC = StepUsage(2060, 503, 1800, 248, cache_writes_1h=200)
OF_GOOGLE = StepUsage(340, 1380, 100, None, 80, input_image=258, output_image=1290)


@pytest.mark.parametrize(
    ("document", "usage"),
    [
        (CHAT, OF_CHAT),
        (RESPONSES, OF_RESPONSES),
        ({"type": "message", "content": [], "usage": ANTHROPIC_USAGE}, OF_ANTHROPIC),
        ({"candidates": [{"finishReason": "STOP"}], "usageMetadata": GOOGLE_USAGE}, OF_GOOGLE),
        # DeepSeek and Moonshot say the cached tokens in words of their own.
        (
            {"usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 8}},
            StepUsage(9, 2, 8),
        ),
        ({"usage": {"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 8}}, StepUsage(9, 2, 8)),
        # xAI counts reasoning beside the answer.
        (
            {
                "usage": {
                    "prompt_tokens": 9,
                    "completion_tokens": 2,
                    "total_tokens": 51,
                    "completion_tokens_details": {"reasoning_tokens": 40},
                }
            },
            StepUsage(9, 42, reasoning=40),
        ),
        # A gateway says Anthropic's cache in OpenAI's form, whose input has it in it.
        (
            {
                "usage": {
                    "prompt_tokens": 2060,
                    "completion_tokens": 5,
                    "cache_read_input_tokens": 1800,
                    "cache_creation_input_tokens": 248,
                }
            },
            StepUsage(2060, 5, 1800, 248),
        ),
        # Google leaves out what is zero.
        ({"usageMetadata": {"promptTokenCount": 7, "totalTokenCount": 7}}, StepUsage(7, 0)),
        (
            {"usageMetadata": {"promptTokenCount": 7, "thoughtsTokenCount": 3, "totalTokenCount": 10}},
            StepUsage(7, 3, reasoning=3),
        ),
        ({"usage": None}, StepUsage()),
        ({"error": {"message": "no"}}, StepUsage()),
        ({"usage": {"prompt_tokens": -1, "completion_tokens": True}}, StepUsage()),
        ({"usage": {"prompt_tokens": 2**60, "completion_tokens": 1}}, StepUsage(None, 1)),
        ([1, 2], StepUsage()),
        ("text", StepUsage()),
    ],
)
def test_a_document_says_what_it_used(document: Any, usage: StepUsage) -> None:
    assert usage_of(json.dumps(document, indent=1).encode()) == usage


def test_the_last_piece_of_a_chat_has_the_usage() -> None:
    piece = {"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": None}
    assert usage_of(stream(piece, piece, {"choices": [], "usage": CHAT["usage"]})) == OF_CHAT
    assert usage_of(stream(piece, piece)) == StepUsage()


def test_the_event_that_ends_a_response_has_the_usage() -> None:
    begun = {"type": "response.created", "response": {**RESPONSES, "usage": None}}
    done = {"type": "response.completed", "response": RESPONSES}
    assert usage_of(stream(begun, done, named=True, end="")) == OF_RESPONSES


def test_anthropic_says_its_input_first_and_its_output_last() -> None:
    first = {"type": "message_start", "message": {"usage": {**ANTHROPIC_USAGE, "output_tokens": 1}}}
    text = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": '"usage"'}}
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 503}}
    assert usage_of(stream(first, text, last, {"type": "message_stop"}, named=True, end="")) == OF_ANTHROPIC
    # Cut in the middle: nobody knows how much it wrote.
    assert usage_of(stream(first, text, named=True, end="")) == StepUsage(2060, None, 1800, 248, None, 200)


def test_google_is_over_when_it_says_why() -> None:
    part = {"candidates": [{"content": {}}], "usageMetadata": {**GOOGLE_USAGE, "candidatesTokenCount": 2}}
    last = {"candidates": [{"content": {}, "finishReason": "STOP"}], "usageMetadata": GOOGLE_USAGE}
    assert usage_of(stream(part, last, end="")) == OF_GOOGLE
    assert usage_of(stream(part, part, end="")).output is None
    assert usage_of(stream(part, end="")).input == 340


@pytest.mark.parametrize(
    "body", [b"", b"   ", b"data: {", b'data: {"usage": {"prompt_tokens": 3', b'{"usage":']
)
def test_what_broke_off_says_nothing(body: bytes) -> None:
    assert usage_of(body) == StepUsage()
