"""Tokens a minute: what may be taken, how long one waits for it, and what was estimated wrongly."""

import pytest
from support.backends import Time

from pallas.llm.backend import TokenBucket


def _bucket(capacity: int = 6_000) -> tuple[TokenBucket, Time]:
    time = Time()
    return TokenBucket(capacity, time.clock), time


def test_it_is_full_at_first_and_fills_within_a_minute() -> None:
    # HC-29
    bucket, time = _bucket()
    assert bucket.take(6_000) == 0
    assert bucket.wait_for(3_000) == 30
    time.now += 30
    assert (bucket.level, bucket.wait_for(3_000)) == (3_000, 0)
    time.now += 3_600
    assert bucket.level == 6_000


def test_who_waits_is_told_how_long_and_keeps_its_place() -> None:
    bucket, time = _bucket()
    waits = [bucket.take(6_000), bucket.take(3_000), bucket.take(100), bucket.take(6_000)]
    assert waits == [0, 30, 31, 91]  # the small one does not overtake
    time.now += 91
    assert bucket.level == 0


def test_more_than_it_ever_holds_cannot_be_taken() -> None:
    # X9
    bucket, _ = _bucket()
    assert not bucket.holds(6_001)
    assert bucket.holds(6_000)


def test_what_was_not_used_comes_back_and_what_was_more_is_owed() -> None:
    # HC-29, X11
    bucket, time = _bucket()
    bucket.take(1_000)
    bucket.settle(1_000, 200)
    assert bucket.level == 5_800
    bucket.settle(0, 7_000)
    assert bucket.level == -1_200
    assert bucket.wait_for(100) == 13
    bucket.settle(0, 1_000_000)
    assert bucket.level == -6_000  # nobody waits longer than a minute for one answer that was too long
    time.now += 60
    assert bucket.level == 0


@pytest.mark.parametrize("amount", [0, 1, 10**9])
def test_without_a_limit_nobody_waits(amount: int) -> None:
    bucket, _ = _bucket(0)
    assert bucket.holds(amount)
    assert bucket.take(amount) == bucket.wait_for(amount) == 0
    bucket.settle(amount, amount * 2)
    assert bucket.take(amount) == 0
