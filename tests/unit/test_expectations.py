"""What a test expects of a run, and which of it a recording does not meet."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas.agent_tests.expectations import (
    Budget,
    Expectations,
    ExpectedAnswer,
    ExpectedCalls,
    failures,
    tokens_of,
)
from pallas.agent_tests.pass_rate import all_of, interval
from pallas.model import RecordedRun, Recording, Step, StepDetail


def call(number: int, name: str, **arguments: Any) -> StepDetail:
    request = json.dumps({"name": name, "arguments": arguments})
    return StepDetail(Step("r", number, "tool", name, float(number), "done"), request)


def asked(answer: str = '{"lamps": 3}', *steps: StepDetail, **more: Any) -> Recording:
    """A run of ``lead`` with these calls, which asked ``keeper``; that called ``vault__open``."""
    made = steps or (call(1, "shelf__find", what="lamps", most=[2, 3]), call(4, "shelf__look", at="lamps"))
    lead = RecordedRun("r1", "lead", "Go", answer, seconds=2.5, tokens_in=90, tokens_out=10, steps=made)
    keeper = RecordedRun(
        "r2",
        "keeper",
        "count",
        "9",
        parent="r1",
        parent_step=3,
        tokens_in=50,
        steps=(call(3, "vault__open"),),
    )
    return Recording("p", (replace(lead, **more), keeper))


def unmet(recording: Recording, expected: Expectations) -> list[str]:
    return list(map(str, failures(recording, expected)))


def answer(**wanted: Any) -> Expectations:
    return Expectations(answer=ExpectedAnswer(**wanted))


def calls(**wanted: Any) -> Expectations:
    return Expectations(calls=ExpectedCalls(**wanted))


SCHEMA = {"type": "object", "properties": {"lamps": {"type": "integer", "maximum": 5}}, "required": ["lamps"]}
WHOLE = Expectations(
    ExpectedAnswer(("lamps", "3"), ("sorry",), re.compile(r"\d"), SCHEMA),
    ExpectedCalls(
        ("shelf__find", "vault__open", "shelf__look"),
        ("shelf__look", "shelf__find"),
        ("shelf__burn",),
        {"shelf__find": [{"$.what": "lamps", "$.most[1]": 3}]},
    ),
    ("keeper",),
    Budget(3, 150, 2.5),
)


def test_a_run_may_cost_no_more_with_all_that_it_led_to() -> None:
    def most(cost: int) -> Expectations:
        return Expectations(most=Budget(cost=cost))

    priced = asked(cost=2_000_000)
    other = replace(priced.runs[1], cost=1_000_000)
    whole = replace(priced, runs=(priced.first, other))
    assert unmet(whole, most(3_000_000)) == []
    assert unmet(whole, most(2_999_999)) == ["most.usd: it cost $0.0030; the limit is $0.0030"]
    partly = replace(whole, runs=(priced.first, replace(other, cost=None, unpriced=1)))
    unknown = ["most.usd: its cost is not known; add its models under prices: in agents.yaml"]
    assert unmet(partly, most(3_000_000)) == unmet(asked(), most(3_000_000)) == unknown
    assert unmet(partly, most(1_000_000)) == ["most.usd: it cost $0.0020+; the limit is $0.0010"]


def test_a_run_that_is_as_expected_meets_all_of_it() -> None:
    assert unmet(asked(), WHOLE) == []
    assert tokens_of(asked()) == 150


REGRESSIONS = {
    "text is missing": (asked('{"lamps": 4}'), "answer.contains: '3' is not in '{\"lamps\": 4}'"),
    "text is there": (asked('{"lamps": 3, "a": "sorry"}'), "answer.lacks: 'sorry' is in"),
    "schema is broken": (asked('{"lamps": "3"}'), "answer.schema: $.lamps: '3' is not of type 'integer'"),
    "answer is not JSON": (asked("3 lamps"), "answer.schema: the answer is not JSON: '3 lamps'"),
    "tool is renamed": (
        asked('{"lamps": 3}', call(1, "shelf__search", what="lamps", most=[2, 3]), call(4, "shelf__look")),
        "calls.order: shelf__find was not called in this position; calls: shelf__search, vault__open,",
    ),
    "order is another": (
        asked('{"lamps": 3}', call(5, "shelf__find", what="lamps", most=[2, 3]), call(4, "shelf__look")),
        "calls.order: vault__open was not called in this position",
    ),
    "argument is wrong": (
        asked('{"lamps": 3}', call(1, "shelf__find", what="lamp", most=[2, 3]), call(4, "shelf__look")),
        'calls.arguments.shelf__find: no call has \'{"$.what": "lamps", "$.most[1]": 3}\'; arguments: ',
    ),
    "tool is called that must not be": (
        asked(
            '{"lamps": 3}',
            call(1, "shelf__find", what="lamps", most=[2, 3]), call(4, "shelf__look"), call(5, "shelf__burn"),
        ),
        "calls.never: shelf__burn was called",
    ),
    "agent is another": (
        Recording("p", (asked().first, replace(asked().runs[1], agent="counter"))),
        "agents: keeper was not asked; asked: counter",
    ),
    "loop is longer": (
        asked(
            '{"lamps": 3}',
            call(1, "shelf__find", what="lamps", most=[2, 3]), call(4, "shelf__look"), call(6, "x"),
        ),
        "most.steps: it took 4 steps, but at most 3 are allowed",
    ),
    "cost is higher": (asked(tokens_out=11), "most.tokens: it took 151 tokens, but at most 150 are allowed"),
    "run is slower": (asked(seconds=2.6), "most.seconds: it took 2.6 seconds, but at most 2.5 are allowed"),
    "run fails": (asked(status="error", fault="it is gone"), "fails: the run failed: it is gone"),
}  # fmt: skip


@pytest.mark.parametrize(("recording", "said"), REGRESSIONS.values(), ids=REGRESSIONS)
def test_each_regression_is_caught_and_said(recording: Recording, said: str) -> None:
    assert any(line.startswith(said) for line in unmet(recording, WHOLE)), unmet(recording, WHOLE)


def test_a_run_may_be_expected_to_fail() -> None:
    broken = asked(status="error", fault="the vault is closed")
    assert unmet(broken, Expectations(fails="vault")) == []
    assert unmet(broken, Expectations(fails="")) == []
    assert unmet(broken, Expectations(fails="shelf")) == [
        "fails: the run failed with 'the vault is closed', which has no 'shelf'"
    ]
    assert unmet(asked(), Expectations(fails="vault")) == [
        "fails: the run must fail, but answered '{\"lamps\": 3}'"
    ]


def test_a_schema_that_names_another_document_is_not_fetched() -> None:
    elsewhere = {"$ref": "http://127.0.0.1:9/schema.json"}
    (line,) = unmet(asked(), Expectations(ExpectedAnswer(schema=elsewhere)))
    assert line.startswith("answer.schema: Unresolvable: http://127.0.0.1:9/schema.json")
    assert line.endswith("; write into the schema what $ref names")


def test_a_tool_that_is_wanted_twice_must_be_called_twice() -> None:
    once, twice = asked("", call(1, "a")), asked("", call(1, "a"), call(2, "a"))
    wanted = calls(any_order=("a", "a"))
    assert unmet(twice, wanted) == []
    assert unmet(once, wanted) == ["calls.any_order: a was called 1 of 2 times; calls: a, vault__open"]


def test_the_values_of_one_call_count_together() -> None:
    apart = asked("", call(1, "a", x=1, y=1), call(2, "a", x=2, y=2))
    assert unmet(apart, calls(arguments={"a": [{"$.x": 1, "$.y": 1}]})) == []
    assert len(unmet(apart, calls(arguments={"a": [{"$.x": 1, "$.y": 2}]}))) == 1


def test_each_of_several_arguments_is_that_of_another_call() -> None:
    made = asked("", call(1, "a", x=1, y=1), call(2, "a", x=1, y=2))
    # The first is met by both calls, the second only by the one that comes first.
    assert unmet(made, calls(arguments={"a": [{"$.x": 1}, {"$.y": 1}]})) == []
    assert unmet(made, calls(arguments={"a": [{"$.x": 1}, {"$.x": 1}, {"$.x": 1}]})) == [
        "calls.arguments.a: no other call has '{\"$.x\": 1}'; "
        'arguments: \'{"x": 1, "y": 1}; {"x": 1, "y": 2}\''
    ]
    assert unmet(made, calls(arguments={"a": [{"$.y": 2}, {"$.y": 3}]}))[0].startswith(
        "calls.arguments.a: no call has '{\"$.y\": 3}'"
    )


def test_nothing_expected_is_met_by_every_answer() -> None:
    assert unmet(asked("anything"), Expectations()) == []
    assert unmet(asked("one\ntwo"), answer(matches=re.compile("one.two", re.DOTALL))) == []


def test_the_interval_of_a_rate_is_that_of_wilson() -> None:
    # Values of Newcombe (1998), https://doi.org/10.1002/(SICI)1097-0258(19980430)17:8<857
    assert interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert interval(0, 0) == (0.0, 1.0)


@given(st.integers(1, 2_000), st.data())
def test_the_interval_has_the_rate_in_it(of: int, data: st.DataObject) -> None:
    passed = data.draw(st.integers(0, of))
    low, high = interval(passed, of)
    assert 0.0 <= low <= passed / of + 1e-12
    assert passed / of - 1e-12 <= high <= 1.0


def test_the_chance_that_several_pass() -> None:
    assert all_of(9, 10) == pytest.approx(0.9**10)
    assert (all_of(5, 5), all_of(0, 5), all_of(0, 0)) == (1.0, 0.0, 0.0)
