"""What `make chaos` judges by: each thing that must not happen is found."""

import json
from typing import Any

import pytest

from benchmarks.chaos.audit import Change
from benchmarks.chaos.callers import Sent
from benchmarks.chaos.cluster import Loss
from benchmarks.chaos.evidence import Evidence, Owner
from benchmarks.chaos.replica import Span
from benchmarks.chaos.streams import problems
from benchmarks.chaos.verdict import judge
from benchmarks.invariants import INVARIANTS, OBSERVED, SIMULATED
from benchmarks.rest_stream import Stream

A, B, ROLLBACK = ({"type": "text", "delta": "a"}, {"type": "text", "delta": "b"}, {"type": "rollback"})
FINAL = {"type": "final"}
SECOND = 1_000_001


def stream(*chunks: tuple[int, dict[str, Any]]) -> Stream:
    """What came of the run ``r``."""
    made = Stream("r")
    for number, chunk in chunks:
        made.read(f"id: {number}")
        made.read(f"data: {json.dumps(chunk)}")
    return made


WHOLE = stream((1, A), (2, B), (3, FINAL))
CONTINUED = stream((1, A), (SECOND, ROLLBACK), (SECOND + 1, FINAL))


@pytest.mark.parametrize(
    ("seen", "replay", "problem"),
    [
        (WHOLE, WHOLE, ""),
        (stream((1, A)), WHOLE, ""),
        (CONTINUED, CONTINUED, ""),
        (stream((1, A), (2, B), (SECOND, ROLLBACK), (SECOND + 1, FINAL)), CONTINUED, ""),
        (stream((1, B), (2, B)), WHOLE, "chunk 1 was {'type': 'text', 'delta': 'b'}, and is"),
        (stream((1, A), (2, B), (3, A), (4, FINAL)), WHOLE, "got chunk 4, which is gone"),
        (stream((1, A), (SECOND, ROLLBACK)), stream((1, A), (2, B), (SECOND, ROLLBACK)), "not get chunk 2"),
        (stream((1, A), (3, FINAL)), WHOLE, "chunk 3 follows 1"),
        (WHOLE, stream((1, A), (3, FINAL)), "read from its first chunk: chunk 3 follows 1"),
        (WHOLE, None, "no replica knows its chunks"),
    ],
)
def test_a_stream_is_the_same_for_its_caller_and_afterwards(
    seen: Stream, replay: Stream | None, problem: str
) -> None:
    found = list(problems([seen], {} if replay is None else {"r": replay}, {"r"}))
    assert any(problem in text for _, text in found) if problem else not found
    assert all(run == "r" for run, _ in found)


def test_a_run_that_was_never_stored_has_no_stream() -> None:
    refused = stream((1, {"type": "error", "message": "away", "data": {}}))
    assert not list(problems([Stream("r"), Stream(), refused], {}, set()))
    assert list(problems([refused], {}, {"r"}))


LOST = "I1 acknowledged and lost"
ALIVE = "alive runs that were taken over"


@pytest.mark.parametrize(
    ("loss", "is_problem"),
    [
        (None, True),
        (Loss(runs={"r"}, run_of={"t": "r"}), False),
        (Loss(runs={"another"}, run_of={"t": "r"}), True),
        (Loss(), True),
    ],
)
def test_an_acknowledged_message_may_only_be_lost_with_a_primary_that_had_it(
    loss: Loss | None, is_problem: bool
) -> None:
    evidence = Evidence({}, {}, [], [], {}, {}, {})
    verdict = judge(evidence, [Sent("t", "caller", "thread", 0.0, "answered", 1.0)], [], loss)
    where, other = (verdict.problems, verdict.lost) if is_problem else (verdict.lost, verdict.problems)
    assert where[LOST] == ["t: answered, but not in its thread"]
    assert not other[LOST]


def test_chaos_and_simulation_check_one_list() -> None:
    verdict = judge(Evidence({}, {}, [], [], {}, {}, {}), [], [])
    assert {name.partition(" ")[0] for name in verdict.problems} == OBSERVED
    assert INVARIANTS.keys() - OBSERVED - SIMULATED == {"I7"}


def test_a_message_that_was_not_acknowledged_may_be_missing() -> None:
    verdict = judge(Evidence({}, {}, [], [], {}, {}, {}), [Sent("t", "c", "thread", 0.0, "absent", 1.0)], [])
    assert not any(verdict.problems.values())


def test_what_a_primary_may_lose_never_doubles_a_message() -> None:
    row: dict[str, Any] = {"role": "user", "content": "t", "status": "complete", "turn_index": 0}
    row |= {"run_id": "", "summary": False, "tool_calls": None}
    evidence = Evidence({"thread": [row, {**row, "turn_index": 1}]}, {}, [], [], {}, {}, {})
    sent = [Sent("t", "caller", "thread", 0.0, "answered", 1.0)]
    verdict = judge(evidence, sent, [], Loss(runs={"r"}, run_of={"t": "r"}))
    assert verdict.problems["I1 doubled or out of order"] == ["t: 2 times in its thread"]


@pytest.mark.parametrize(("taker", "problems_found"), [("one", 0), ("two", 1)])
def test_a_living_fleet_may_claim_its_own_run_again_and_no_other(taker: str, problems_found: int) -> None:
    def change(at: float, life: str, attempt: int) -> Change:
        row = {"id": "r", "thread_id": "t", "attempt": attempt, "life": life, "status": "running"}
        return Change(at, "", "runs", "UPDATE", row)

    history = [change(1.0, "one", 1), change(2.0, taker, 2)]
    owners = {name: Owner(number, Span(number, 0.0)) for number, name in enumerate(("one", "two"))}
    verdict = judge(Evidence({}, {}, [], history, {"r": history}, {}, owners), [], [])
    assert len(verdict.problems[ALIVE]) == problems_found
