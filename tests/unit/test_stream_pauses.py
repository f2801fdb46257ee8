"""How often a server is asked again for a stream that it closes."""

import pytest

from pallas.downstreams import stream_pauses
from pallas.downstreams.stream_pauses import LONG_SECONDS, LONGEST_PAUSE, MAX_UNCHANGED, StreamPauses


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr(stream_pauses, "monotonic", lambda: now[0])
    return now


def test_the_first_streams_need_no_wait_and_the_others_a_growing_one(clock: list[float]) -> None:
    pauses = StreamPauses()
    found = []
    for _ in range(12):
        pause = pauses.before("")
        assert pause is not None
        found.append(pause)
        clock[0] += pause + 0.01
    assert found[:6] == [0, 0, 0, 1, 2, 4] and found[-1] == LONGEST_PAUSE


def test_a_stream_that_lasted_long_begins_the_count_again(clock: list[float]) -> None:
    pauses = StreamPauses()
    for _ in range(10):
        pauses.before("")
    clock[0] += LONGEST_PAUSE + LONG_SECONDS + 1
    assert [pauses.before("") for _ in range(3)] == [0, 0, 0]


def test_streams_that_end_where_they_began_are_given_up(clock: list[float]) -> None:
    pauses = StreamPauses()
    found = [pauses.before("event-7") for _ in range(MAX_UNCHANGED + 1)]
    assert None not in found[:-1] and found[-1] is None
    assert pauses.before("event-8") is not None


def test_the_events_that_are_remembered_are_bounded(clock: list[float]) -> None:
    pauses = StreamPauses()
    for number in range(1_000):
        pauses.before(f"event-{number}")
    assert len(pauses._asked) <= 100
