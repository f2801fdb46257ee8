"""Which calls get an injected fault: by their number, or at a rate that a seed decides."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from pallas.model.fault_rules import BLOCK, MAX_TARGETS, FaultPlan, FaultRule, FaultSchedule

SHARES = st.floats(0.001, 1)
NAMES = st.lists(st.sampled_from(["gpt-5", "shelf__find", "shelf__look"]), max_size=80)


def hits(*rules: FaultRule, calls: int = 10, names: tuple[str, ...] = ("gpt-5",)) -> list[int]:
    """The numbers of the calls that get a fault."""
    schedule = FaultSchedule(FaultPlan(rules))
    return [number for number in range(1, calls + 1) if schedule.next_fault(names) is not None]


def at(*calls: int, to: str = "gpt-5", **more: Any) -> FaultRule:
    return FaultRule(to, "500", at=calls, **more)


def test_a_rule_with_numbers_hits_these_calls_alone() -> None:
    assert hits(at(1, 3)) == [1, 3]
    assert hits(at(11)) == []


def test_a_rule_counts_the_calls_of_each_name_that_it_fits() -> None:
    schedule = FaultSchedule(FaultPlan((at(2, to="shelf*"),)))
    tools = ("shelf", "shelf__find"), ("shelf", "shelf__look"), ("other", "other__find")
    # All tools of a server are the server's calls.
    assert [schedule.next_fault(names) is not None for names in tools] == [False, True, False]
    schedule = FaultSchedule(FaultPlan((at(2, to="shelf__*"),)))
    assert [schedule.next_fault(names) is not None for names in (*tools, *tools)] == [False] * 3 + [
        True, True, False,
    ]  # fmt: skip


def test_the_first_rule_that_fits_counts_and_all_of_them_count_calls() -> None:
    schedule = FaultSchedule(FaultPlan((at(1), FaultRule("*", "cut", at=(1, 2)))))
    found = [schedule.next_fault(("gpt-5", "openai.gpt-5")) for _ in range(3)]
    assert [each and each.rule.what for each in found] == ["500", "cut", None]
    assert [(each.name, each.number) for each in found if each] == [("gpt-5", 1), ("gpt-5", 2)]


@given(NAMES, SHARES, st.integers(0, 2**63))
@examples(200)
def test_the_same_calls_get_the_same_faults(names: list[str], rate: float, seed: int) -> None:
    plan = FaultPlan((FaultRule("*", "429", rate=rate, seed=seed), at(3, to="shelf__*")))

    def found() -> list[Any]:
        schedule = FaultSchedule(plan)
        return [schedule.next_fault((name,)) for name in names]

    assert found() == found()


@pytest.mark.slow
@given(SHARES, st.integers(0, 2**63), st.integers(1, 12))
@examples(200)
def test_a_rate_is_kept_in_each_block_of_calls(rate: float, seed: int, blocks: int) -> None:
    found = hits(FaultRule("gpt-5", "cut", rate=rate, seed=seed), calls=blocks * BLOCK)
    assert math.floor(blocks * BLOCK * rate) <= len(found) <= math.ceil(blocks * BLOCK * rate)
    for block in range(blocks):
        inside = [number for number in found if (number - 1) // BLOCK == block]
        assert abs(len(inside) - BLOCK * rate) <= 1


def test_another_seed_chooses_other_calls() -> None:
    chosen = [hits(FaultRule("gpt-5", "cut", rate=0.3, seed=seed), calls=100) for seed in range(5)]
    assert len({tuple(each) for each in chosen}) == 5
    assert [len(each) for each in chosen] == [30] * 5


def test_the_names_that_are_counted_are_bounded() -> None:
    schedule = FaultSchedule(FaultPlan((at(2, to="*"),)))
    for number in range(2 * MAX_TARGETS):
        assert schedule.next_fault((f"model-{number}",)) is None
    assert schedule.next_fault((f"model-{2 * MAX_TARGETS - 1}",)) is not None
    assert schedule.next_fault(("model-0",)) is None  # forgotten, and begins again
