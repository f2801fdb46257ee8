"""Answers whose pieces are odd: framing, encodings, names in parts, calls sent twice, ends without a text.

``MORE_TEXTS`` say "answer", ``MORE_CALLS`` have the results of their calls, and ``MORE_ERRORS`` words of what
a caller reads and how often the server is asked. Each by agent.
"""

import json
from collections.abc import Mapping
from typing import Any

from .odd_answers import (
    BEGIN,
    CHAT,
    END,
    HALF,
    HALF_MESSAGE,
    HALF_RESPONSE,
    START,
    TEXT_END,
    arguments,
    call,
    calls,
    candidate,
    chunk,
    done,
    function,
    function_call,
    items,
    more,
    response,
    started,
    stopped,
    used,
)
from .odd_models import DONE, ECHO, JSON, OddAnswer, stream

WORDS = "boom words"
SAID = chunk({"content": "answer"})
WHOLE = stream([SAID, *TEXT_END])
CALL = CHAT["one_index"][0].events[0]
EMPTY = "ended before it had any text"


def choice(**keys: Any) -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion.chunk", "choices": [keys]}


def named(name: str, text: str = "", **keys: Any) -> dict[str, Any]:
    return calls({"index": 0, "function": {"name": name, "arguments": text}, **keys})


CHAT_TEXTS: Mapping[str, OddAnswer] = {
    "bom": OddAnswer(body="\ufeff" + WHOLE),
    "blanks_before_data": OddAnswer(body=WHOLE.replace("data: ", "data:   ")),
    "no_blank_lines": OddAnswer(body=WHOLE.replace("\n\n", "\n")),
    "done_in_small_letters": OddAnswer(body=WHOLE.replace(DONE, "[done]")),
    "done_in_quotes": OddAnswer(body=WHOLE.replace(DONE, f'"{DONE}"')),
    "ping_in_words": OddAnswer(body=f"event: ping\ndata: 2026-01-01 00:00\n\n{WHOLE}"),
    "data_null": OddAnswer(["null", "[]", SAID, *TEXT_END]),
    "not_utf8": OddAnswer(body=stream([chunk({"x": "?"}), SAID, *TEXT_END]).encode().replace(b"?", b"\xff")),
    "one_object_a_line": OddAnswer(body=f"{json.dumps(SAID)}\n{json.dumps(chunk({}, 'stop'))}\n"),
    "parts_of_words": OddAnswer([chunk({"content": ["ans", {"text": {"value": "wer"}}]}), *TEXT_END]),
    "part_alone": OddAnswer([chunk({"content": {"type": "text", "text": "answer"}}), *TEXT_END]),
    "delta_of_words": OddAnswer([chunk("answer"), *TEXT_END]),
    "text_of_a_choice": OddAnswer([choice(index=0, text="answer"), *TEXT_END]),
    "choices_an_object": OddAnswer([{**SAID, "choices": SAID["choices"][0]}, *TEXT_END]),
    "refusal": OddAnswer([chunk({"content": None, "refusal": "answer"}), *TEXT_END]),
    "role_of_the_user": OddAnswer([chunk({"role": "user", "content": "answer"}), *TEXT_END]),
    "logprobs_a_list": OddAnswer([choice(index=0, delta={"content": "answer"}, logprobs=[]), *TEXT_END]),
    "two_choices": OddAnswer([SAID, choice(index=1, delta={"content": "other"}), *TEXT_END]),
    "second_choice_first": OddAnswer(
        [
            {**SAID, "choices": [{"index": 1, "delta": {"content": "other"}}, *SAID["choices"]]},
            *TEXT_END,
        ]
    ),
    "only_choice_1": OddAnswer(
        [choice(index=1, delta={"content": "answer"}), choice(index=1, delta={}, finish_reason="stop"), DONE]
    ),
    "whole_behind_its_pieces": OddAnswer(
        [SAID, choice(index=0, message={"role": "assistant", "content": "answer"}, finish_reason="stop")]
    ),
    "filtered_with_text": OddAnswer([SAID, chunk({}, "content_filter"), DONE]),
}
CHAT_CALLS: Mapping[str, tuple[OddAnswer, str]] = {
    name: (OddAnswer(events), results)
    for name, (events, results) in {
        "name_in_parts": (
            [
                chunk(named(ECHO[:4], id="a")),
                chunk(named(ECHO[4:])),
                chunk(calls(more(arguments("x"), index=0))),
                *END,
            ],
            "x",
        ),
        "name_in_parts_with_id": (
            [chunk(named(ECHO[:4], id="a")), chunk(named(ECHO[4:], arguments("x"), id="a")), *END],
            "x",
        ),
        "index_a_text": (
            [
                chunk(
                    calls(
                        {"index": "0", "id": "a", "function": BEGIN},
                        {"index": "1", "id": "b", "function": BEGIN},
                    )
                ),
                chunk(calls(more(arguments("x"), index="0"), more(arguments("y"), index="1"))),
                *END,
            ],
            "x y",
        ),
        "empty_object_first": (
            [chunk(named(ECHO, "{}", id="a")), chunk(calls(more(arguments("x"), index=0))), *END],
            "x",
        ),
        "call_again": ([CALL, CALL, *END], "x"),
        "call_again_as_message": (
            [CALL, choice(index=0, message=calls(call("x", id="a")), finish_reason="stop"), DONE],
            "x",
        ),
        "call_in_both_forms": (
            [
                chunk(
                    {
                        **calls(call("x", index=0, id="a")),
                        "function_call": {"name": ECHO, "arguments": arguments("x")},
                    }
                ),
                *END,
            ],
            "x",
        ),
        "json_in_json": ([chunk(named(ECHO, json.dumps(arguments("x")), id="a")), *END], "x"),
    }.items()
}
CHAT_FAILURES: Mapping[str, tuple[OddAnswer, str, int]] = {
    "filtered": (
        OddAnswer([chunk({}, "content_filter"), DONE]),
        f"{EMPTY} (finish_reason content_filter)",
        1,
    ),
    "length_of_thoughts": (
        OddAnswer([chunk({"reasoning_content": "hm"}), chunk({}, "length"), DONE]),
        f"{EMPTY} (finish_reason length)",
        1,
    ),
    "only_thoughts": (OddAnswer([chunk({"reasoning_content": "hm"}), *TEXT_END]), "answer is empty", 2),
    "calls_without_calls": (OddAnswer([chunk({}, "tool_calls"), DONE]), "answer is empty", 2),
    "words_behind": (
        OddAnswer(body=stream([HALF]) + "Bad gateway"),
        "behind its events it sent 'Bad gateway'",
        3,
    ),
    "json_behind": (OddAnswer(body=stream([HALF]) + json.dumps({"error": {"message": WORDS}})), WORDS, 3),
    "page_behind": (OddAnswer(body=stream([HALF]) + "<html>"), "an HTML page", 3),
    "error_event_of_words": (
        OddAnswer(body=stream([HALF]) + f"event: error\ndata: {WORDS}\n\n"),
        f"failed ({WORDS})",
        3,
    ),
    "error_not_first": (OddAnswer(body=json.dumps([SAID, {"error": WORDS}]), kind=JSON), WORDS, 3),
    "encoded_twice": (
        OddAnswer(body=b"", encoding="gzip, gzip"),
        "no usable answer (the answer is encoded",
        1,
    ),
    "not_encoded": (OddAnswer(body=WHOLE, encoding="gzip"), "not encoded as its Content-Encoding", 1),
    "xml": (OddAnswer(body=f"<?xml version='1.0'?><Error>{WORDS}</Error>", kind="application/xml"), WORDS, 1),
}

