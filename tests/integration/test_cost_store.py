"""What runs cost, added up by the database: with the runs below them, by anything, and after a crash."""

import time
from typing import Any

import pytest
from support.turns import ok, run

from pallas.ledger import Ledger
from pallas.model import Cost, CostsBy, CostSum, EndedRun, RunRecord, Step, StoredStep


def ended(id: str, cost: int | None, caused_by: str = "", **fields: Any) -> RunRecord:  # noqa: A002
    return ok(run(id), cost=cost, unpriced=int(cost is None), caused_by=caused_by, **fields)


def paid(run_id: str, number: int, model: str, cost: int | None) -> StoredStep:
    step = Step(run_id, number, "model", model, time.time(), "done", cost=cost, unpriced=int(cost is None))
    return StoredStep(step)


async def told(ledger: Ledger, *runs: RunRecord, steps: tuple[StoredStep, ...] = ()) -> None:
    of = {each.id: tuple(step for step in steps if step.step.run_id == each.id) for each in runs}
    await ledger.runs.record([EndedRun(each.id, each, (), of[each.id]) for each in runs])


async def sums(ledger: Ledger, by: CostsBy, **more: Any) -> list[tuple[str, int | None, int, int]]:
    found = await ledger.costs.sums(by, **more)
    return [(each.key, each.cost, each.unpriced, each.runs) for each in found]


async def test_a_run_has_all_below_it_once(ledger: Ledger) -> None:
    await told(
        ledger,
        ended("top", 1),
        ended("left", 2, "top"),
        ended("right", None, "top"),
        ended("deep", 8, "left"),
        ended("other", 16),
    )
    below = await ledger.costs.below(["top", "left", "other"])
    assert {root: Cost.sum(found.values()) for root, found in below.items()} == {
        "top": Cost(10, 1),
        "left": Cost(8),
    }
    assert set(below["top"]) == {"left", "right", "deep"}


async def test_runs_that_belong_to_each_other_end(ledger: Ledger) -> None:
    await told(ledger, ended("a", 1, "b"), ended("b", 2, "a"))
    assert Cost.sum((await ledger.costs.below(["a"]))["a"].values()) == Cost(3)


async def test_sums_by_anything_have_the_same_whole(ledger: Ledger) -> None:
    threads = [(await ledger.threads.create("jarvis", "me")).id for _ in range(2)]
    large = 5 * 10**18  # two of them are more than a column of PostgreSQL's adds to
    await told(
        ledger,
        ended("a", large, agent="lead", thread=threads[0], version="0123456789ab"),
        ended("b", 7, "a", agent="clerk", thread=threads[1], owner="she", tokens_in=5, tokens_out=6),
        ended("c", None, agent="clerk"),
        ended("d", 100, agent="far"),
        steps=(
            paid("a", 1, "m", large - 1),
            paid("a", 2, "n", 1),
            paid("b", 1, "m", 7),
            paid("c", 1, "m", None),
        ),
    )
    assert await sums(ledger, "agent") == [("lead", large, 0, 1), ("far", 100, 0, 1), ("clerk", 7, 1, 2)]
    assert await sums(ledger, "caller") == [("me", large + 100, 1, 3), ("she", 7, 0, 1)]
    assert await sums(ledger, "version") == [
        ("lead@0123456789ab", large, 0, 1),
        ("far@", 100, 0, 1),
        ("clerk@", 7, 1, 2),
    ]
    # The clerk's own thread is paid for with the one of the run that asked for it.
    assert await sums(ledger, "thread") == [(threads[0], large + 7, 0, 2), ("", 100, 1, 2)]
    assert await ledger.costs.of_threads(threads) == {threads[0]: Cost(large + 7), threads[1]: Cost(7)}
    # What the far agent reports is in no step.
    assert await sums(ledger, "model") == [("m", large + 6, 1, 3), ("n", 1, 0, 1), ("", 100, 0, 0)]
    assert await sums(ledger, "agent", owner="she") == [("clerk", 7, 0, 1)]
    assert await sums(ledger, "agent", since=time.time() + 60) == []
    (clerk,) = await ledger.costs.sums("agent", owner="she")
    assert clerk == CostSum("clerk", 7, 0, 1, 5, 6)


@pytest.mark.parametrize("by", ["agent", "caller", "thread", "version", "model"])
async def test_runs_under_way_are_in_no_sum(ledger: Ledger, by: CostsBy) -> None:
    begun = run("now")
    await ledger.runs.begin(begun)
    await ledger.runs.record([EndedRun("now", None, (), (paid("now", 1, "m", 5),))])
    await told(ledger, ended("over", 7), steps=(paid("over", 1, "m", 7),))
    found = await ledger.costs.sums(by)
    assert (Cost.sum(found), sum(each.runs for each in found)) == (Cost(7), 1)
    assert all((each.cost or 0) >= 0 for each in found)


@pytest.mark.parametrize("by", ["agent", "caller", "thread", "version", "model"])
async def test_of_many_sums_the_dearest_are_told_and_the_rest_as_one(
    ledger: Ledger, by: CostsBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas.ledger.cost_store.MAX_SUMS", 1)
    made = [ended(str(n), n, agent=f"a{n}", owner=f"o{n}") for n in (1, 2, 4)]
    await told(ledger, *made, steps=tuple(paid(str(n), 1, f"m{n}", n) for n in (1, 2, 4)))
    found = await ledger.costs.sums(by)
    assert len(found) <= 2
    assert Cost.sum(found) == Cost(7)
