"""Odd answers of model servers, by dialect: with calls and the results that they have, and with errors.

An error is the answer, words of what a caller reads, and how often the server is asked.
"""

import json
from collections.abc import Mapping
from typing import Any

from .odd_models import DONE, ECHO, JSON, OddAnswer


def chunk(delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**head, "choices": [choice], **more}


def arguments(text: str) -> str:
    return json.dumps({"text": text})


def call(text: Any, **more: Any) -> dict[str, Any]:
    """One element of ``tool_calls``, whole. A text that is no string is what the arguments are."""
    given = arguments(text) if isinstance(text, str) else text
    return {"type": "function", "function": {"name": ECHO, "arguments": given}, **more}


def calls(*given: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": list(given)}


def more(text: str, **keys: Any) -> dict[str, Any]:
    """A later piece of a call, without its name."""
    return {"function": {"arguments": text}, **keys}


END = [chunk({}, "tool_calls"), DONE]
TEXT_END = [chunk({}, "stop"), DONE]
BEGIN = {"name": ECHO, "arguments": ""}
CHAT: dict[str, tuple[OddAnswer, str]] = {
    name: (OddAnswer(events), results)
    for name, (events, results) in {
        "one_index": (
            [chunk(calls(call("x", index=0, id="a"))), chunk(calls(call("y", index=0, id="b"))), *END],
            "x y",
        ),
        "one_id": (
            [chunk(calls(call("x", index=0, id="a"))), chunk(calls(call("y", index=1, id="a"))), *END],
            "x y",
        ),
        "one_index_one_id": (
            [chunk(calls(call("x", index=0, id="a"))), chunk(calls(call("y", index=0, id="a"))), *END],
            "x y",
        ),
        "no_index": ([chunk(calls(call("x", id="a"), call("y", id="b"))), *END], "x y"),
        "no_id": ([chunk(calls(call("x", index=0), call("y", index=1))), *END], "x y"),
        "neither": ([chunk(calls(call("x"), call("y"))), *END], "x y"),
        "neither_in_two_pieces": ([chunk(calls(call("x"))), chunk(calls(call("y"))), *END], "x y"),
        "empty_id": (
            [chunk(calls(call("x", index=0, id=""))), chunk(calls(call("y", index=1, id=""))), *END],
            "x y",
        ),
        "one_index_in_pieces": (
            [
                chunk(calls({"index": 0, "id": "a", "type": "function", "function": BEGIN})),
                chunk(calls(more('{"text": "x', index=0))),
                chunk(calls(more('"}', index=0))),
                chunk(calls({"index": 0, "id": "b", "type": "function", "function": BEGIN})),
                chunk(calls(more('{"text": "y"}', index=0))),
                *END,
            ],
            "x y",
        ),
        "interleaved_by_id": (
            [
                chunk(
                    calls(
                        {"index": 0, "id": "a", "function": BEGIN}, {"index": 0, "id": "b", "function": BEGIN}
                    )
                ),
                chunk(calls(more('{"text": "x', index=0, id="a"), more('{"text": "y', index=0, id="b"))),
                chunk(calls(more('"}', index=0, id="a"), more('"}', index=0, id="b"))),
                *END,
            ],
            "x y",
        ),
        "id_and_name_again": (
            [
                chunk(calls({"index": 0, "id": "a", "function": {"name": ECHO, "arguments": '{"te'}})),
                chunk(calls({"index": 0, "id": "a", "function": {"name": ECHO, "arguments": 'xt": "x"}'}})),
                *END,
            ],
            "x",
        ),
        "new_id_each_piece": (
            [
                chunk(calls({"index": 0, "id": "a", "function": BEGIN})),
                chunk(calls(more('{"text": "x"', index=0, id="b"))),
                chunk(calls(more("}", index=0, id="c"))),
                *END,
            ],
            "x",
        ),
        "id_after_the_name": (
            [
                chunk(calls({"index": 0, "function": BEGIN})),
                chunk(calls(more(arguments("x"), index=0, id="a"))),
                *END,
            ],
            "x",
        ),
        "pieces_without_keys": (
            [chunk(calls({"id": "a", "function": BEGIN})), chunk(calls(more(arguments("x")))), *END],
            "x",
        ),
        "a_call_that_is_an_object": ([chunk({"tool_calls": call("x", index=0, id="a")}), *END], "x"),
        "finish_stop": ([chunk(calls(call("x", index=0, id="a"))), chunk({}, "stop"), DONE], "x"),
        "finish_function_call": (
            [chunk(calls(call("x", index=0, id="a"))), chunk({}, "function_call"), DONE],
            "x",
        ),
        "finish_length": ([chunk(calls(call("x", index=0, id="a"))), chunk({}, "length"), DONE], "x"),
        "finish_unknown": ([chunk(calls(call("x", index=0, id="a"))), chunk({}, "eos"), DONE], "x"),
        "finish_with_the_call": ([chunk(calls(call("x", index=0, id="a")), "stop"), DONE], "x"),
        "finish_before_the_call": ([chunk({}, "stop"), chunk(calls(call("x", index=0, id="a"))), DONE], "x"),
        "finish_never": ([chunk(calls(call("x", index=0, id="a"))), DONE], "x"),
        "finish_twice": ([chunk(calls(call("x", index=0, id="a"))), chunk({}, "tool_calls"), *END], "x"),
        "old_function_call": (
            [
                chunk({"function_call": {"name": ECHO, "arguments": '{"text":'}}),
                chunk({"function_call": {"arguments": ' "x"}'}}),
                chunk({}, "function_call"),
                DONE,
            ],
            "x",
        ),
        "arguments_object": ([chunk(calls(call({"text": "x"}, index=0, id="a"))), *END], "x"),
        "no_done": ([chunk(calls(call("x", index=0, id="a"))), chunk({}, "tool_calls")], "x"),
        "a_whole_message": (
            [
                {
                    "id": "c",
                    "choices": [{"index": 0, "message": calls(call("x", id="a")), "finish_reason": "stop"}],
                },
                DONE,
            ],
            "x",
        ),
    }.items()
}
CHAT["not_streamed"] = (
    OddAnswer(
        body=json.dumps(
            {
                "id": "c",
                "object": "chat.completion",
                "choices": [
                    {
                        "index": 0,
                        "message": {
                            "role": "assistant",
                            "content": None,
                            **calls(call("x", id="a"), call("y", id="a")),
                        },
                        "finish_reason": "stop",
                    }
                ],
            }
        ),
        kind=JSON,
    ),
    "x y",
)

TEXTS: dict[str, list[Any]] = {
    "delta_null": [chunk(None), chunk({"content": "answer"}), *TEXT_END],
    "delta_missing": [{"id": "c", "choices": [{"index": 0}]}, chunk({"content": "answer"}), *TEXT_END],
    "choices_null": [{"id": "c", "choices": None}, chunk({"content": "answer"}), *TEXT_END],
    "choices_missing": [{"id": "c", "usage": None}, {}, chunk({"content": "answer"}), *TEXT_END],
    "choice_null": [{"id": "c", "choices": [None]}, chunk({"content": "answer"}), *TEXT_END],
    "calls_null": [chunk({"content": "answer", "tool_calls": None}), *TEXT_END],
    "calls_of_null": [chunk({"content": "answer", "tool_calls": [None]}), *TEXT_END],
    "calls_without_function": [chunk({"content": "answer", "tool_calls": []}), *TEXT_END],
    "index_missing": [{"id": "c", "choices": [{"delta": {"content": "answer"}}]}, *TEXT_END],
    "content_of_parts": [
        chunk({"content": [{"type": "text", "text": "ans"}, {"type": "text", "text": "wer"}]}),
        *TEXT_END,
    ],
    "content_a_number": [chunk({"content": "answer"}), chunk({"content": None, "role": 7}), *TEXT_END],
    "finish_empty": [chunk({"content": "answer"}, ""), *TEXT_END],
    "only_done": [chunk({"content": "answer"}), DONE],
    "good_news_of_minimax": [
        chunk({"content": "answer"}),
        chunk({}, "stop", base_resp={"status_code": 0, "status_msg": ""}),
        DONE,
    ],
    "only_finish": [chunk({"content": "answer"}, "stop")],
    "empty_data": ["", chunk({"content": "answer"}), *TEXT_END],
}


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


HALF = chunk({"content": "half"})
WORDS = "No endpoint supports tools"
CHAT_ERRORS: dict[str, tuple[OddAnswer, str, int]] = {
    "error_200": (OddAnswer(body=json.dumps(error(WORDS, code=404)), kind=JSON), WORDS, 1),
    "error_200_as_events": (OddAnswer(body=json.dumps(error(WORDS, code=404))), WORDS, 1),
    "error_200_as_text": (OddAnswer(body=json.dumps({"error": WORDS}), kind="text/plain"), WORDS, 3),
    "error_in_a_list": (OddAnswer(body=json.dumps([error(WORDS, code=400)]), kind=JSON), WORDS, 1),
    "error_object": (
        OddAnswer([HALF, {"object": "error", "message": "engine died", "code": 500}]),
        "engine died",
        3,
    ),
    "error_late": (OddAnswer([HALF, error("credit used up", code=402), DONE]), "credit used up", 1),
    "error_typed": (OddAnswer([HALF, error("slow down", type="rate_limit_exceeded")]), "slow down", 3),
    "error_in_a_choice": (
        OddAnswer(
            [
                HALF,
                {
                    "id": "c",
                    "choices": [
                        {
                            "index": 0,
                            "delta": {"content": ""},
                            "finish_reason": "error",
                            "error": {"code": 502, "message": "upstream away"},
                        }
                    ],
                },
                DONE,
            ]
        ),
        "upstream away",
        3,
    ),
    "error_of_minimax": (
        OddAnswer(
            body=json.dumps(
                {"choices": None, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}
            ),
            kind=JSON,
        ),
        "insufficient balance",
        1,
    ),
    "error_of_minimax_late": (
        OddAnswer([HALF, {"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}, DONE]),
        "rate limit",
        3,
    ),
    "error_a_text": (OddAnswer([HALF, {"error": "out of memory"}, DONE]), "out of memory", 3),
    "error_in_detail": (
        OddAnswer(body='{"detail": "Model m is not loaded"}', kind=JSON),
        "Model m is not loaded",
        3,
    ),
    "error_with_raw": (
        OddAnswer([error("Provider returned error", code=400, metadata={"raw": "context too long"})]),
        "context too long",
        1,
    ),
    "error_finish": (OddAnswer([HALF, chunk({}, "error"), DONE]), "finish_reason", 3),
    "empty": (
        OddAnswer(
            body=json.dumps(
                {
                    "choices": [
                        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ""}}
                    ]
                }
            ),
            kind=JSON,
        ),
        "the model's answer is empty",
        2,
    ),
    "empty_stream": (OddAnswer(body=""), "ended before it had any text", 3),
    "nodone": (OddAnswer([chunk({"content": "all of it"})]), "broke off after 9 characters", 3),
    "cut_in_a_call": (
        OddAnswer([chunk(calls({"index": 0, "id": "a", "function": {"name": ECHO, "arguments": '{"te'}}))]),
        "ended",
        3,
    ),
    "html": (OddAnswer(body="<!doctype html><title>Sign in</title>", kind="text/html"), "HTML", 1),
    "html_as_events": (OddAnswer(body="<html>Sign in</html>"), "HTML", 1),
    "badjson": (OddAnswer(["{not json}"]), "not JSON", 1),
    "json_no_answer": (OddAnswer(body='{"hello": 1}', kind=JSON), "not a model's answer", 1),
    "plain_words": (OddAnswer(body="upstream is busy", kind="text/plain"), "upstream is busy", 1),
}


UNREADABLE = {
    "cut": '{"text": "ab',
    "cut_behind_a_value": '{"text": "ab", "more": ',
    "list": '["ab"]',
    "text": '"ab"',
    "quotes": "{'text': 'ab'}",
    "fence": '```json\n{"text": "ab"}\n```',
    "two": '{"text": "a"}{"text": "b"}',
    "words_behind": '{"text": "ab"} rm',
}
"""Arguments that are not one JSON object."""


def unreadable(text: str) -> dict[str, OddAnswer]:
    """For each agent, a whole call and one with those arguments, in this order."""
    broken = {"function": {"name": ECHO, "arguments": text}, "index": 1, "id": "b"}
    chat = [chunk(calls(call("x", index=0, id="a"))), chunk(calls(broken)), *END]
    messages = [START, *used(0, "a", "x"), *used(1, "b", text, is_json=True), *stopped("tool_use")]
    second = {**function_call(1, "b", "y"), "arguments": text}
    return {
        "chat": OddAnswer(chat),
        "openai": OddAnswer(chat),
        "messages": OddAnswer(messages),
        "responses": OddAnswer(items(function_call(0, "a", "x"), second)),
        "gemini": OddAnswer(
            [candidate(function("x"), {"functionCall": {"name": ECHO, "args": text}}, finish="STOP")]
        ),
    }


def cut_by_the_limit() -> dict[str, OddAnswer]:
    """A call in whose middle the answer reached its limit of tokens."""
    call = {"index": 0, "id": "a", "function": {"name": ECHO, "arguments": '{"te'}}
    return {"cut_call": OddAnswer([chunk(calls(call)), chunk({}, "length"), DONE])}


def started(index: int, block: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def used(index: int, ident: str, text: str, *, is_json: bool = False) -> list[dict[str, Any]]:
    """A call of a tool in Messages."""
    head = {"type": "tool_use", "id": ident, "name": ECHO, "input": {}}
    delta = {"type": "input_json_delta", "partial_json": text if is_json else arguments(text)}
    return [
        started(index, head),
        {"type": "content_block_delta", "index": index, "delta": delta},
        {"type": "content_block_stop", "index": index},
    ]


def stopped(reason: str) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]


USAGE = {"input_tokens": 1, "output_tokens": 1}
MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": USAGE,
}
START = {"type": "message_start", "message": MESSAGE}
HALF_MESSAGE = [
    START,
    started(0, {"type": "text", "text": ""}),
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half"}},
]


def response(status: str, *output: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": status,
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        **more,
    }


def function_call(number: int, call_id: str, text: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"f{number}",
        "call_id": call_id,
        "name": ECHO,
        "arguments": arguments(text),
        "status": "completed",
    }


def items(*output: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The events of a Responses stream with that output."""
    found: list[dict[str, Any]] = [{"type": "response.created", "response": response("in_progress")}]
    for index, item in enumerate(output):
        begun = {**item, "arguments": "", "status": "in_progress"}
        found.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        where = {"item_id": item["id"], "output_index": index}
        found.append({"type": "response.function_call_arguments.delta", "delta": item["arguments"], **where})
        found.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return [*found, done(response("completed", *output))]


def done(whole: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "response.completed", "response": whole}


HALF_RESPONSE = [
    {"type": "response.created", "response": response("in_progress")},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {"type": "message", "id": "m", "role": "assistant", "status": "in_progress", "content": []},
    },
    {
        "type": "response.content_part.added",
        "item_id": "m",
        "output_index": 0,
        "content_index": 0,
        "part": {"type": "output_text", "text": "", "annotations": []},
    },
    {
        "type": "response.output_text.delta",
        "delta": "half",
        "item_id": "m",
        "output_index": 0,
        "content_index": 0,
        "logprobs": [],
    },
]


def candidate(*parts: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    more = {"finishReason": finish} if finish else {}
    return {"candidates": [{"index": 0, "content": {"role": "model", "parts": list(parts)}, **more}]}


def function(text: str, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": ECHO, "args": {"text": text}, **more}}


OTHERS: dict[str, dict[str, tuple[OddAnswer, str]]] = {
    "messages": {
        "m_one_index": (
            OddAnswer([START, *used(0, "a", "x"), *used(0, "b", "y"), *stopped("tool_use")]),
            "x y",
        ),
        "m_one_id": (OddAnswer([START, *used(0, "a", "x"), *used(1, "a", "y"), *stopped("tool_use")]), "x y"),
        "m_end_turn": (OddAnswer([START, *used(0, "a", "x"), *stopped("end_turn")]), "x"),
        "m_no_stop": (OddAnswer([START, *used(0, "a", "x"), *stopped("tool_use")[:1]]), "x"),
        "m_no_usage": (
            OddAnswer(
                [
                    {"type": "message_start", "message": {**MESSAGE, "usage": None, "content": None}},
                    *used(0, "a", "x"),
                    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
                    {"type": "message_stop"},
                ]
            ),
            "x",
        ),
        "m_at_once": (
            OddAnswer(
                body=json.dumps(
                    {
                        **MESSAGE,
                        "content": [
                            {"type": "thinking", "thinking": "two of them", "signature": "s"},
                            {"type": "tool_use", "id": "a", "name": ECHO, "input": {"text": "x"}},
                            {"type": "tool_use", "id": "a", "name": ECHO, "input": {"text": "y"}},
                        ],
                        "stop_reason": "tool_use",
                    }
                ),
                kind=JSON,
            ),
            "x y",
        ),
    },
    "responses": {
        "r_one_id": (OddAnswer(items(function_call(0, "a", "x"), function_call(1, "a", "y"))), "x y"),
        "r_one_item": (
            OddAnswer(items(function_call(0, "a", "x"), {**function_call(0, "b", "y")})),
            "x y",
        ),
        "r_with_done": (OddAnswer([*items(function_call(0, "a", "x")), DONE]), "x"),
        "r_object": (
            OddAnswer(
                [
                    items()[0],
                    done(response("completed", {**function_call(0, "a", "x"), "arguments": {"text": "x"}})),
                ]
            ),
            "x",
        ),
    },
    "gemini": {
        "g_two_calls": (OddAnswer([candidate(function("x"), function("y"), finish="STOP")]), "x y"),
        "g_two_pieces": (
            OddAnswer([candidate(function("x")), candidate(function("y"), finish="STOP")]),
            "x y",
        ),
        "g_one_id": (
            OddAnswer([candidate(function("x", id="a"), function("y", id="a"), finish="STOP")]),
            "x y",
        ),
        "g_other_finish": (OddAnswer([candidate(function("x"), finish="OTHER")]), "x"),
        "g_end_apart": (OddAnswer([candidate(function("x")), candidate(finish="STOP")]), "x"),
    },
}
OTHER_ERRORS: dict[str, dict[str, tuple[OddAnswer, str, int]]] = {
    "messages": {
        "m_error": (
            OddAnswer(
                [
                    *HALF_MESSAGE,
                    {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
                ]
            ),
            "Overloaded",
            3,
        ),
        "m_refused": (
            OddAnswer([{"type": "error", "error": {"type": "invalid_request_error", "message": "bad tool"}}]),
            "bad tool",
            1,
        ),
        "m_error_200": (
            OddAnswer(
                body=json.dumps({"type": "error", **error("no such model", type="not_found_error")}),
                kind=JSON,
            ),
            "no such model",
            1,
        ),
        "m_cut": (OddAnswer(HALF_MESSAGE), "broke off after 4 characters", 3),
        "m_html": (OddAnswer(body="<html>Sign in</html>", kind="text/html"), "HTML", 1),
        "m_badjson": (OddAnswer([START, "{not json}"]), "not JSON", 1),
    },
    "responses": {
        "r_error": (
            OddAnswer([*HALF_RESPONSE, {"type": "error", "code": "server_error", "message": "engine died"}]),
            "engine died",
            3,
        ),
        "r_failed": (
            OddAnswer(
                [
                    *HALF_RESPONSE,
                    {
                        "type": "response.failed",
                        "response": response(
                            "failed", error={"code": "invalid_prompt", "message": "bad prompt"}
                        ),
                    },
                ]
            ),
            "bad prompt",
            1,
        ),
        "r_error_200": (
            OddAnswer(body=json.dumps(error("no such model", code=404)), kind=JSON),
            "no such model",
            1,
        ),
        "r_cut": (OddAnswer(HALF_RESPONSE), "broke off after 4 characters", 3),
        "r_html": (OddAnswer(body="<html>Sign in</html>", kind="text/html"), "HTML", 1),
        "r_badjson": (OddAnswer(["{not json}"]), "not JSON", 1),
    },
    "gemini": {
        "g_error": (
            OddAnswer([candidate({"text": "half"}), error("overloaded", code=503, status="UNAVAILABLE")]),
            "overloaded",
            3,
        ),
        "g_error_200": (
            OddAnswer(
                body=json.dumps([error("API key expired", code=400, status="INVALID_ARGUMENT")]), kind=JSON
            ),
            "API key expired",
            1,
        ),
        "g_cut": (OddAnswer([candidate({"text": "half"})]), "broke off after 4 characters", 3),
        "g_html": (OddAnswer(body="<html>Sign in</html>", kind="text/html"), "HTML", 1),
        "g_badjson": (OddAnswer(["{not json}"]), "not JSON", 1),
    },
}


CALLS = {"chat": CHAT, "openai": CHAT, **OTHERS}
ERRORS = {"chat": CHAT_ERRORS, "openai": CHAT_ERRORS, **OTHER_ERRORS}


def all_answers() -> dict[str, OddAnswer]:
    """All of them, by name."""
    found = {name: OddAnswer(events) for name, events in TEXTS.items()}
    for calls_of in CALLS.values():
        found |= {name: odd for name, (odd, _) in calls_of.items()}
    for errors_of in ERRORS.values():
        found |= {name: odd for name, (odd, _, _) in errors_of.items()}
    return found
