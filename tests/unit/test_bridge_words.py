"""The bridge's words: what its tools take, what is said of a wrong argument, and what they answer."""

import json
from typing import Any

import pytest
from support.served import text_of

from pallas.model import AgentInfo, Fault, FaultType, ProviderFacts, RunResult, SessionRecord, Usage
from pallas.surfaces.bridge.tool_arguments import Arguments
from pallas.surfaces.bridge.tool_documents import (
    agent_document,
    answer,
    document,
    failed_task,
    session_created,
    session_status,
    stop_reason,
)
from pallas.surfaces.bridge.tool_schemas import CREATE, DELEGATE, DISCOVER, HEALTH, PROMPT, TOOLS

SESSION = "0123456789abcdef0123456789abcdef"


def test_the_eight_take_what_the_table_says_and_nothing_else() -> None:
    # DR-1
    found = {each.name: (list(each.schema["properties"]), each.schema.get("required", [])) for each in TOOLS}
    prompting = ["sessionId", "prompt", "timeout", "runtimeParams", "queue"]
    assert found == {
        "bridge_health": ([], []),
        "agents_discover": (["capability", "refresh"], []),
        "sessions_create": (["agentId", "workerId", "metadata"], []),
        "sessions_prompt": (prompting, ["sessionId", "prompt"]),
        "sessions_status": (["sessionId"], ["sessionId"]),
        "sessions_close": (["sessionId", "reason"], ["sessionId"]),
        "sessions_cancel": (["sessionId", "requestId"], ["sessionId"]),
        "tasks_delegate": (["prompt", "agentId", "timeout", "metadata", "runtimeParams"], ["prompt"]),
    }
    assert all(each.schema["additionalProperties"] is False for each in TOOLS)
    params = PROMPT.schema["properties"]["runtimeParams"]
    assert params["additionalProperties"] is False
    assert set(params["properties"]) == {
        "model", "temperature", "maxTokens", "topP", "topK", "stopSequences", "systemPrompt", "detail",
        "providerSpecific",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("about", "given", "said"),
    [
        (HEALTH, {"x": 1}, "bridge_health: x is not an argument; bridge_health takes none"),
        (DISCOVER, {"capabilty": "a"}, "capabilty is not an argument; did you mean capability?"),
        (DISCOVER, {"refresh": 1}, "refresh is not true or false"),
        (CREATE, {"agentId": 7}, "agentId is not a string"),
        (CREATE, {"metadata": []}, "metadata is not an object"),
        (PROMPT, {"prompt": "x"}, "sessionId is missing"),
        (PROMPT, {"sessionId": SESSION, "prompt": None}, "prompt is missing"),
        (PROMPT, {"sessionId": SESSION, "prompt": "x", "timeout": 1.5}, "timeout is not a whole number"),
        (PROMPT, {"sessionId": SESSION, "prompt": "x", "timeout": True}, "timeout is not a whole number"),
    ],
)
def test_a_wrong_argument_is_named(about: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(Fault) as caught:
        Arguments(about, given)
    assert said in caught.value.message
    assert caught.value.type is FaultType.PROTOCOL


def test_arguments_are_read_as_they_are_meant() -> None:
    given = Arguments(PROMPT, {"sessionId": SESSION, "prompt": "x", "timeout": 50, "queue": None})
    assert given.seconds("timeout") == 0.05
    assert given.flag("queue") is False
    assert Arguments(PROMPT, {"sessionId": "a", "prompt": "x"}).seconds("timeout") is None
    with pytest.raises(Fault, match="in milliseconds"):
        Arguments(DELEGATE, {"prompt": "x", "timeout": 0}).seconds("timeout")
    assert Arguments(CREATE, {}).agent() is None
    assert Arguments(CREATE, {"workerId": "desk"}).agent() == "desk"
    assert Arguments(CREATE, {"workerId": "desk", "agentId": "desk"}).agent() == "desk"
    with pytest.raises(Fault, match="old name of agentId"):
        Arguments(CREATE, {"workerId": "desk", "agentId": "other"}).agent()


def test_runtime_params_are_read_strictly() -> None:
    with pytest.raises(Fault, match="did you mean temperature"):
        Arguments(DELEGATE, {"prompt": "x", "runtimeParams": {"temprature": 1}}).params("runtimeParams")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("endTurn", "end_turn"),
        ("end_turn", "end_turn"),
        ("stopSequence", "end_turn"),
        ("maxIterations", "max_turns"),
        ("max_turn_requests", "max_turns"),
        ("cancelled", "cancelled"),
        ("maxTokens", "max_tokens"),
        ("max_tokens", "max_tokens"),
        ("safety", "content_filter"),
        ("refusal", "content_filter"),
        ("content_filter", "content_filter"),
    ],
)
def test_why_an_answer_ended_has_five_words(said: str, told: str) -> None:
    assert stop_reason(said) == told


