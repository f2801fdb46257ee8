"""Scratch storage of frames: shared within one, bounded, gone with it."""

import gc
from pathlib import Path

import pytest

from pallas import contract
from pallas.executors.typed import scratch
from pallas.executors.typed.scratch import Scratch, Scratches, scratches_of
from pallas.invocation import Invocation, handling


def test_a_frame_keeps_what_the_next_message_in_it_finds() -> None:
    # HC-18
    frames = Scratches()
    with frames.lent("a") as first:
        first["seen"] = 1
    with frames.lent("a") as second, frames.lent("b") as other:
        assert dict(second) == {"seen": 1}
        assert dict(other) == {}
        del second["seen"]
        with pytest.raises(KeyError):
            second["seen"]
        with pytest.raises(KeyError):
            del other["seen"]


def test_a_frame_that_is_over_keeps_nothing_not_even_of_who_is_just_being_cancelled() -> None:
    # HC-18
    frames = Scratches()
    with frames.lent("a") as storage:
        storage["seen"] = 1
        frames.drop("a")
        assert dict(storage) == {}
        with pytest.raises(RuntimeError):
            storage["late"] = 1
    assert len(frames) == 0
    with frames.lent("b") as storage:
        pass
    with pytest.raises(RuntimeError):  # its handler returned, and a task of it goes on
        storage["late"] = 1
    assert len(frames) == 0


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "MAX_ENTRIES", 2)
    monkeypatch.setattr(scratch, "MAX_BYTES", 10_000)
    storage = Scratch()
    storage.update(one="1", two="2")
    with pytest.raises(ValueError, match="2 entries"):
        storage["three"] = "3"
    with pytest.raises(ValueError, match="10,000 bytes"):
        storage["one"] = "x" * 10_000
    assert dict(storage) == {"one": "1", "two": "2"}
    storage["one"] = "x" * 5_000
    del storage["one"]
    storage["one"] = "x" * 9_000


def test_versions_of_an_agent_share_it_and_it_goes_with_the_last(tmp_path: Path) -> None:
    old, new = scratches_of(tmp_path, "a"), scratches_of(tmp_path, "a")
    assert old is new
    assert scratches_of(tmp_path, "b") is not old
    with old.lent("frame") as storage:
        storage["seen"] = 1
    del old, new, storage
    gc.collect()
    assert len(scratches_of(tmp_path, "a")) == 0


def test_handlers_reach_it_by_the_message_that_they_handle() -> None:
    with pytest.raises(RuntimeError, match="there is no message being handled"):
        contract.scratch()
    storage = Scratch()
    with handling(Invocation("a", "thread", scratch=storage)):
        assert contract.scratch() is storage
