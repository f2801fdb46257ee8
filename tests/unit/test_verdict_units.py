"""What is replayed of a recording, and the word for what came of it."""

from dataclasses import replace

import pytest

from pallas.fleet.replay_fleet import ReplayOutcome
from pallas.model import (
    RecordedRun,
    Recording,
    RunVerdict,
    RunVersion,
    Step,
    StepDetail,
    VerdictReached,
    VerdictWord,
)
from pallas.model.codec import dumps
from pallas.model.verdict import counts_of, sorted_runs, verdict_text
from pallas.recordings.first_difference import differences
from pallas.verdict.affected_units import units_of, without_answered
from pallas.verdict.undecided import changed_server, lacking
from pallas.verdict.verdict_words import judgement_of
from pallas_tui.records.agent_test_book import AgentTestBook

TOOL = {
    "type": "function",
    "function": {
        "name": "shelf__find",
        "description": "Find.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
    },
}


def run(
    name: str, agent: str, parent: str = "", step: int = 0, *steps: StepDetail, **more: object
) -> RecordedRun:
    """A run of an agent that another run asked for."""
    given: dict[str, object] = {"answer": "yes", **more}
    return RecordedRun(name, agent, "why?", parent=parent, parent_step=step, steps=steps, **given)  # type: ignore[arg-type]


def asked(number: int, state: str = "done", **request: object) -> StepDetail:
    """A question to a model."""
    document = {"model": "m", "messages": [{"role": "user", "content": "why?"}], "tools": [TOOL], **request}
    step = Step("1", number, kind="model", started_at=0.0, name="m", state=state)  # type: ignore[arg-type]
    return StepDetail(step, dumps(document).decode(), "{}")


def called(number: int, **arguments: object) -> StepDetail:
    """A call of the tool."""
    step = Step("1", number, kind="tool", started_at=0.0, name="shelf__find", state="done")
    return StepDetail(step, dumps({"arguments": arguments}).decode(), "{}")


def recording(*runs: RecordedRun, **more: object) -> Recording:
    return Recording("p", runs, **more)  # type: ignore[arg-type]


TREE = recording(
    run("1", "desk", "", 0, asked(1)),
    run("2", "clerk", "1", 1, asked(1)),
    run("3", "keeper", "1", 1, asked(1)),
    run("4", "shelf", "2", 1, asked(1)),
)


@pytest.mark.parametrize(
    ("affected", "units"),
    [
        ({"other"}, []),
        ({"desk"}, [["1", "2", "3"]]),
        ({"clerk", "keeper"}, [["2", "4"], ["3"]]),
        ({"desk", "clerk", "keeper", "shelf"}, [["1", "2", "3", "4"]]),
        ({"desk", "shelf"}, [["1", "2", "3"], ["4"]]),
    ],
)
def test_the_topmost_runs_of_changed_agents_are_replayed(affected: set[str], units: list[list[str]]) -> None:
    found = units_of(TREE, affected)
    assert [[run.id for run in unit.runs] for unit in found] == units
    for unit in found:
        assert unit.first.parent == ""
        assert all(bool(run.steps) == (run.agent in affected) for run in unit.runs)
        assert {run.agent for run in without_answered(unit, affected).runs} <= affected


def word(recorded: Recording, replayed: Recording, *, misses: bool = False) -> tuple[VerdictWord, str]:
    found = judgement_of(recorded, ReplayOutcome(replayed, 0.1, is_miss=misses), {})
    return found.word, found.what


def of(*steps: StepDetail, **more: object) -> Recording:
    return recording(run("1", "desk", "", 0, *steps, **more))


WHOLE = of(asked(1), called(2, what="lamps"), asked(3, messages=[]))


def test_what_is_equal_is_the_same_unless_it_costs_more() -> None:
    assert word(WHOLE, WHOLE) == ("same", "")
    assert word(of(asked(1), cost=10), of(asked(1), cost=20)) == ("costs more", "its cost")
    assert word(of(asked(1), cost=20), of(asked(1), cost=10)) == ("same", "")


def test_a_replay_that_leaves_a_step_unused_or_fails_is_never_the_same() -> None:
    assert word(WHOLE, of(asked(1)))[0] == "other tool calls"
    failed = of(asked(1), status="error", fault="no such key")
    assert word(WHOLE, failed) == ("fails", "no such key")


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([], "the tool shelf__find, which was called in step 2, is not offered any more"),
        ([{**TOOL, "function": {**TOOL["function"], "name": "shelf__search"}}], "is not offered any more"),  # type: ignore[dict-item]
        (
            [
                {
                    **TOOL,
                    "function": {
                        "name": "shelf__find",
                        "description": "Find.",
                        "parameters": {"type": "object", "properties": {"which": {"type": "string"}}},
                    },
                }
            ],
            "does not take the arguments of step 2 any more",
        ),
    ],
)
def test_a_call_that_cannot_be_made_any_more_is_another_one(tools: list[object], said: str) -> None:
    found, what = word(WHOLE, of(asked(1, "failed", tools=tools)), misses=True)
    assert found == "other tool calls"
    assert said in what


