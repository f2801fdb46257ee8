"""Finders of modules look at their folders again, whatever other threads do."""

import importlib

import pytest

from pallas.executors.fastagent.reimport import invalidate_import_caches


def test_a_pass_that_another_thread_disturbs_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []

    def disturbed() -> None:
        passes.append(1)
        if len(passes) < 3:
            raise KeyError("/lib/python.zip")  # the other thread has dropped it

    monkeypatch.setattr(importlib, "invalidate_caches", disturbed)
    invalidate_import_caches()
    assert len(passes) == 3