def test_every_word_of_fast_agent_has_one_of_the_five() -> None:
    from fast_agent.types.llm_stop_reason import LlmStopReason

    five = {"end_turn", "max_turns", "cancelled", "max_tokens", "content_filter"}
    assert {stop_reason(each.value) for each in LlmStopReason} == five


def test_an_agent_is_shown_with_what_is_known_of_it_alone() -> None:
    # DR-23
    plain = agent_document(AgentInfo("desk", status="ready"))
    assert plain == {"id": "desk", "capabilities": [], "status": "ready", "kind": "llm"}
    providers = (
        ProviderFacts("a", ("m1", "m2")),
        ProviderFacts("b", ("m3",), "embedding", {"tools": True}, "Bee", "hums"),
    )
    info = AgentInfo(
        "boss", ("plan",), "busy", "router", "Boss", "Plans", "full", providers, ("worker",), "why"
    )
    assert agent_document(info) == {
        "id": "boss", "capabilities": ["plan"], "status": "busy", "kind": "router", "title": "Boss",
        "description": "Plans", "reason": "full", "match": "why", "shadows": ["worker"],
        "providers": [
            {"id": "a", "models": ["m1", "m2"], "kind": "llm"},
            {"id": "b", "models": ["m3"], "kind": "embedding", "capabilities": {"tools": True},
             "displayName": "Bee", "description": "hums"},
        ],
    }  # fmt: skip


def test_times_are_milliseconds_and_what_is_unknown_is_absent() -> None:
    record = SessionRecord(SESSION, "desk", "idle", 1000.0015, 1001.5, 0.0)
    created = {"sessionId": SESSION, "agentId": "desk", "status": "active", "createdAt": 1000002}
    assert session_created(record) == created
    told = {"sessionId": SESSION, "agentId": "desk", "status": "idle", "lastActivityAt": 1001500}
    assert session_status(record) == told
    failed = SessionRecord(SESSION, "desk", "failed", 1, 2, 3, thread="t", reason="broke")
    assert session_status(failed) | {"status": "failed"} == {
        "sessionId": SESSION, "agentId": "desk", "status": "failed", "lastActivityAt": 2000,
        "expiresAt": 3000, "reason": "broke", "threadId": "t",
    }  # fmt: skip


def test_usage_is_told_where_it_was_counted() -> None:
    result = RunResult("r1", ("a", "b"), None, 0.1)
    assert answer(result) == {"text": "a\n\nb", "stopReason": "end_turn", "requestId": "r1"}
    counted = RunResult("r1", ("a",), None, 0.1, usage=Usage(3, 4), stop_reason="maxTokens")
    assert answer(counted)["usage"] == {"inputTokens": 3, "outputTokens": 4}


def test_an_answer_stands_as_text_and_as_structure_where_both_fit() -> None:
    body = {"text": 'quoted "words"\nand lines'}
    found = document(body)
    assert json.loads(text_of(found)) == body == found.structured_content
    long = document({"text": "x" * 600_000})
    assert long.structured_content is None
    assert len(json.loads(text_of(long))["text"]) == 600_000
    # Line breaks are escaped twice: as JSON within JSON.
    with pytest.raises(Fault, match="at most 900000 reach every MCP client"):
        document({"text": "\n" * 440_000})


def test_a_failed_task_is_an_error_with_the_whole_body() -> None:
    # DR-18
    found = failed_task(SESSION, Fault(FaultType.TIMEOUT, "too slow"))
    assert found.is_error
    assert json.loads(text_of(found)) == {
        "success": False,
        "sessionId": SESSION,
        "error": "too slow",
        "code": -32001,
        "data": {"type": "TIMEOUT", "retryable": True},
    }
    assert "sessionId" not in json.loads(text_of(failed_task("", Fault(FaultType.CONFIG, "none"))))
