"""A run's events as the chunks that its caller reads."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from pallas.model import (
    Cost,
    Event,
    Fault,
    FaultType,
    LoopMessage,
    ModelRetry,
    RunContinued,
    RunResult,
    StepStarted,
    TextDelta,
    ToolAnswer,
    ToolCall,
    ToolEvent,
    ToolPhase,
    Usage,
)
from pallas.model.redaction import forget, redact
from pallas.surfaces.rest.chat_chunks import MAX_DELTA, Chunks, answer_of, error

RUN: dict[str, Any] = {"run_id": "r1", "agent": "boss"}


def delta(text: str, **more: Any) -> TextDelta:
    return TextDelta(**RUN, text=text, **more)


def calls(*names: str, **arguments: Any) -> LoopMessage:
    made = tuple(ToolCall(f"c{number}", name, arguments) for number, name in enumerate(names))
    return LoopMessage(**RUN, role="assistant", text="", calls=made)


def answers(*ok: bool) -> LoopMessage:
    made = tuple(ToolAnswer(f"c{number}", "said", each) for number, each in enumerate(ok))
    return LoopMessage(**RUN, role="tool", text="", answers=made)


def tool(phase: ToolPhase, call: str = "1", *, nested: bool = False) -> ToolEvent:
    return ToolEvent(**RUN, server="echo", tool="say", phase=phase, call_id=call, nested=nested)


def step(number: int, actor: str = "boss") -> StepStarted:
    return StepStarted(**RUN, actor=actor, step=number, kind="llm")


def result(*texts: str) -> RunResult:
    return RunResult("r1", texts, "conv", 1.0, thread="conv", turn_index=3)


def heard(events: Iterable[Event], end: RunResult | Fault | None = None) -> list[dict[str, Any]]:
    chunks = Chunks("boss")
    found = [chunk for event in events for chunk in chunks.hear(event)]
    if isinstance(end, RunResult):
        found += chunks.result(end)
    elif end is not None:
        found += chunks.fault(end)
    return found


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "delta": value}


FINAL = {"type": "final", "threadId": "conv", "turnIndex": 3}
ROLLBACK = {"type": "rollback"}


def test_text_comes_as_it_is_written_and_the_end_says_where_the_answer_is() -> None:
    # AG-15
    assert heard([step(1), delta("Hel"), delta("lo")], result("Hello")) == [text("Hel"), text("lo"), FINAL]


def test_the_pieces_put_together_are_the_text_of_the_answer() -> None:
    # AG-16
    events = [
        step(1),
        delta("Let me "),
        delta("look."),
        calls("echo__say", text="hi"),
        answers(True),
        step(2),
        delta("Found"),
        delta(" it."),
    ]
    end = result("Let me look.", "Found it.")
    told = heard(events, end)
    assert "".join(each["delta"] for each in told if each["type"] == "text") == end.text
    assert answer_of(end)["text"] == end.text


@pytest.mark.parametrize(
    ("events", "texts"),
    [
        ([], ("A whole answer",)),
        ([], ("One", "Two")),
        ([delta("A wh")], ("A whole answer",)),
        ([delta("One"), calls("echo__say"), answers(True)], ("One", "stopped by the guard")),
    ],
)
def test_what_no_piece_told_is_told_at_the_end(events: list[Event], texts: tuple[str, ...]) -> None:
    told = heard(events, result(*texts))
    assert "".join(each["delta"] for each in told if each["type"] == "text") == "\n\n".join(texts)
    assert told[-1] == FINAL


def test_what_was_told_is_never_told_twice() -> None:
    # Pieces are made visible one by one: a line end in two of them is not what it is as a whole.
    told = heard([delta("one\\x0d"), delta("\ntwo")], result("one\r\ntwo"))
    assert told == [text("one\\x0d"), text("\ntwo"), FINAL]


def test_a_tool_call_and_its_result_have_the_names_that_models_use() -> None:
    # AG-15, AG-17
    told = heard([calls("echo__say", "docs__find", text="hi"), answers(True, False)])
    assert told == [
        {"type": "tool_call", "toolName": "echo__say", "args": {"text": "hi"}},
        {"type": "tool_call", "toolName": "docs__find", "args": {"text": "hi"}},
        {"type": "tool_result", "toolName": "echo__say", "ok": True},
        {"type": "tool_result", "toolName": "docs__find", "ok": False},
    ]


def test_events_of_tools_add_nothing_where_the_messages_are_told() -> None:
    told = heard([calls("echo__say"), tool("started"), tool("completed"), answers(True)])
    assert [each["type"] for each in told] == ["tool_call", "tool_result"]


def test_events_of_tools_stand_in_where_no_message_is_told() -> None:
    told = heard([tool("started"), tool("started", "2"), tool("failed", "2"), tool("completed")])
    assert told == [
        {"type": "tool_call", "toolName": "echo__say", "args": {}},
        {"type": "tool_call", "toolName": "echo__say", "args": {}},
        {"type": "tool_result", "toolName": "echo__say", "ok": False},
        {"type": "tool_result", "toolName": "echo__say", "ok": True},
    ]
    # Once they stood in, messages that come after all add nothing.
    late = heard([tool("started"), calls("echo__say"), tool("completed"), answers(True)])
    assert [each["type"] for each in late] == ["tool_call", "tool_result"]


def test_what_agents_further_down_do_is_theirs() -> None:
    told = heard([delta("theirs", actor="helper"), tool("started", nested=True), step(2, "helper")])
    assert told == []


def test_thoughts_are_told_apart() -> None:
    # AG-30
    told = heard([delta("hm", reasoning=True), delta("Yes.")], result("Yes."))
    assert told == [{"type": "thinking", "delta": "hm"}, text("Yes."), FINAL]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # The same again: nobody notices.
        (["Hel", "lo"], ["Hello", " you"], [text("Hel"), text("lo"), text(" you")]),
        (["Hello"], ["H", "e", "llo"], [text("Hello")]),
        # Something else: what was told is void, all of it is told anew.
        (["Hello"], ["Hi", " you"], [text("Hello"), ROLLBACK, text("Hi"), text(" you")]),
        (["Hello"], ["H", "i"], [text("Hello"), ROLLBACK, text("Hi")]),
        # Less than before, found out at the end.
        (["Hello"], ["Hell"], [text("Hello"), ROLLBACK, text("Hell")]),
        (["Hello"], [], [text("Hello"), ROLLBACK]),
        ([], ["Hi"], [text("Hi")]),
    ],
)
def test_an_attempt_that_is_taken_back_is_told_only_where_the_next_one_differs(
    first: list[str], second: list[str], expected: list[dict[str, Any]]
) -> None:
    events = [*map(delta, first), delta("", rollback=True), *map(delta, second)]
    told = heard(events, result("".join(second)) if second else result())
    assert told == [*expected, FINAL]


def test_a_rollback_voids_no_block_before_a_tool() -> None:
    events = [
        delta("One"),
        calls("echo__say"),
        answers(True),
        delta("Two"),
        delta("", rollback=True),
        delta("Three"),
    ]
    told = heard(events, result("One", "Three"))
    kinds = [each["type"] for each in told]
    assert kinds == ["text", "tool_call", "tool_result", "text", "rollback", "text", "final"]
    assert [each["delta"] for each in told if "delta" in each] == ["One", "\n\nTwo", "\n\nThree"]


def test_a_second_attempt_may_be_taken_back_as_well() -> None:
    events = [
        delta("Hello"),
        delta("", rollback=True),
        delta("He"),
        delta("", rollback=True),
        delta("Hello!"),
    ]
    assert heard(events, result("Hello!")) == [text("Hello"), text("!"), FINAL]


def test_a_run_that_another_fleet_left_says_that_it_goes_on() -> None:
    continued = [
        RunContinued(run_id="r", agent=agent, attempt=2, calls=("shop__refund: told the model",))
        for agent in ("boss", "another")
    ]
    chunk = {"type": "continued", "attempt": 2, "calls": ["shop__refund: told the model"]}
    assert heard([*continued, delta("Hello")], result("Hello")) == [chunk, text("Hello"), FINAL]


def test_a_call_of_the_agents_own_model_that_is_made_again_is_a_chunk() -> None:
    retries = [
        ModelRetry(run_id="r", agent=agent, reason="HTTP 429", retry=1, retries=2, wait=9.0)
        for agent in ("boss", "another")
    ]
    told = heard([delta("Hel"), delta("", rollback=True), *retries, delta("Hello")], result("Hello"))
    retry = {"type": "retry", "reason": "HTTP 429", "retry": 1, "retries": 2, "wait": 9.0}
    assert told == [text("Hel"), retry, text("lo"), FINAL]


def test_a_failure_says_the_same_as_everywhere() -> None:
    # UN-4
    fault = Fault(FaultType.TIMEOUT, "too long", data={"limit": 3.0, "partial": "so far"})
    told = heard([delta("so far")], fault)
    assert told[-1] == {
        "type": "error",
        "message": "too long",
        "data": {"type": "TIMEOUT", "retryable": True, "limit": 3.0, "code": -32001},
    }
    assert told == [text("so far"), error(fault)]


def test_nothing_secret_is_told_in_arguments_and_failures() -> None:
    # PR-36
    redact("planted-secret-1")
    try:
        told = heard(
            [calls("echo__say", nested=[{"key": "planted-secret-1"}], text="see planted-secret-1")],
            Fault(FaultType.UPSTREAM, "refused planted-secret-1", data={"why": "fine"}),
        )
    finally:
        forget("planted-secret-1")
    assert "planted-secret-1" not in str(told)
    assert str(told).count("[redacted]") == 3


def test_hostile_arguments_are_made_visible() -> None:
    (told,) = heard([calls("echo__say", text="\x1b[2J\ud800")])
    assert "\x1b" not in str(told) and told["args"]["text"].startswith("␛")


def test_a_piece_has_a_bounded_size() -> None:
    told = heard([delta("x" * (2 * MAX_DELTA + 1))])
    assert [len(each["delta"]) for each in told] == [MAX_DELTA, MAX_DELTA, 1]


def test_an_answer_as_a_whole_has_what_is_known_of_the_run() -> None:
    # AG-16
    counted = RunResult("r1", ("a", "b"), "c", 1.23456, 2, 1, Usage(5, 7, 10**7), "endTurn", "c", 4)
    counted = replace(counted, tree=Cost(25 * 10**6, 1))
    assert answer_of(counted) == {
        "text": "a\n\nb",
        "threadId": "c",
        "turnIndex": 4,
        "runId": "r1",
        "stopReason": "endTurn",
        "seconds": 1.23456,
        "steps": 2,
        "tools": 1,
        "usage": {"inputTokens": 5, "outputTokens": 7},
        "cost": "0.01",
        "unpriced": 0,
        "treeCost": "0.025",
        "treeUnpriced": 1,
    }
    nothing = answer_of(RunResult("r1", ("a",), None, 1.0))
    assert (nothing["threadId"], nothing["turnIndex"], nothing["usage"]) == (None, None, None)
