"""What a run that goes on from a step of another one is told, and which calls it does not make again."""

import json
from dataclasses import replace
from typing import Any

import pytest

from pallas.model import Fault, Params, RecordedRun, Recording, Step, StepDetail, StepKind
from pallas.model.long_strings import shortened
from pallas.recordings.fork_point import forked_request

LONG = "x" * 40_000


def model(number: int, *calls: tuple[str, str, Any], text: str = "", request: Any = None) -> StepDetail:
    asked = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for call_id, name, arguments in calls
    ]
    message = {"role": "assistant", "content": text, "tool_calls": asked}
    return detail(number, "model", "m", 0, request or {"messages": []}, {"choices": [{"message": message}]})


def tool(number: int, parent: int, name: str, arguments: Any, text: str) -> StepDetail:
    result = {"content": [{"type": "text", "text": text}]}
    return detail(number, "tool", name, parent, {"name": name, "arguments": arguments}, result)


def detail(number: int, kind: StepKind, name: str, parent: int, request: Any, response: Any) -> StepDetail:
    step = Step("r1", number, kind, name, float(number), state="done", seconds=0.1, parent=parent)
    return StepDetail(step, json.dumps(request), json.dumps(response))


def recording(*steps: StepDetail) -> Recording:
    return Recording("p", (RecordedRun("r1", "clerk", "Do it.", "done", steps=steps),))


def fork(found: Recording, step: int, **changes: Any) -> Any:
    return forked_request(found, step, params=Params({}), **changes).fork


def test_a_call_with_long_arguments_keeps_its_result() -> None:
    found = recording(
        model(1, ("c1", "fs__write", {"text": LONG})),
        tool(2, 1, "fs__write", {"text": shortened(LONG)}, "written"),
        model(3, text="It is written."),
    )
    made = fork(found, 3)
    assert json.loads(made.results["c1"])["content"][0]["text"] == "written"
    assert [each.step.number for each in made.steps] == [1, 2]
    assert "nothing" in fork(found, 2, result="nothing").results["c1"]


def test_two_calls_of_one_tool_keep_their_own_results() -> None:
    found = recording(
        model(1, ("c1", "fs__read", {"at": "a"}), ("c2", "fs__read", {"at": "b"})),
        tool(2, 1, "fs__read", {"at": "b"}, "of b"),  # it began first
        tool(3, 1, "fs__read", {"at": "a"}, "of a"),
        model(4, text="Both are read."),
    )
    results = fork(found, 4).results
    assert ["of a" in results["c1"], "of b" in results["c2"]] == [True, True]
    assert set(fork(found, 2).results) == {"c1"}


def test_a_long_result_is_sent_as_the_tool_gave_it() -> None:
    sent = {"messages": [{"role": "tool", "tool_call_id": "c1", "content": shortened(LONG)}]}
    found = recording(
        model(1, ("c1", "fs__read", {})),
        tool(2, 1, "fs__read", {}, LONG),
        model(3, ("c2", "fs__count", {})),
        tool(4, 3, "fs__count", {}, "one"),
        model(5, text="One.", request=sent),
    )
    assert [each.text for each in fork(found, 5).said if each.role == "tool"] == [LONG]


def test_ids_that_a_provider_gives_again_do_not_mix_results() -> None:
    sent = {
        "messages": [
            {"role": "tool", "tool_call_id": "call_0", "content": "one"},
            {"role": "tool", "tool_call_id": "call_0", "content": "two"},
        ]
    }
    found = recording(
        model(1, ("call_0", "fs__read", {"at": "a"})),
        tool(2, 1, "fs__read", {"at": "a"}, "one"),
        model(3, ("call_0", "fs__read", {"at": "b"})),
        tool(4, 3, "fs__read", {"at": "b"}, "two"),
        model(5, text="Two.", request=sent),
    )
    assert [each.text for each in fork(found, 5).said if each.role == "tool"] == ["one"]


@pytest.mark.parametrize("arguments", [{"token": "[redacted]"}, {"text": shortened(LONG)}])
def test_a_call_whose_arguments_were_not_all_recorded_is_not_made(arguments: Any) -> None:
    found = recording(model(1, ("c1", "fs__write", arguments)), tool(2, 1, "fs__write", arguments, "written"))
    with pytest.raises(
        Fault, match="recorded in part only, so the call cannot be made again: give its result"
    ):
        fork(found, 2)
    assert "mine" in fork(found, 2, result="mine").results["c1"]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (3, "no run can continue from step 3, of kind model; it belongs to step 2, peer: take that one"),
        (4, "no run can continue from step 4, of kind compaction; take a question of clerk to its model"),
        (9, "run r1 of clerk has no step 9; it has 1 to 5"),
        (5, "the model was asked again in step 5, although it had called nothing: take step 1"),
    ],
)
def test_a_step_from_which_no_run_goes_on(step: int, said: str) -> None:
    asked = model(1, text="So far.") if step == 5 else model(1, ("c1", "peer", {}))
    found = recording(
        asked,
        detail(2, "agent", "peer", 1, {"name": "peer", "arguments": {}}, {"content": []}),
        detail(3, "model", "m", 2, {}, {}),
        detail(4, "compaction", "m", 0, {}, {}),
        model(5, text="done"),
    )
    with pytest.raises(Fault) as raised:
        fork(found, step)
    assert said in raised.value.message
    assert raised.value.data == {"key": "step"}


def test_no_run_goes_on_from_one_whose_parameters_are_not_recorded() -> None:
    found = recording(model(1, text="Done."))
    lost = replace(found, runs=(replace(found.first, params_lost=True),))
    with pytest.raises(Fault, match="parameters of run r1 were too large") as refused:
        fork(lost, 1)
    assert refused.value.data["key"] == "step"
