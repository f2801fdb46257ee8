"""Recordings are aligned: what was inserted, removed, moved or changed is shown as such, and nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.properties import examples

from benchmarks.invented_runs import Call, Plot, Turn, long_plot, recorded
from pallas.model import StepDetail
from pallas.model.step_view import view_of
from pallas.recordings.diff_lines import seconds_text, totals_text
from pallas.recordings.diff_tree import RecordingDiff, RunDiff, StepDiff
from pallas.recordings.run_diff import diff
from pallas.recordings.step_contents import ContentsReader

Found = set[tuple[str, str, frozenset[str]]]
"""Of each step that differs its mark, what it said or was called, and its parts that differ."""


def compared(before: Plot, after: Plot) -> RecordingDiff:
    """The difference of two runs, with other ids in each."""
    return diff(recorded(before, 1), recorded(after, 2))


def label(detail: StepDetail) -> str:
    if detail.step.kind == "model":
        return view_of("", detail.response).answer.split("\n")[-1]
    return detail.step.name


def differing(found: RecordingDiff) -> Found:
    return {
        (node.mark, label(node.before or node.shown), frozenset(each.part for each in node.changes))
        for node in (row.node for row in found.rows())
        if isinstance(node, StepDiff) and node.mark != "same"
    }


def step(mark: str, name: str, *parts: str) -> tuple[str, str, frozenset[str]]:
    return mark, name, frozenset(parts)


# Random runs, in which each answer and each call is another one


@st.composite
def plots(draw: st.DrawFn, depth: int = 2, path: str = "") -> Plot:
    turns = []
    for number in range(draw(st.integers(1 if path else 2, 5))):
        here = f"{path}{number}"
        calls = []
        for at in range(draw(st.integers(0, 3))):
            nested = draw(plots(depth - 1, f"{here}.{at}-")) if depth and draw(st.booleans()) else None
            kind = "agent" if nested is not None else "tool"
            calls.append(Call(f"call-{here}.{at}", {"of": here}, f"result {here}.{at}", kind, run=nested))
        heard = f"go on {here}" if draw(st.booleans()) and number else ""
        turns.append(Turn(f"answer {here}", tuple(calls), heard))
    history = tuple(f"said {number}" for number in range(2 * draw(st.integers(0, 2))))
    return Plot(f"question {path}", tuple(turns), f"agent-{path}", history=history)


@dataclass(frozen=True)
class Edit:
    """A run after an edit, and what should be found."""

    plot: Plot
    found: Found


def edits_of(plot: Plot, at: int) -> Iterator[Edit]:
    """The edits of one turn. Those of the last one may change the answer of the run."""
    turn = plot.turns[at]

    def put(*turns: Turn) -> Plot:
        return replace(plot, turns=(*plot.turns[:at], *turns, *plot.turns[at + 1 :]))

    new = Turn("new answer", (Call("new-call"),), "new message")
    inserted = {step("inserted", "new answer"), step("inserted", "new-call")}
    calls = {step("removed", each.name) for each in turn.calls if each.run is None}
    yield Edit(put(new, turn), inserted)
    yield Edit(put(replace(turn, answer="other")), {step("changed", turn.answer, "answer")})
    yield Edit(put(replace(turn, reasoning="hm")), {step("changed", turn.answer, "reasoning")})
    yield Edit(put(replace(turn, instructions="Be rude.")), {step("changed", turn.answer, "instructions")})
    yield Edit(put(replace(turn, heard=turn.heard + "more")), {step("changed", turn.answer, "messages")})
    yield Edit(
        put(replace(turn, calls=(*turn.calls, Call("new-call")))),
        {step("changed", turn.answer, "answer"), step("inserted", "new-call")},
    )
    if len(plot.turns) > 1 and all(each.run is None for each in turn.calls):
        yield Edit(put(), {step("removed", turn.answer), *calls})
    for number, call in enumerate(turn.calls):

        def call_put(*now: Call, number: int = number) -> Plot:
            return put(replace(turn, calls=(*turn.calls[:number], *now, *turn.calls[number + 1 :])))

        if call.run is None:
            is_asked = step("changed", turn.answer, "answer")
            yield Edit(call_put(), {is_asked, step("removed", call.name)})
            changed = replace(call, arguments={"of": "another"})
            yield Edit(call_put(changed), {is_asked, step("changed", call.name, "arguments")})
            yield Edit(call_put(replace(call, result="another")), {step("changed", call.name, "result")})
            yield Edit(call_put(replace(call, fault="refused")), {step("changed", call.name, "state")})


def below(plot: Plot) -> Iterator[tuple[Plot, tuple[tuple[int, int], ...]]]:
    """All runs of a tree, with the way to each: turns and calls."""
    yield plot, ()
    for at, turn in enumerate(plot.turns):
        for number, call in enumerate(turn.calls):
            if call.run is not None:
                yield from ((each, ((at, number), *way)) for each, way in below(call.run))


def put_below(plot: Plot, way: tuple[tuple[int, int], ...], other: Plot) -> Plot:
    if not way:
        return other
    (at, number), *rest = way
    turn = plot.turns[at]
    call = turn.calls[number]
    assert call.run is not None
    call = replace(call, run=put_below(call.run, tuple(rest), other))
    turn = replace(turn, calls=(*turn.calls[:number], call, *turn.calls[number + 1 :]))
    return replace(plot, turns=(*plot.turns[:at], turn, *plot.turns[at + 1 :]))


@pytest.mark.slow
@given(plots(), st.data())
@examples(200)
def test_an_edit_anywhere_is_found_and_nothing_else(plot: Plot, data: st.DataObject) -> None:
    run, way = data.draw(st.sampled_from(list(below(plot))))
    # The answer of a run that another one asked for is a result there.
    assume(len(run.turns) > 1 or not way)
    at = data.draw(st.integers(0, len(run.turns) - (2 if way else 1)))
    edit = data.draw(st.sampled_from(list(edits_of(run, at))))
    after = put_below(plot, way, edit.plot)
    assert differing(compared(plot, after)) == edit.found
    opposite = {"inserted": "removed", "removed": "inserted"}
    undone = {(opposite[mark], *rest) for mark, *rest in edit.found if mark in opposite}
    back = differing(compared(after, plot))
    assert {each for each in back if each[0] != "changed"} == undone
    assert len(back) == len(edit.found)


def moves_of(plot: Plot) -> list[tuple[int, int]]:
    """Turns with other places. Of two neighbours that change places each could have moved."""
    # What a run begins with is no part of its first step, so a message that goes there leaves its step.
    places = range(1 if any(each.heard for each in plot.turns) else 0, len(plot.turns))
    return [(a, b) for a in places for b in places if abs(a - b) > 1]


@pytest.mark.slow
@given(plots(depth=1), st.data())
@examples(100)
def test_a_turn_in_another_place_is_moved_and_nothing_else(plot: Plot, data: st.DataObject) -> None:
    """Its calls go with it."""
    moves = moves_of(plot)
    assume(moves)
    a, b = data.draw(st.sampled_from(moves))
    turns = list(plot.turns)
    turn = turns.pop(a)
    turns.insert(b, turn)
    found = differing(compared(plot, replace(plot, turns=tuple(turns))))
    assert found == {step("moved", turn.answer)}


@pytest.mark.slow
@given(plots(depth=1), st.data())
@examples(100)
def test_several_edits_are_each_found(plot: Plot, data: st.DataObject) -> None:
    """Other turns between them are the same, so that none is mistaken for another one."""
    after, expected = plot, set[tuple[str, str, frozenset[str]]]()
    for number, at in enumerate(range(len(plot.turns) - 1, -1, -2)):
        edit = data.draw(st.sampled_from(list(edits_of(after, at))))
        names = {name: f"{name} {number}" for name in ("new answer", "new-call", "other")}
        turns = tuple(
            replace(
                each,
                answer=names.get(each.answer, each.answer),
                calls=tuple(replace(call, name=names.get(call.name, call.name)) for call in each.calls),
            )
            for each in edit.plot.turns
        )
        after = replace(edit.plot, turns=turns)
        expected |= {(mark, names.get(name, name), parts) for mark, name, parts in edit.found}
    assert differing(compared(plot, after)) == expected


@pytest.mark.slow
@given(plots(depth=1), st.data())
@examples(100)
def test_other_instructions_of_a_whole_run_hide_no_edit(plot: Plot, data: st.DataObject) -> None:
    """They differ in each request, and are reported with the first that both runs have."""
    at = data.draw(st.integers(0, len(plot.turns) - 1))
    edit = data.draw(st.sampled_from(list(edits_of(plot, at))))
    assume(all("instructions" not in parts for _, _, parts in edit.found))
    found = differing(compared(plot, replace(edit.plot, instructions="Be rude.")))
    assert sum("instructions" in parts for _, _, parts in found) == 1
    without = {(mark, name, parts - {"instructions"}) for mark, name, parts in found}
    assert {each for each in without if each[0] != "changed" or each[2]} == edit.found


# Any two runs


@st.composite
def unsteady(draw: st.DrawFn, depth: int = 1) -> Plot:
    """A run that says the same a few times."""
    few = st.sampled_from("ab")
    turns = []
    for _ in range(draw(st.integers(0, 6))):
        calls = draw(
            st.lists(
                st.builds(
                    Call,
                    few,
                    st.fixed_dictionaries({"of": few}),
                    few,
                    run=unsteady(depth - 1) if depth else st.none(),
                ),
                max_size=3,
            )
        )
        turns.append(Turn(draw(few), tuple(calls), draw(st.sampled_from(["", "a", "b"]))))
    return Plot(draw(few), tuple(turns), draw(few))


@pytest.mark.slow
@given(unsteady(), unsteady())
@examples(200)
def test_each_step_of_both_runs_is_there_once(before: Plot, after: Plot) -> None:
    old, new = recorded(before, 1), recorded(after, 2)
    found = diff(old, new)
    nodes = [row.node for row in found.rows()]
    steps = [each for each in nodes if isinstance(each, StepDiff)]
    places = [[(side.step.run_id, side.step.number) for side in sides if side is not None]
              for sides in ([each.before for each in steps], [each.after for each in steps])]  # fmt: skip
    for shown, recording in zip(places, (old, new), strict=True):
        assert sorted(shown) == sorted(
            (run.id, each.step.number) for run in recording.runs for each in run.steps
        )
    for each in nodes:
        assert (each.before is None, each.after is None) == (each.mark == "inserted", each.mark == "removed")
        assert each.is_same == (each.mark == "same" and all(one.is_same for one in each.below))
        assert bool(each.changes) == (each.mark == "changed") or each.mark == "moved"
    first = found.first_divergence
    assert (first is None) == found.is_same == all(each.mark == "same" for each in nodes)
    assert first is None or first in nodes


@pytest.mark.slow
@given(unsteady())
@examples(100)
def test_the_same_run_with_other_ids_and_times_is_the_same(plot: Plot) -> None:
    assert compared(plot, plot).is_same


@pytest.mark.slow
@given(unsteady(), unsteady())
@examples(50)
def test_steps_that_did_not_move_are_in_the_order_of_both_runs(before: Plot, after: Plot) -> None:
    for row in compared(before, after).rows():
        if isinstance(row.node, RunDiff):
            stayed = [each for each in row.node.steps if each.mark in ("same", "changed")]
            for side in ("before", "after"):
                numbers = [getattr(each, side).step.number for each in stayed]
                assert numbers == sorted(numbers)


@pytest.mark.slow
@given(plots(depth=1), st.data())
@examples(50)
def test_a_call_that_another_answer_wants_is_moved(plot: Plot, data: st.DataObject) -> None:
    """The order of calls that one answer wants is that of its text."""
    places = [(at, number) for at, turn in enumerate(plot.turns) for number, _ in enumerate(turn.calls)]
    assume(places)
    at, number = data.draw(st.sampled_from(places))
    to = data.draw(st.integers(0, len(plot.turns) - 1))
    calls = [list(turn.calls) for turn in plot.turns]
    call = calls[at].pop(number)
    calls[to].insert(0, call)
    turns = [replace(turn, calls=tuple(each)) for turn, each in zip(plot.turns, calls, strict=True)]
    found = differing(compared(plot, replace(plot, turns=tuple(turns))))
    changed = {step("changed", plot.turns[each].answer, "answer") for each in {at, to}}
    if at == to:
        assert found == (set() if number == 0 else changed)
    else:
        is_between = to == at + 1 and number == len(plot.turns[at].calls) - 1
        assert found - {step("moved", call.name)} == changed
        assert is_between or step("moved", call.name) in found


# Single facts

LAMPS = Call("find", {"what": "lamps"}, "three lamps")
BEDS = Call("find", {"what": "beds"}, "none")
CLERK = Call("clerk", {"message": "count"}, kind="agent", run=Plot("count", (Turn("3"),), "clerk"))
PLOT = Plot("How many?", (Turn("I look.", (LAMPS, BEDS)), Turn("I ask.", (CLERK,)), Turn("Three.")))


@pytest.mark.parametrize(
    ("changed", "part", "name"),
    [
        ({"instructions": "You are another agent."}, "instructions", ""),
        ({"tools": {"find": "Find another book."}}, "tools", "find"),
        ({"tools": {"find": "Find a book.", "lend": "Lend it."}}, "tools", "lend"),
        ({"tools": {}}, "tools", "find"),
        ({"params": {"temperature": 1}}, "parameters", "temperature"),
        ({"model": "another"}, "model", ""),
        ({"history": ("hello", "Good day.")}, "messages", "user"),
    ],
)
def test_what_all_requests_have_is_reported_with_the_first(changed: Any, part: str, name: str) -> None:
    found = compared(PLOT, replace(PLOT, **changed))
    nodes = [row.node for row in found.rows() if row.node.mark != "same"]
    assert [label(each.shown) for each in nodes if isinstance(each, StepDiff)] == ["I look."]
    assert (part, name) == (nodes[0].changes[0].part, nodes[0].changes[0].name)
    assert found.first_divergence is nodes[0]


def test_a_date_in_what_is_sent_does_not_count_and_one_in_an_answer_does() -> None:
    def said(day: str) -> Plot:
        turns = (replace(PLOT.turns[0], heard=f"It is {day}, 10:0{day[-1]}."), *PLOT.turns[1:])
        return replace(PLOT, instructions=f"Today is {day}.", turns=turns)

    assert compared(said("2026-11-27"), said("2026-11-28")).is_same

    def bought(day: str) -> Plot:
        return replace(
            PLOT, turns=(Turn("I look.", (replace(LAMPS, result=f"bought on {day}"),)), PLOT.turns[2])
        )

    found = compared(bought("2026-11-27"), bought("2026-11-28"))
    assert differing(found) == {step("changed", "find", "result")}


def test_another_question_is_found_at_the_run_and_not_at_its_steps() -> None:
    found = compared(PLOT, replace(PLOT, question="How many now?"))
    assert differing(found) == set()
    assert found.first_divergence is found.run
    (change,) = found.run.changes
    assert (change.part, change.words()) == ("question", (("=", "How many"), ("+", " now"), ("=", "?")))


def test_where_runs_diverge_first_is_below_the_result_that_follows() -> None:
    def ended(answer: str) -> Plot:
        asked = replace(CLERK, run=Plot("count", (Turn(answer),), "clerk"))
        return replace(PLOT, turns=(PLOT.turns[0], replace(PLOT.turns[1], calls=(asked,)), PLOT.turns[2]))

    found = compared(ended("3"), ended("4"))
    assert differing(found) == {step("changed", "clerk", "result"), step("changed", "3", "answer")}
    first = found.first_divergence
    assert isinstance(first, StepDiff)
    assert label(first.shown) == "4"


def test_a_run_that_is_not_asked_any_more_is_removed_with_its_steps() -> None:
    found = compared(PLOT, replace(PLOT, turns=(PLOT.turns[0], PLOT.turns[2])))
    assert differing(found) == {step("removed", "I ask."), step("removed", "clerk"), step("removed", "3")}
    gone = [row for row in found.rows() if isinstance(row.node, RunDiff) and row.node.mark == "removed"]
    assert [(row.depth, row.node.before.agent if row.node.before else "") for row in gone] == [(3, "clerk")]


def test_calls_that_are_made_at_once_may_begin_in_another_order() -> None:
    old = recorded(PLOT, 1)
    run, *others = old.runs
    asked, first, second, *more = run.steps
    other_way = [
        replace(each, step=replace(each.step, number=number)) for number, each in ((2, second), (3, first))
    ]
    new = replace(old, runs=(replace(run, steps=(asked, *other_way, *more)), *others))
    assert diff(old, new).is_same
    assert diff(new, old).is_same


def test_totals_are_of_all_runs() -> None:
    old = recorded(PLOT, 1)
    found = diff(old, recorded(PLOT, 2))
    used = [each.step.usage for run in old.runs for each in run.steps]
    assert (found.before.runs, found.before.steps, found.before.seconds) == (2, 7, old.first.seconds)
    assert found.before.tokens_in == sum(each.input or 0 for each in used)
    assert found.before.tokens_out == sum(each.output or 0 for each in used)
    assert found.before != found.after
    assert found.is_same
    dear = replace(old, runs=tuple(replace(run, cost=7_000_000, unpriced=1) for run in old.runs))
    paid = diff(old, dear)
    assert paid.is_same
    assert totals_text(paid.after).endswith(f" out, $0.0140+, {seconds_text(old.first.seconds)}")


def test_a_recording_of_a_run_without_steps_is_compared_by_what_it_answered() -> None:
    old, new = recorded(Plot("hi"), 1), recorded(Plot("hi"), 2)
    (run,) = new.runs
    new = replace(new, runs=(replace(run, answer="no", status="error", fault="it broke"),))
    found = diff(old, new)
    assert {each.part for each in found.run.changes} == {"answer", "state"}
    assert found.first_divergence is found.run


def test_parents_that_cannot_be_are_none() -> None:
    """A file of a recording can be written by hand."""
    old = recorded(PLOT, 1)
    first, second = old.runs
    steps = tuple(replace(each, step=replace(each.step, parent=9 - each.step.number)) for each in first.steps)
    strange = replace(
        old, runs=(replace(first, parent=second.id, steps=steps), replace(second, parent=second.id))
    )
    for found in (diff(strange, old), diff(old, strange), diff(strange, strange)):
        shown = [row.node.before or row.node.after for row in found.rows()]
        assert len(shown) >= 9
    assert diff(strange, strange).is_same


def test_requests_that_are_no_requests_are_compared_as_texts() -> None:
    old = recorded(PLOT, 1)
    (run, *others) = old.runs
    deep = '{"messages":' + 5_000 * "[" + 5_000 * "]" + "}"
    for text in (
        "",
        "no JSON",
        "[]",
        "7",
        '{"messages": 3, "tools": [1]}',
        '{"input": [1, [2], null]}',
        deep,
        "\ud800",
    ):
        broken = replace(run, steps=tuple(replace(each, request=text, response=text) for each in run.steps))
        new = replace(old, runs=(broken, *others))
        assert diff(new, new).is_same
        assert not diff(old, new).is_same


def test_a_long_run_is_parsed_once() -> None:
    """The texts of requests grow with the square of the number of steps; what is parsed does not."""
    (run,) = recorded(long_plot(400), 1).runs
    reader = ContentsReader()
    contents = reader.read(run)
    size = sum(len(each.request) for each in run.steps if each.step.kind == "model")
    assert size > 30 * len(run.steps[-2].request)
    assert reader.parsed < 3 * len(run.steps[-2].request)
    assert all(len(each.messages) == 2 for each in contents[2:] if each.detail.step.kind == "model")