TEXT = {"type": "text", "text": ""}


def delta(part: Any, index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": part}


SAID_DELTA = delta({"type": "text_delta", "text": "answer"})
STOP = {"type": "content_block_stop", "index": 0}
ENDED = stopped("end_turn")
MESSAGE_TEXTS: Mapping[str, OddAnswer] = {
    name: OddAnswer(events)
    for name, events in {
        "m_text_in_its_start": [
            START,
            started(0, {**TEXT, "text": "ans"}),
            delta({"type": "text_delta", "text": "wer"}),
            STOP,
            *ENDED,
        ],
        "m_text_null": [
            START,
            started(0, {**TEXT, "text": None}),
            delta({"type": "text_delta", "text": None}),
            SAID_DELTA,
            STOP,
            *ENDED,
        ],
        "m_thinking_null": [
            START,
            started(0, {"type": "thinking", "thinking": None}),
            delta({"type": "thinking_delta", "thinking": None}),
            STOP,
            started(1, TEXT),
            delta(SAID_DELTA["delta"], 1),
            *ENDED,
        ],
        "m_delta_null": [START, started(0, TEXT), delta(None), SAID_DELTA, STOP, *ENDED],
        "m_unknown_block": [
            START,
            started(0, {"type": "hologram"}),
            delta({"type": "hologram_delta"}),
            STOP,
            started(1, TEXT),
            delta(SAID_DELTA["delta"], 1),
            *ENDED,
        ],
        "m_no_message_start": [started(0, TEXT), SAID_DELTA, STOP, *ENDED],
        "m_no_block_start": [START, SAID_DELTA, STOP, *ENDED],
        "m_no_index": [
            START,
            {"type": "content_block_start", "content_block": TEXT},
            {"type": "content_block_delta", "delta": SAID_DELTA["delta"]},
            {"type": "content_block_stop"},
            *ENDED,
        ],
        "m_started_twice": [START, START, started(0, TEXT), SAID_DELTA, STOP, *ENDED],
        "m_data_null": [START, "null", "[]", started(0, TEXT), SAID_DELTA, STOP, *ENDED],
    }.items()
}
MESSAGE_CALLS: Mapping[str, tuple[OddAnswer, str]] = {
    name: (OddAnswer([START, *events]), results)
    for name, (events, results) in {
        "m_whole_at_the_limit": ([*used(0, "a", "x"), *stopped("max_tokens")], "x"),
        "m_pause_turn": ([*used(0, "a", "x"), *stopped("pause_turn")], "x"),
        "m_reason_null": (
            [
                *used(0, "a", "x"),
                {"type": "message_delta", "delta": {"stop_reason": None}},
                {"type": "message_stop"},
            ],
            "x",
        ),
        "m_no_reason": ([*used(0, "a", "x"), {"type": "message_stop"}], "x"),
        "m_blocks_never_stop": (
            [*used(0, "a", "x")[:2], *used(1, "b", "y")[:2], *stopped("tool_use")],
            "x y",
        ),
        "m_input_an_object": (
            [
                used(0, "a", "x")[0],
                delta({"type": "input_json_delta", "partial_json": {"text": "x"}}),
                STOP,
                *ENDED,
            ],
            "x",
        ),
    }.items()
}
MESSAGE_FAILURES: Mapping[str, tuple[OddAnswer, str, int]] = {
    "m_refusal": (OddAnswer([START, *stopped("refusal")]), f"{EMPTY} (its stop reason is a filter", 1),
    "m_limit": (OddAnswer([START, *stopped("max_tokens")]), f"{EMPTY} (its stop reason is the limit", 1),
    "m_words_behind": (OddAnswer(body=stream(HALF_MESSAGE) + "Bad gateway"), "it sent 'Bad gateway'", 3),
    "m_error_of_words": (OddAnswer([*HALF_MESSAGE, {"type": "error", "error": WORDS}]), WORDS, 3),
}

CREATED = {"type": "response.created", "response": response("in_progress")}
SPOKEN = {
    "type": "message",
    "id": "m",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "answer", "annotations": []}],
}
OVER = done(response("completed", SPOKEN))
PIECE = {
    "type": "response.output_text.delta",
    "delta": "answer",
    "item_id": "m",
    "output_index": 0,
    "content_index": 0,
}
ITEM = {"type": "response.output_item.added", "output_index": 0, "item": {**SPOKEN, "content": []}}
X, Y = function_call(0, "a", "x"), function_call(1, "b", "y")
RESPONSE_TEXTS: Mapping[str, OddAnswer] = {
    name: OddAnswer(events)
    for name, events in {
        "r_no_part_added": [CREATED, ITEM, PIECE, OVER],
        "r_no_item_added": [CREATED, PIECE, OVER],
        "r_not_created": [ITEM, PIECE, OVER],
        "r_only_completed": [OVER],
        "r_done": [CREATED, ITEM, PIECE, {**OVER, "type": "response.done"}],
        "r_delta_null": [CREATED, {**PIECE, "delta": None}, PIECE, OVER],
        "r_unknown_item": [
            CREATED,
            done(response("completed", {"type": "hologram_call", "id": "h"}, SPOKEN)),
        ],
        "r_data_null": [CREATED, "null", ITEM, PIECE, OVER],
    }.items()
}
RESPONSE_CALLS: Mapping[str, tuple[OddAnswer, str]] = {
    "r_end_missing": (OddAnswer([*items(X, Y)[:-1], DONE]), "x y"),
    "r_output_missing": (OddAnswer([*items(X)[:-1], done(response("completed"))]), "x"),
}
RESPONSE_FAILURES: Mapping[str, tuple[OddAnswer, str, int]] = {
    "r_limit": (
        OddAnswer(
            [
                CREATED,
                {
                    "type": "response.incomplete",
                    "response": response("incomplete", incomplete_details={"reason": "max_output_tokens"}),
                },
            ]
        ),
        f"{EMPTY} (its stop reason is the limit",
        1,
    ),
    "r_nothing": (OddAnswer([CREATED, done(response("completed"))]), "answer is empty", 2),
    "r_null": (
        OddAnswer([CREATED, {"type": "response.completed", "response": None}]),
        "holds no response",
        3,
    ),
    "r_cancelled": (
        OddAnswer([*HALF_RESPONSE, {"type": "response.cancelled", "response": response("cancelled")}]),
        "it reported response.cancelled",
        3,
    ),
    "r_failed_without_a_response": (
        OddAnswer([CREATED, {"type": "response.failed"}]),
        "it reported response.failed",
        3,
    ),
}

