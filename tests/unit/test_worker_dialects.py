"""Which dialect a worker speaks, and what becomes of what it says in the simple one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.worker_peer import joined

from pallas.config.kinds import Dialect, WorkerConfig
from pallas.executors import ExecutorTurn
from pallas.executors.worker.acp_dialect import AcpDialect
from pallas.executors.worker.json_rpc_peer import JsonRpcError
from pallas.executors.worker.turn_output import TurnOutput
from pallas.executors.worker.worker_connection import detect_dialect
from pallas.executors.worker.worker_dialect import SimpleDialect, session_id
from pallas.model import Fault, FaultType, Usage
from pallas.model.questions import Question

ACP = {"protocolVersion": 1, "agentCapabilities": {"promptCapabilities": {"image": True}}, "future": 1}


async def met(answer: dict[str, Any], dialect: Dialect = "auto") -> Any:
    """The dialect of a worker that answers the handshake with that."""
    config = WorkerConfig(("worker",), Path.cwd(), dialect=dialect)
    async with joined() as (peer, other):
        greeting = asyncio.create_task(detect_dialect("coder", config, peer))
        hello = await other.read()
        assert hello["method"] == "initialize"
        assert hello["params"]["protocolVersion"] == 1
        assert not any(hello["params"]["clientCapabilities"]["fs"].values())
        assert hello["params"]["clientCapabilities"]["terminal"] is False
        other.write({"jsonrpc": "2.0", "id": hello["id"], **answer})
        return await greeting


@pytest.mark.parametrize(
    "error",
    [
        {"code": -32601, "message": "nope"},
        {"code": 1, "message": "Unknown method: initialize"},
        {"code": -32600, "message": "the method 'initialize' is not supported"},
    ],
)
async def test_an_error_that_says_there_is_no_such_method_is_the_simple_dialect(
    error: dict[str, Any],
) -> None:
    # DR-28
    assert isinstance(await met({"error": error}), SimpleDialect)


async def test_an_answer_without_a_version_is_the_simple_dialect_and_may_say_what_it_can() -> None:
    found = await met({"result": {"model": "m\x1b1", "capabilities": ["coding", 7, "", "te\u202exts"]}})
    assert isinstance(found, SimpleDialect)
    assert (found.model, found.capabilities) == ("m␛1", ("coding", "te\\u202exts"))
    assert isinstance(await met({"result": None}), SimpleDialect)


async def test_a_version_is_acp_if_it_is_understood() -> None:
    # DR-30
    found = await met({"result": ACP})
    assert type(found).__name__ == "AcpDialect"
    assert found.vision
    with pytest.raises(
        Fault, match=r"speaks version 2 of the Agent Client Protocol, and Pallas speaks version 1"
    ) as caught:
        await met({"result": {"protocolVersion": 2}})
    assert caught.value.type is FaultType.CONFIG
    with pytest.raises(Fault, match=r"answer to initialize cannot be read: protocolVersion"):
        await met({"result": {"protocolVersion": "x"}})


async def test_what_is_neither_is_a_fault_with_the_way_out() -> None:
    error = {"error": {"code": -32603, "message": "Authentication method required"}}
    with pytest.raises(Fault, match=r"with an error: Authentication method required; set dialect: ndjson"):
        await met(error)
    with pytest.raises(Fault, match=r"has no protocolVersion: \{'ok': True\}; set dialect: ndjson"):
        await met({"result": {"ok": True}}, "acp")
    with pytest.raises(Fault, match=r"with an error: nope"):
        await met({"error": {"code": -32601, "message": "nope"}}, "acp")


async def test_an_acp_workers_error_is_told_with_its_details() -> None:
    # What libraries of that protocol put there when the worker's own code raises.
    refused = JsonRpcError(-32603, "Internal error", {"details": "no home\x1b[2J\nhere"})
    async with joined() as (peer, _):
        acp = AcpDialect("coder", WorkerConfig(("worker",), Path.cwd()), peer, ACP)
        fault = acp.fault(refused, "session/new")
        assert acp.fault(JsonRpcError(-32603, "Internal error", {}), "x").message.endswith("Internal error")
    assert "session/new with an error: Internal error (no home" in fault.message
    assert "\x1b" not in fault.message and "\n" not in fault.message


@pytest.mark.parametrize(
    ("refused", "kind", "retryable"),
    [
        (JsonRpcError(-32003, "no key"), FaultType.AUTH, False),
        (JsonRpcError(-32004, "no model"), FaultType.CONFIG, False),
        (JsonRpcError(-32001, "late"), FaultType.TIMEOUT, True),
        (JsonRpcError(-32002, "busy", {"retryable": True}), FaultType.UPSTREAM, True),
        (JsonRpcError(-32000, "gone", {"type": "TRANSPORT"}), FaultType.TRANSPORT, True),
        (JsonRpcError(1, "odd", {"type": ["TRANSPORT"], "retryable": "yes"}), FaultType.UPSTREAM, False),
    ],
)
async def test_its_errors_have_the_type_that_they_name(
    refused: JsonRpcError, kind: FaultType, retryable: bool
) -> None:
    async with joined() as (peer, _):
        fault = SimpleDialect("coder", WorkerConfig(("worker",), Path.cwd()), peer).fault(
            refused, "session/prompt"
        )
    assert (fault.type, fault.retryable) == (kind, retryable)
    assert fault.data["upstreamCode"] == refused.code


@pytest.mark.parametrize(
    "result",
    [None, [], "text", {"text": "x"}, {"stopReason": "end_turn"}, {"text": 1, "stopReason": "end_turn"}],
)
async def test_a_malformed_answer_is_a_fault(result: Any) -> None:
    # DR-28
    async with joined() as (peer, _):
        simple = SimpleDialect("coder", WorkerConfig(("worker",), Path.cwd()), peer)
        output = TurnOutput(ExecutorTurn("r", "coder", "hi"), lambda _: None, 100)
        with pytest.raises(Fault) as caught:
            simple.parse_answer(result, output)
        assert caught.value.message == "Invalid worker response: malformed prompt result"
        good = {"text": "x", "stopReason": "max_tokens", "usage": {"inputTokens": 3, "outputTokens": 10**30}}
        paid = {**good, "usage": {"inputTokens": 3, "costUsd": "0.25"}}
        answer = simple.parse_answer(good, output)
        cost = simple.parse_answer(paid, output).usage
        absurd = {**good, "usage": {"inputTokens": 3, "costUsd": "9e9"}}
        unknown = simple.parse_answer(absurd, output).usage
    assert (answer.texts, answer.stop_reason) == (("x",), "maxTokens")
    assert unknown == Usage(3, None, None, unpriced=1)
    assert (answer.usage, cost) == (Usage(3, None, unpriced=1), Usage(3, None, 250_000_000))


def test_a_session_has_an_id_that_can_be_kept() -> None:
    assert session_id("coder", {"sessionId": "s" * 1000}) == "s" * 1000
    with pytest.raises(Fault, match="1,001 characters"):
        session_id("coder", {"sessionId": "s" * 1001})


async def test_a_turn_costs_what_a_session_costs_more_than_before() -> None:
    async with joined() as (peer, _):
        acp = AcpDialect("coder", WorkerConfig(("worker",), Path.cwd()), peer, {"protocolVersion": 1})

        def turn(*costs: tuple[str, float, str]) -> Usage:
            output = TurnOutput(ExecutorTurn("r", "coder", "hi"), lambda _: None, 100)
            for session, amount, currency in costs:
                cost = {"amount": amount, "currency": currency}
                update = {"sessionUpdate": "usage_update", "used": 1, "size": 9, "cost": cost}
                found = acp.parse_update({"sessionId": session, "update": update})
                assert found is not None
                acp.report(found[1], output)
            usage = {"totalTokens": 5, "inputTokens": 3, "outputTokens": 2}
            return acp.parse_answer({"stopReason": "end_turn", "usage": usage}, output).usage

        assert turn(("s", 0.1, "USD"), ("s", 0.25, "USD")) == Usage(3, 2, 250_000_000)
        assert turn(("s", 0.3, "usd")) == Usage(3, 2, 50_000_000)
        assert turn(("other", 0.3, "USD")) == Usage(3, 2, 300_000_000)
        # Another currency is no price that is known.
        assert turn(("s", 9.0, "EUR")) == turn() == Usage(3, 2, unpriced=1)


class Asked:
    """Remembers what people are asked, and says no."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    async def approve(self, **call: Any) -> Question:
        """Decline it."""
        self.calls.append(call)
        return Question("q-1", "approval", "r", "coder", state="answered", action="decline")

    async def form(self, **_: Any) -> Question:
        """Nobody asks this."""
        raise AssertionError


async def test_a_title_that_is_longer_than_its_label_is_shown_whole_and_is_a_tool_of_its_own() -> None:
    people = Asked()
    output = TurnOutput(ExecutorTurn("r", "coder", "hi", people=people), lambda _: None, 100)
    titles = ["ls", f"ls {'x' * 90} && make", f"ls {'x' * 90} && rm -rf /", "ls\nrm -rf /"]
    for title in titles:
        await output.approval("c", title=title, kind="execute", given={})
    tools = [each["tool"] for each in people.calls]
    assert tools[0] == "execute__ls"
    assert len(set(tools)) == 4
    assert people.calls[0]["arguments"] == {}
    assert [each["arguments"]["title"] for each in people.calls[1:]] == titles[1:]
