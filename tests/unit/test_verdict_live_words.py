"""What models that are asked for a verdict may cost, and the word for what came of it."""

from dataclasses import replace
from decimal import Decimal

import pytest

from pallas.fleet.replay_fleet import ReplayOutcome
from pallas.model import (
    Fault,
    ModelCalls,
    RecordedRun,
    Recording,
    RunVerdict,
    Step,
    StepAttempt,
    StepChanged,
    StepDetail,
    StepUsage,
    VerdictReached,
    VerdictWord,
)
from pallas.model.codec import dumps
from pallas.model.verdict import counts_after, verdict_text
from pallas.prices.price_book import PriceBook, PriceRule
from pallas.recordings.recorded_steps import StepRequest
from pallas.verdict.affected_units import running_in, steps_in_order
from pallas.verdict.live_cost import LiveBudget, estimate_of
from pallas.verdict.live_words import live_judgement, with_answered

DOLLAR = Decimal(1)
_RULES = [PriceRule("dear", DOLLAR, DOLLAR)]
BOOK = PriceBook(_RULES)
OFFLINE = PriceBook(_RULES, offline_port=9)


def model(number: int, state: str = "done", name: str = "dear", status: int = 200) -> StepDetail:
    """A request to a model of 1,000 tokens, and as many in its answer: $0.002."""
    step = Step("1", number, "model", name, float(number), state=state)  # type: ignore[arg-type]
    attempts = (StepAttempt(0.0, status),)
    return StepDetail(replace(step, usage=StepUsage(1_000, 1_000), attempts=attempts), "{}", "{}")


def called(number: int, name: str, at: float = 0.0, **arguments: object) -> StepDetail:
    step = Step("1", number, "tool", name, at or float(number), "done")
    return StepDetail(step, dumps({"name": name, "arguments": arguments}).decode(), "{}")


def run(
    name: str, agent: str, *steps: StepDetail, parent: str = "", at: int = 0, answer: str = "yes"
) -> RecordedRun:
    return RecordedRun(name, agent, "why?", answer, parent=parent, parent_step=at, steps=steps)


TREE = Recording(
    "p",
    (
        run("1", "desk", model(1), called(2, "clerk"), called(3, "keeper"), model(4)),
        run("2", "clerk", model(1), called(2, "shelf__find"), model(3), parent="1", at=2),
        run("3", "keeper", model(1), called(2, "box__open"), parent="1", at=3),
    ),
)


def test_agents_above_a_changed_one_run_again_and_no_others() -> None:
    assert running_in(TREE, {"clerk"}) == {"clerk", "desk"}
    assert running_in(TREE, {"desk"}) == {"desk"}
    assert running_in(TREE, {"other"}) == set()
    assert [(run.id, each.step.number) for run, each in steps_in_order(TREE)] == [
        *[("1", 1), ("1", 2), ("2", 1), ("2", 2), ("2", 3)],
        *[("1", 3), ("3", 1), ("3", 2), ("1", 4)],
    ]


@pytest.mark.asyncio
async def test_what_is_recorded_from_the_first_difference_on_is_what_it_would_cost() -> None:
    whole = await estimate_of(TREE, ("2", 1), {"clerk", "desk"}, {}, BOOK)
    assert (whole, whole.text) == (ModelCalls(3, 6_000_000), "3 model calls, $0.0060")
    later = await estimate_of(TREE, ("2", 3), {"clerk", "desk"}, {}, BOOK)
    assert later.count == 2
    other = {"clerk": replace(model(1).step, name="unheard-of", url="http://127.0.0.1:9/v1")}
    unknown = await estimate_of(TREE, ("2", 1), {"clerk", "desk"}, other, BOOK)
    assert (unknown, unknown.text) == (ModelCalls(3, 2_000_000, 2), "3 model calls, $0.0020+")
    free = await estimate_of(TREE, ("2", 1), {"clerk"}, other, OFFLINE)
    assert (free, free.text) == (ModelCalls(2, 0), "2 model calls, $0")


def asking(number: int, name: str = "dear") -> tuple[StepRequest, Step]:
    step = replace(model(number, "begun", name).step, url="http://127.0.0.1:9/v1")
    return StepRequest("1", "desk", "model", name, "", "x" * 4_000, ("1", number)), step


@pytest.mark.asyncio
async def test_a_request_is_made_only_if_its_price_is_below_what_is_left() -> None:
    budget = LiveBudget(BOOK, 5_000_000, [TREE])
    await budget.admit(*asking(1))
    await budget.admit(*asking(1))  # once more, since it failed
    await budget.admit(*asking(2))
    with pytest.raises(
        Fault, match=r"desk to dear was not made: it would cost about \$0.0020, and \$0.0010 of"
    ):
        await budget.admit(*asking(3))
    told = replace(model(2).step, cost=500_000)
    budget.hear(StepChanged(run_id="1", agent="desk", step=told))
    await budget.admit(*asking(3))  # the second was cheaper
    assert budget.why_not(5_000_000).startswith("it would cost about $0.0050, and ")
    assert budget.why_not(0) == ""


