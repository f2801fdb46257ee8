"""A run that another one asked for is answered from the recorded run that the same call led to."""

import pytest

from pallas.model import RecordedRun, Recording, Step, StepDetail
from pallas.recordings.nested_runs import RecordedCall, runs_of_call
from pallas.recordings.recorded_steps import RecordedSteps


def call(number: int, use_id: str = "", digest: str = "1:same", name: str = "dealer") -> Step:
    return Step("r", number, "agent", name, 0.0, "done", digest=digest, tool_use_id=use_id)


def run(name: str, *steps: Step, agent: str = "dealer", parent: str = "", at: int = 0) -> RecordedRun:
    details = tuple(StepDetail(each) for each in steps)
    return RecordedRun(name, agent, "a card", parent=parent, parent_step=at, steps=details)


def found(recording: Recording, step: Step, *before: Step, agent: str = "dealer") -> list[str]:
    call = RecordedCall(agent, "now", step, before)
    return [each.id for each in runs_of_call(recording, recording.first, call)]


def dealt(*calls: Step) -> Recording:
    """Each call led to a run, the last one first."""
    nested = [run(f"of-{each.number}", parent="root", at=each.number) for each in calls]
    return Recording("p", (run("root", *calls, agent="plain"), *reversed(nested)))


def test_the_id_that_the_model_gave_decides() -> None:
    recording = dealt(call(2, "a"), call(3, "b"))
    assert found(recording, call(2, "b")) == ["of-3"]
    assert found(recording, call(3, "a"), call(2, "b")) == ["of-2"]


def test_calls_without_the_id_are_counted() -> None:
    recording = dealt(call(2), call(3), call(4, digest="1:other"))
    assert found(recording, call(5)) == ["of-2"]
    assert found(recording, call(6, "new"), call(5)) == ["of-3"]
    assert found(recording, call(6, digest="1:other"), call(5)) == ["of-4"]
    assert found(recording, call(7), call(5), call(6)) == []


def test_an_id_that_several_calls_have_is_told_apart_by_what_they_ask() -> None:
    recording = dealt(call(2, "a", "1:x"), call(3, "a", "1:y"), call(4, "a", "1:x"))
    assert found(recording, call(2, "a", "1:y")) == ["of-3"]
    assert found(recording, call(5, "a", "1:x"), call(2, "a", "1:x")) == ["of-4"]
    assert found(recording, call(2, "a", "2:x")) == ["of-2"]  # a digest of another form


@pytest.mark.parametrize("step", [call(2, name="other"), call(2, digest="1:other")])
def test_another_call_has_none(step: Step) -> None:
    assert found(dealt(call(2)), step) == []


def test_a_run_of_another_agent_is_not_it() -> None:
    assert found(dealt(call(2, "a")), call(2, "a"), agent="clerk") == []


def test_runs_are_bound_below_runs_that_are_bound() -> None:
    root, *nested = dealt(call(2, "a"), call(3, "b")).runs
    deep = [run(f"deep-{each.id}", parent=each.id, at=1) for each in nested]
    asking = [run(each.id, call(1, "c"), parent="root", at=each.parent_step) for each in nested]
    steps = RecordedSteps(Recording("p", (root, *asking, *deep)))
    steps.bind_nested("early", RecordedCall("dealer", "now", call(2, "a")))
    assert steps.bound("early") == ""  # its caller is not bound
    steps.bind("now", "root")
    steps.bind_nested("first", RecordedCall("dealer", "now", call(2, "b")))
    steps.bind_nested("second", RecordedCall("dealer", "now", call(3, "a"), [call(2, "b")]))
    steps.bind_nested("below", RecordedCall("dealer", "first", call(1, "c")))
    assert [steps.bound(each) for each in ("first", "second", "below")] == ["of-3", "of-2", "deep-of-3"]


def test_a_call_that_led_to_several_runs_gives_each_of_them_once() -> None:
    root = run("root", call(2, "a"), agent="plain")
    steps = RecordedSteps(Recording("p", (root, *(run(name, parent="root", at=2) for name in "xy"))))
    steps.bind("now", "root")
    for name in ("one", "two", "three"):
        steps.bind_nested(name, RecordedCall("dealer", "now", call(2, "a")))
    assert [steps.bound(each) for each in ("one", "two", "three")] == ["x", "y", ""]


def test_an_agent_elsewhere_answers_as_in_the_run_that_the_call_led_to() -> None:
    steps = RecordedSteps(dealt(call(2, "a"), call(3, "b")))
    steps.bind("now", "root")
    steps.bind_nested("first", RecordedCall("dealer", "now", call(2, "a")))
    for name, expected in (("second", "of-3"), ("first", "of-2")):
        answer = steps.run_of(name, "dealer", "a card")
        assert isinstance(answer, RecordedRun)
        assert answer.id == expected