PART = {"text": "answer"}
OTHER_CANDIDATE = {
    "index": 1,
    "content": {"role": "model", "parts": [{"text": "other"}]},
    "finishReason": "STOP",
}
SAID_CANDIDATE = candidate(PART, finish="STOP")
CANDIDATE_TEXTS: Mapping[str, OddAnswer] = {
    "g_bom": OddAnswer(body="\ufeff" + stream([SAID_CANDIDATE])),
    "g_data_null": OddAnswer(["null", SAID_CANDIDATE]),
    "g_list": OddAnswer(
        body=json.dumps([candidate({"text": "ans"}), candidate({"text": "wer"}, finish="STOP")]), kind=JSON
    ),
    "g_signature_not_base64": OddAnswer(
        [candidate({**PART, "thoughtSignature": "not base64!"}, finish="STOP")]
    ),
    "g_unknown_end": OddAnswer([candidate(PART, finish="WEIRD_NEW")]),
    "g_usage_of_words": OddAnswer([{**SAID_CANDIDATE, "usageMetadata": "x"}]),
    "g_second_first": OddAnswer([{"candidates": [OTHER_CANDIDATE, *SAID_CANDIDATE["candidates"]]}]),
}
CANDIDATE_CALLS: Mapping[str, tuple[OddAnswer, str]] = {
    "g_id_a_number": (OddAnswer([candidate(function("x", id=7), finish="STOP")]), "x"),
}
CANDIDATE_FAILURES: Mapping[str, tuple[OddAnswer, str, int]] = {
    "g_safety": (OddAnswer([candidate(finish="SAFETY")]), f"{EMPTY} (finishReason SAFETY)", 1),
    "g_limit": (OddAnswer([candidate(finish="MAX_TOKENS")]), f"{EMPTY} (its stop reason is the limit", 1),
    "g_blocked": (
        OddAnswer([{"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": WORDS}}]),
        f"{EMPTY} (blockReason SAFETY: {WORDS})",
        1,
    ),
    "g_malformed": (
        OddAnswer(
            [
                candidate({"text": "half"}),
                {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": WORDS}]},
            ]
        ),
        f"finishReason MALFORMED_FUNCTION_CALL: {WORDS}",
        3,
    ),
    "g_no_name": (
        OddAnswer([candidate({"functionCall": {"args": {}}}, finish="STOP")]),
        "without its name",
        3,
    ),
}

MORE_TEXTS = {
    "chat": CHAT_TEXTS,
    "openai": CHAT_TEXTS,
    "messages": MESSAGE_TEXTS,
    "responses": RESPONSE_TEXTS,
    "gemini": CANDIDATE_TEXTS,
}
MORE_CALLS = {
    "chat": CHAT_CALLS,
    "openai": CHAT_CALLS,
    "messages": MESSAGE_CALLS,
    "responses": RESPONSE_CALLS,
    "gemini": CANDIDATE_CALLS,
}
MORE_ERRORS = {
    "chat": CHAT_FAILURES,
    "openai": CHAT_FAILURES,
    "messages": MESSAGE_FAILURES,
    "responses": RESPONSE_FAILURES,
    "gemini": CANDIDATE_FAILURES,
}


def more_answers() -> dict[str, OddAnswer]:
    """All of them, by name."""
    found: dict[str, OddAnswer] = {}
    for agent, texts in MORE_TEXTS.items():
        found |= texts
        found |= {name: odd for name, (odd, _) in MORE_CALLS[agent].items()}
        found |= {name: odd for name, (odd, _, _) in MORE_ERRORS[agent].items()}
    return found
