"""The surroundings of a screen: the same whatever terminal and wherever on earth the tests run."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from textual import constants
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

_rules: dict[tuple[object, ...], list[RuleSet]] = {}
_parse_rules = Stylesheet._parse_rules


def parse_once(stylesheet: Stylesheet, *arguments: Any, **named: Any) -> list[RuleSet]:
    """The rules of a piece of CSS, parsed once per process for each set of variables.

    Parsing takes a tenth of the start of an application; Textual keeps its result for one application only.
    """
    key = (arguments, *named.items(), *stylesheet._variables.items())
    if key not in _rules:
        _rules[key] = _parse_rules(stylesheet, *arguments, **named)
    return _rules[key]


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For every test that finds it: nothing moves, all colours are there, it is noon in UTC.

    ``tests/pilot`` and ``tests/snapshot`` have it from their ``conftest.py``.
    """
    # Textual has read its environment when it was imported, which pytest's plugins see to before any test.
    monkeypatch.setattr(constants, "TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr(Stylesheet, "_parse_rules", parse_once)
    # By identity as before, but without a call in Python: each widget looks all rules up in a set.
    monkeypatch.setattr(RuleSet, "__hash__", object.__hash__)
    for name, value in (("TERM", "xterm-256color"), ("COLORTERM", "truecolor"), ("TZ", "UTC")):
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "TMUX", "STY", "VTE_VERSION"):
        monkeypatch.delenv(name, raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
