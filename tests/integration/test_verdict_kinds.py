"""Verdicts on agents in processes of their own, and on workers: the right word, and no process left."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.gated import GatedSaves, gated, judging
from support.judged import CLERK, LEAD, SHELF, SKILL, entry, executed
from support.offline import model_record, offline_project
from support.replayed import recorded
from support.waiting import until
from support.workers import SIMPLE

from pallas.agent_tests.kept_test import keep
from pallas.model import RunVerdict

pytestmark = [
    pytest.mark.usefixtures("forked_children"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
]
SCRIPT = """
rules:
  - when: {last: user, system: You are lead}
    call:
      - {tool: clerk, arguments: {message: "find lamps"}}
      - {tool: smith, arguments: {message: "make lamps"}}
      - {tool: price, arguments: {item: "lamps"}}
  - when: {last: user, text: find lamps}
    call: [{tool: shelf__find, arguments: {what: "lamps"}}]
  - when: {last: tool, system: You are clerk}
    say: "three lamps, seen"
  - say: "All in all: many"
"""
HEARD = "heard.log"


async def project_with(root: Path, isolation: str) -> Path:
    """``lead`` asks ``clerk``, which has a skill and a server, and the worker ``smith``."""
    worker: dict[str, Any] = {"module": None, "kind": "worker", "command": ["python", "smith.py"]}
    offline_project(
        root,
        {
            "lead": LEAD.replace(', servers=["clerk"]', ""),
            "clerk": CLERK,
            "smith": None,
            "probe": None,
        },
        SCRIPT,
        keys={
            "lead": {"peers": ["clerk", "smith"], "isolation": isolation},
            "clerk": {"isolation": isolation},
            "smith": {**worker, "env": {"WORKER_LOG": str(root / HEARD)}, "description": "Makes things."},
        },
        top={"bind": "127.0.0.1", "verdict": {"gate": "warn"}},
        config={"mcp": {"servers": {"shelf": {"command": "python", "args": ["shelf.py"]}}}},
        files={"shelf.py": SHELF, "skills/counting/SKILL.md": SKILL, "smith.py": SIMPLE.read_text()},
    )
    recording = await recorded(root, "lead", "How many?")
    assert {run.agent for run in recording.runs} == {"lead", "clerk", "smith"}
    await asyncio.to_thread(keep, recording, root, "lamps")
    (root / "executed").unlink()
    (root / HEARD).unlink()
    return root


class Edits:
    """Edits of a project, each made of its files as they were, and each undone by the next one."""

    def __init__(self, saves: GatedSaves, made: Path) -> None:
        self._saves = saves
        self._made = made

    async def verdict(self, *edits: Callable[[GatedSaves], object]) -> RunVerdict:
        """What is said of the only run after the edits."""
        known = len(self._saves.verdicts())
        self._saves.fleet.control_fleet("pause")
        for file in (each for each in self._made.rglob("*") if each.suffix in (".py", ".yaml", ".md")):
            path = file.relative_to(self._made)
            if file.read_text() != (self._saves.root / path).read_text():
                self._saves.write(str(path), file.read_text())
        for edit in edits:
            edit(self._saves)
        self._saves.fleet.control_fleet("resume")
        verdict = await self._saves.verdict(known)
        assert not verdict.problem, verdict.problem
        (run,) = verdict.runs
        await until(lambda: not below_the_judge(self._saves.root))
        return run


def below_the_judge(root: Path) -> list[psutil.Process]:
    """What the process that judges has begun and not ended."""
    return [below for each in judging(root) for below in each.children(recursive=True) if below.is_running()]


def text(path: str, old: str, new: str) -> Callable[[GatedSaves], None]:
    """Save a file with another text in the place of one."""

    def save(saves: GatedSaves) -> None:
        found = (saves.root / path).read_text()
        assert old in found
        saves.write(path, found.replace(old, new))

    return save


def keys(agent: str, **changed: Any) -> Callable[[GatedSaves], None]:
    """Save ``agents.yaml`` with other keys of an agent."""
    return lambda saves: saves.edit("agents.yaml", lambda content: entry(content, agent).update(changed))


LOST = "which was called in step"
EDITS = (
    (text("agents/lead.py", "are lead.", "are a lead."), "other words", "step 1 of lead", "messages[0]"),
    (text("agents/clerk.py", "are clerk.", "are a clerk."), "other words", "step 1 of clerk", "messages[0]"),
    (text("agents/lead.py", "price", "cost_of"), "other tool calls", "step 1 of lead", f"price, {LOST}"),
    (text("shelf.py", "find(", "search("), "other tool calls", "step 1 of clerk", f"shelf__find, {LOST}"),
    (text("agents/clerk.py", "@fast.", "nonsense()\n\n\n@fast."), "fails", "clerk", "NameError"),
    (keys("smith", description="Makes lamps."), "other words", "step 1 of lead", "description"),
    (text("agents/clerk.py", "async def main", "# a comment\nasync def main"), "same", "", ""),
    (keys("smith", command=["python", "smith.py", "-v"]), "not decided", "", "what the worker smith answers"),
)


@pytest.mark.timeout(600)
async def test_agents_in_processes_and_workers_are_judged_and_leave_nothing(tmp_path: Path) -> None:
    root = await project_with(tmp_path / "p", "process")
    made = Path(shutil.copytree(root, tmp_path / "made"))
    async with gated(root) as saves:
        edits, asked = Edits(saves, made), model_record(saves.fleet).calls
        for edit, word, where, what in EDITS:
            run = await edits.verdict(edit)
            assert (run.word, run.where) == (word, where), run.line
            assert what in run.what, run.line
        assert executed(root) == []
        assert model_record(saves.fleet).calls == asked
        log = root / HEARD  # the live worker starts again with each version; nobody asks it
        assert not log.exists() or "session/prompt" not in log.read_text()
    await until(lambda: not judging(root))
