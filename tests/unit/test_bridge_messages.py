"""JSON-RPC on the lines of the stdio bridge: eras, headers, and how a Fault is told."""

import json

from mcp.shared.inbound import decode_header_value

from pallas.client.stdio_bridge.jsonrpc_lines import error, failed, headers_of, modern, one_line_of
from pallas.model import Fault, FaultType

META = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}


def test_the_newer_protocol_is_known_by_its_envelope_and_said_in_headers() -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "bridge_health", **META}}
    assert modern(call) == "2026-07-28"
    assert headers_of(call) == {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "bridge_health",
    }
    odd = headers_of({"method": "tools/call", "params": {"name": " Zoë\n", **META}})["mcp-name"]
    assert odd.isascii()
    assert decode_header_value(odd) == " Zoë\n"


def test_the_handshake_era_has_no_headers_of_its_messages() -> None:
    for call in ({"method": "tools/list"}, {"method": "ping", "params": {"_meta": 7}}, {"method": "x"}):
        assert modern(call) == ""
        assert headers_of(call) == {}


def test_a_call_that_came_to_nothing_has_a_result_with_the_whole_body() -> None:
    # DR-21
    fault = Fault(FaultType.TRANSPORT, "nothing answers\nthere")
    call = {"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"name": "x"}}
    line = failed(call, fault)
    assert b"\n" not in line
    told = json.loads(line)
    assert (told["id"], told["result"]["isError"]) == ("a", True)
    assert json.loads(told["result"]["content"][0]["text"]) == fault.to_body()
    listed = json.loads(failed({"id": 2, "method": "tools/list"}, fault))
    assert listed["error"]["code"] == -32000
    assert listed["error"]["data"] == {"type": "TRANSPORT", "retryable": True}


def test_each_message_is_one_line() -> None:
    assert one_line_of(' {"a": 1} ') == b'{"a": 1}'
    assert one_line_of('{"a":\n "b c"}') == b'{"a":"b c"}'
    assert json.loads(error(None, -32700, "no JSON")) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32700, "message": "no JSON"},
    }
