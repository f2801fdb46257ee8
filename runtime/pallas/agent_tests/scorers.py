"""What judges a run in a project: functions, ``def polite(recording) -> bool | float | str | None``, and
evaluators of pydantic-evals.
"""

import asyncio
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pallas.model import Recording
from pallas.safe_text import one_line

from .agent_test import AgentTest
from .evaluators import asks_model, evaluate, is_evaluator
from .expectations import Unmet

PASS_FROM: Final = 0.5
"""The score, of 0 to 1, from which a run passes."""

DEADLINE_S: Final = 60.0
"""Seconds that a scorer has."""


class Scorers:
    """The scorers of one project, loaded when a test first names them."""

    def __init__(self, root: Path, deadline_s: float = DEADLINE_S) -> None:
        self._root = root
        self._deadline_s = deadline_s
        self._modules: dict[str, Any] = {}

    async def asking(self, test: AgentTest) -> tuple[str, ...]:
        """The scorers of a test that ask a model of their own, which costs something."""
        found = list[str]()
        for name in test.scorers:
            with suppress(Exception, SystemExit):  # as ``failures`` says of it
                async with asyncio.timeout(self._deadline_s):
                    if asks_model(await asyncio.to_thread(self._named, name)):
                        found.append(name)
        return tuple(found)

    async def failures(self, test: AgentTest, recording: Recording) -> list[Unmet]:
        """What the scorers of a test have against a run. A scorer that raises is a failure, too."""
        found: list[Unmet] = []
        for name in test.scorers:
            try:
                async with asyncio.timeout(self._deadline_s):
                    found += await self._judged(name, test, recording)
            except TimeoutError:
                found.append(Unmet(name, f"it did not return within {self._deadline_s:g} s"))
            except (Exception, SystemExit) as error:
                found.append(Unmet(name, f"it raised {type(error).__name__}: {one_line(str(error), 200)}"))
        return found

    async def _judged(self, name: str, test: AgentTest, recording: Recording) -> list[Unmet]:
        scorer = await asyncio.to_thread(self._named, name)
        if is_evaluator(scorer):
            results = await evaluate(scorer, test, recording)
            return [unmet for each in results for unmet in _failures_of(name, *each)]
        judged = await asyncio.to_thread(scorer, recording)
        if inspect.isawaitable(judged):
            judged = await judged
        return list(_failures(name, judged))

    def _named(self, name: str) -> Any:
        """The function, or the evaluator. Imports its module."""
        module, _, attribute = name.partition(":")
        if module not in self._modules:
            self._modules[module] = self._load(module)
        return getattr(self._modules[module], attribute)

    def _load(self, module: str) -> Any:
        path = self._root.joinpath(*module.split(".")).with_suffix(".py")
        spec = importlib.util.spec_from_file_location(f"pallas_scorer_{module}", path)
        if spec is None or spec.loader is None or not path.is_file():
            raise ModuleNotFoundError(f"there is no {path.name} in the project's folder")
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = loaded
        spec.loader.exec_module(loaded)
        return loaded


def _failures_of(scorer: str, name: str, value: Any, reason: str) -> Iterator[Unmet]:
    """What a result of an evaluator has against a run; a label says nothing of whether it passes."""
    if not isinstance(value, str):
        because = f": {one_line(reason, 300)}" if reason else ""
        what = f"{scorer} {one_line(name, 60)}".rstrip()
        yield from (replace(each, what=what, why=each.why + because) for each in _failures(scorer, value))


def _failures(name: str, judged: Any) -> Iterator[Unmet]:
    if isinstance(judged, str):
        yield Unmet(name, one_line(judged, 300))
    elif isinstance(judged, bool):
        if not judged:
            yield Unmet(name, "it did not pass")
    elif isinstance(judged, int | float):
        if not PASS_FROM <= judged <= 1:  # nor is it one that is no number
            yield Unmet(name, f"its score is {judged:g}; it must be {PASS_FROM:g} to 1")
    elif judged is not None:
        yield Unmet(name, f"it returned {type(judged).__name__}; allowed: bool, float, text or None")
