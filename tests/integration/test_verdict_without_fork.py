"""Where the system cannot fork, a process judges one request and ends."""

from pathlib import Path

import pytest
from support.gated import gated, judging
from support.judged import executed, judged_project
from support.reloading import module
from support.waiting import until

import pallas
from pallas.fleet.reload.verdict_judge import JudgeRequest
from pallas.verdict.warm_judge import WarmJudge

pytestmark = pytest.mark.slow
WITHOUT_FORK = """
import os
import sys

if "pallas.verdict.fork_program" in sys.orig_argv:
    del os.fork
"""


@pytest.fixture
def _no_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that judges has no ``os.fork``."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WITHOUT_FORK)
    runtime = Path(pallas.__file__).parent.parent
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{runtime}")


@pytest.mark.usefixtures("_no_fork")
async def test_each_save_has_its_verdict_and_the_last_one_wins(tmp_path: Path) -> None:
    root = await judged_project(tmp_path / "p")
    async with gated(root) as saves:
        for number, text in enumerate(("You are a keeper.", "You are keeper.")):
            saves.write("agents/keeper.py", module("keeper", text))
            verdict = await saves.verdict(number)
            assert verdict.counts == {("other words", "same")[number]: 1}, verdict.problem
        saves.write(
            "agents/keeper.py", "import time\n\ntime.sleep(600)\n" + module("keeper", "You are keeper.")
        )
        await until(lambda: judging(root))
        saves.write("agents/keeper.py", module("keeper", "You are it."))
        verdict = await saves.verdict(2)
        assert (verdict.counts, verdict.problem) == ({"other words": 1}, "")
    assert executed(root) == []


@pytest.mark.usefixtures("_no_fork")
async def test_a_process_that_ends_is_started_again_for_the_next_request(tmp_path: Path) -> None:
    root = await judged_project(tmp_path / "p")
    judge = WarmJudge()
    request = JudgeRequest(root=root, affected=frozenset({"keeper"}), tests=("lamps",))
    try:
        for _ in range(2):
            assert [each.word async for each in judge.verdicts(request)] == ["same"]
    finally:
        await judge.close()
