"""Errors of servers as the SDK reads them: with a number, a text and no result beside them."""

import json
from typing import Any

import pytest
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCResponse, jsonrpc_message_adapter

from pallas.mcp_client.odd_framing import messages_in


def read(message: Any) -> Any:
    """What is made of a message."""
    (found,) = messages_in(json.dumps(message).encode())
    assert messages_in(json.dumps(message)) == [found]
    return found


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        ({"code": -32601, "message": "no such tool", "data": {"a": 1}}, -32601, "no such tool"),
        ({"code": "E_QUOTA", "message": "used up"}, -32603, "used up"),
        ({"code": True, "message": "used up"}, -32603, "used up"),
        ({"code": 10**40, "message": "used up"}, -32603, "used up"),
        ({"code": -32000.0, "message": "used up"}, -32000, "used up"),
        ({"message": "used up"}, -32603, "used up"),
        ({"code": 5}, 5, "5"),
        ({"code": 5, "message": None, "data": "used up"}, 5, "used up"),
        ({"code": 5, "message": {"text": "used up"}}, 5, '{"text": "used up"}'),
        ("used up", -32603, "used up"),
        (["used", "up"], -32603, '["used", "up"]'),
        (None, -32603, "null"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"result": None}])
def test_an_error_has_a_number_and_a_text(error: Any, code: int, text: str, more: Any) -> None:
    made = read({"jsonrpc": "2.0", "id": 7, **more, "error": error})
    assert isinstance(made, JSONRPCError)
    assert (made.id, made.error.code, made.error.message) == (7, code, text)


def test_a_result_beside_an_error_that_is_null_is_a_result() -> None:
    made = read({"jsonrpc": "2.0", "id": 7, "result": {"a": 1}, "error": None})
    assert isinstance(made, JSONRPCResponse) and made.result == {"a": 1}


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 7, "result": {"error": None}},
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"error": 5}},
        {"jsonrpc": "2.0", "id": 7, "error": {"code": -32601, "message": "no"}},
    ],
)
def test_what_is_sound_is_not_changed(message: Any) -> None:
    text = json.dumps(message, indent=1).encode()
    assert messages_in(text) == [jsonrpc_message_adapter.validate_json(text, by_name=False)]


ANSWER = JSONRPCResponse(jsonrpc="2.0", id=1, result={"a": 1})
WIRED = ANSWER.model_dump_json()


@pytest.mark.parametrize(
    "text",
    [
        '{"jsonrpc": "2.0", "id": 1.0, "result": {"a": 1}}',
        '{"id": 1, "result": {"a": 1}}',
        '{"jsonrpc": 2, "id": 1, "result": {"a": 1}}',
        '{"jsonrpc": "2.0", "id": 1, "method": null, "params": null, "result": {"a": 1}, "error": null}',
        f"\ufeff{WIRED}",
        f"[{WIRED}]",
        f"\x1b]0;npm\x07{WIRED}",
        f"{WIRED}\x1b[0m",
        f"\0{WIRED}\0",
        WIRED.encode("utf-16"),
        WIRED.encode("utf-8-sig"),
    ],
)
def test_an_answer_is_found_in_what_is_around_it(text: str | bytes) -> None:
    assert messages_in(text) == [ANSWER]


def test_messages_behind_each_other_are_all_read() -> None:
    said = JSONRPCNotification(jsonrpc="2.0", method="notifications/odd")
    assert messages_in(said.model_dump_json(exclude_none=True) + WIRED) == [said, ANSWER]


def test_half_an_emoji_and_bytes_that_are_no_text_cost_themselves() -> None:
    (half,) = messages_in('{"jsonrpc": "2.0", "id": 1, "result": {"a": "x\\ud83d"}}')
    assert isinstance(half, JSONRPCResponse) and half.result == {"a": "x?"}
    (broken,) = messages_in(b'{"jsonrpc": "2.0", "id": 1, "result": {"a": "x\xe4"}}')
    assert isinstance(broken, JSONRPCResponse) and broken.result == {"a": "x\ufffd"}


@pytest.mark.parametrize(
    "text",
    [
        "words",
        "",
        "[]",
        "{}",
        '{"level": "info"}',
        '{"jsonrpc": "2.0", "id": true, "result": {}}',
        '{"jsonrpc": "2.0", "id": 1',
        'got {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}',
    ],
)
def test_what_is_no_message_is_none(text: str) -> None:
    assert messages_in(text) == []
