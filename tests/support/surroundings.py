"""The surroundings of a screen: the same whatever terminal and wherever on earth the tests run."""

import time
from collections.abc import Iterator

import pytest
from textual import constants


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For every test that finds it: nothing moves, all colours are there, it is noon in UTC.

    ``tests/pilot`` and ``tests/snapshot`` have it from their ``conftest.py``.
    """
    # Textual has read its environment when it was imported, which pytest's plugins see to before any test.
    monkeypatch.setattr(constants, "TEXTUAL_ANIMATIONS", "none")
    for name, value in (("TERM", "xterm-256color"), ("COLORTERM", "truecolor"), ("TZ", "UTC")):
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "TMUX", "STY", "VTE_VERSION"):
        monkeypatch.delenv(name, raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
