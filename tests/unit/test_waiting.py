"""``support.waiting.poll``: asks until an answer is accepted, and says what the last one was."""

import pytest
from support.waiting import poll


async def test_the_first_answer_that_is_accepted_is_returned() -> None:
    answers = iter((0, 1, 2, 3))

    async def ask() -> int:
        return next(answers)

    assert await poll(ask) == 1
    assert await poll(ask, lambda answer: answer > 2) == 3


async def test_a_failure_on_the_way_is_raised_at_once() -> None:
    asked = 0

    async def ask() -> bool:
        nonlocal asked
        asked += 1
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await poll(ask)
    assert asked == 1


async def test_the_deadline_tells_the_last_answer() -> None:
    async def ask() -> str:
        return "not yet"

    with pytest.raises(AssertionError, match=r"not so within 0\.05 s; the last answer: 'not yet'"):
        await poll(ask, lambda answer: answer == "ready", timeout=0.05)  # subject: the limit