def test_a_request_that_differs_otherwise_is_other_words() -> None:
    hotter = of(asked(1, "failed", temperature=0.5))
    assert word(WHOLE, hotter, misses=True) == ("other words", "another model request: temperature")
    described = {**TOOL, "function": {**TOOL["function"], "description": "Look."}}  # type: ignore[dict-item]
    found = word(WHOLE, of(asked(1, "failed", tools=[described])), misses=True)
    assert found == ("other words", "another model request: tools[0].function.description")


def test_what_a_recording_lacks_or_a_changed_server_leaves_undecided() -> None:
    assert lacking(WHOLE, {"desk"}) == ""
    without = replace(WHOLE, missing=("run 1 of desk: its first 2 steps",))
    assert lacking(without, {"desk"}) == "the recording lacks its first 2 steps"
    assert lacking(without, {"front"}) == ""  # it is answered as a whole
    assert lacking(replace(WHOLE, missing=("run 9 of desk: its steps",)), {"desk"}) == ""
    going_on = of(asked(1, messages=[{"role": "assistant", "content": "before"}]))
    assert lacking(going_on, {"desk"}) == "its conversation began before this run"
    saved = {"shelf": "shelf.py was saved", "docs": "x"}
    assert (
        changed_server(WHOLE, saved, lambda server: "now") == "the server shelf changed; shelf.py was saved"
    )
    assert changed_server(WHOLE, {"docs": "x"}, lambda server: "now") == ""
    made_of = RunVersion(1, "1", servers={"shelf": "then"})
    versioned = replace(WHOLE, runs=tuple(replace(run, version=made_of) for run in WHOLE.runs))
    assert changed_server(versioned, saved, lambda server: "then") == ""
    assert changed_server(versioned, saved, lambda server: "now")


def test_a_verdict_is_told_with_those_that_differ_first() -> None:
    same = RunVerdict("a", "test", "desk", "same")
    other = RunVerdict("b", "test", "desk", "other words", "step 1 of desk", "the model", "m", "n")
    runs = (same, other)
    event = VerdictReached(agents=("desk",), runs=sorted_runs(runs), counts=counts_of(runs))
    assert verdict_text(event) == ("1 same, 1 other words (b: step 1 of desk: the model is n, and was m)")
    assert not event.is_same
    assert verdict_text(VerdictReached(agents=(), counts={}, problem="no")) == "no verdict: no"


def test_of_many_runs_the_first_ones_keep_their_texts() -> None:
    long = RunVerdict("a", "test", "desk", "other words", before_text="x" * 30_000)
    runs = [
        replace(long, name=name, word=word) for name, word in (("a", "same"), ("b", "fails"), ("c", "fails"))
    ]
    told = sorted_runs(runs)
    assert [(each.name, len(each.before_text)) for each in told] == [("b", 30_000), ("c", 30_000), ("a", 0)]


def test_the_values_of_a_difference_are_shown_around_it() -> None:
    before, after = f"{'a' * 50}\nsecret old{'b' * 50}", f"{'a' * 50}\nsecret new{'b' * 50}"
    (found,) = differences({"x": before}, {"x": after}, lambda was, now: False)
    assert found.texts(1_000, lambda text: text.replace("secret", "***")) == (
        before.replace("secret", "***"),
        after.replace("secret", "***"),
    )
    assert found.texts(20, str) == ("…cret oldbbbbbbbbbbbb…", "…cret newbbbbbbbbbbbb…")
    (other,) = differences({}, {"x": [1]}, lambda was, now: False)
    assert other.texts(1_000, str) == ("", "[\n  1\n]")
    assert found.texts(1_000, lambda text: text[:10]) == ("", "")


def test_the_workbench_lists_what_was_said_of_each_test_last() -> None:
    book = AgentTestBook(None, lambda: 0.0)
    differs = RunVerdict(
        "b", "test", "desk", "other words", "step 1 of desk", "the model", "m", "n", seconds=0.2
    )
    runs = (
        RunVerdict("a", "test", "desk", "same"),
        differs,
        RunVerdict("c", "test", "desk", "not decided", what="it was not judged within 1 s"),
        RunVerdict("3f1c9a0e7b52", "run", "desk", "same"),
    )
    book.note_verdict(VerdictReached(agents=("desk",), runs=runs, counts=counts_of(runs), at=9.0))
    assert {name: each.verdict for name, each in book.outcomes.items()} == {
        "a": "passed",
        "b": "failed",
        "c": "skipped",
    }
    assert book.outcomes["b"].failures == ("other words: step 1 of desk: the model is n, and was m",)
    earlier = VerdictReached(agents=("desk",), runs=runs[:1], counts={"same": 1}, at=8.0)
    book.note_verdict(earlier)
    assert book.outcomes["a"].at == 9.0
