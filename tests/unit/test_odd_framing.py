"""Errors of servers as the SDK reads them: with a number, a text and no result beside them."""

import json
from typing import Any

import pytest
from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

from pallas.bounds import MAX_NODES
from pallas.mcp_client.odd_framing import lines_of, messages_in


def read(message: Any) -> Any:
    """What the SDK makes of a message."""
    (text,) = messages_in(json.dumps(message).encode())
    assert lines_of(json.dumps(message).encode() + b"\n") == text + b"\n"
    return jsonrpc_message_adapter.validate_json(text, by_name=False)


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
    assert messages_in(text) == [text]


def test_a_message_of_too_many_values_is_not_read_for_its_error() -> None:
    text = b'{"id": 1, "error": [' + b"{}," * MAX_NODES + b"{}]}"
    assert messages_in(text) == [text]