def test_runs_that_are_begun_at_once_do_not_take_each_others_share() -> None:
    budget = LiveBudget(BOOK, 5_000_000, [TREE])
    with budget.begun(2_000_000) as first, budget.begun(3_000_000) as second:
        assert (first, second) == ("", "")
        with budget.begun(1) as third:
            assert third.endswith("and $0 of max_cost $0.0050 is left")
        budget.ended(1_000_000)  # it was cheaper than was thought
    with budget.begun(4_000_000) as fourth:
        assert fourth == ""
    with budget.begun(4_000_001) as fifth:
        assert fifth.startswith("it would cost about $0.0040, and $0.0040 of max_cost $0.0050 is left")


@pytest.mark.asyncio
async def test_a_model_without_a_known_price_is_asked_only_if_it_is_the_offline_one() -> None:
    budget = LiveBudget(BOOK, 10**9, [TREE])
    with pytest.raises(Fault, match=r"the price of \.unheard-of is not known"):
        await budget.admit(*asking(1, "unheard-of"))
    await LiveBudget(OFFLINE, 0, [TREE]).admit(*asking(1, "unheard-of"))


def test_runs_that_were_answered_from_the_recording_are_part_of_the_run() -> None:
    live = Recording(
        "p",
        (
            run("a", "desk", model(1), called(2, "keeper", at=50.0), called(3, "clerk", at=60.0)),
            run("b", "clerk", model(1), parent="a", at=3),
            run("c", "keeper", parent="a", at=2),
        ),
    )
    whole = with_answered(TREE, live, {"desk", "clerk"})
    assert [(each.id, each.parent, each.parent_step) for each in whole.runs] == [
        ("a", "", 0),
        ("3", "a", 2),
        ("b", "a", 3),
    ]
    opened = whole.runs[1].steps[1].step
    assert opened.name == "box__open"
    assert 50.0 <= opened.started_at < 60.0


@pytest.mark.parametrize(
    ("step", "word"),
    [
        (model(1, "failed", status=429), "not decided"),
        (model(1, "failed", status=503), "not decided"),
        (model(1, "failed", status=401), "not decided"),
        (model(1, "failed", status=400), "fails"),
        (model(1, "failed", status=422), "fails"),
    ],
)
def test_a_provider_that_refuses_a_request_for_what_it_is_fails(step: StepDetail, word: VerdictWord) -> None:
    step = replace(step, step=replace(step.step, run_id="1", fault="no such thing"))
    live = replace(TREE, runs=(run("1", "desk", step),))
    found = live_judgement(TREE, ReplayOutcome(live, 0.0, asked=(step.step,)), live)
    assert (found.word, found.where, found.what) == (word, "desk", "no such thing")


@pytest.mark.parametrize(
    ("changed", "word", "what"),
    [
        (run("2", "clerk", *TREE.runs[1].steps, parent="1", at=2), "same", ""),
        (run("2", "clerk", *TREE.runs[1].steps, parent="1", at=2, answer="no"), "other words", "answer"),
        (
            run("2", "clerk", *TREE.runs[1].steps, called(4, "shelf__sell", n=2), parent="1", at=2),
            "other tool calls",
            'now also calls shelf__sell {"n": 2}',
        ),
        (run("2", "clerk", parent="1", at=2), "other tool calls", "no longer calls shelf__find {}"),
    ],
)
def test_calls_and_answers_of_all_runs_say_whether_it_is_the_same(
    changed: RecordedRun, word: VerdictWord, what: str
) -> None:
    live = replace(TREE, runs=(TREE.runs[0], changed, TREE.runs[2]))
    found = live_judgement(TREE, ReplayOutcome(live, 0.0), live)
    assert found.word == word
    assert what in found.what


def test_the_same_that_is_dearer_costs_more() -> None:
    was = replace(TREE, runs=(replace(TREE.first, cost=1_000_000), *TREE.runs[1:]))
    now = replace(TREE, runs=(replace(TREE.first, cost=2_000_000), *TREE.runs[1:]))
    found = live_judgement(was, ReplayOutcome(now, 0.0), now)
    assert (found.word, found.before, found.after) == ("costs more", "$0.0010", "$0.0020")


def test_the_words_of_runs_that_are_not_named_stay_counted() -> None:
    named = RunVerdict("a", "test", "desk", "other words", estimate=ModelCalls(2, 100))
    verdict = VerdictReached(
        agents=("desk",),
        runs=(named,),
        counts={"same": 7, "other words": 1},
        live="can ask",
        estimate=named.estimate,
    )
    assert "models can be asked (pallas verdict --live): 2 model calls, <$0.0001" in verdict_text(verdict)
    after = replace(named, word="same", passes=True)
    assert counts_after(verdict, [after]) == {"same": 8}
    assert (after.is_fine, named.is_fine, replace(named, passes=True).is_fine) == (True, False, True)
