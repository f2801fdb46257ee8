"""Random edits, each with the verdict that follows from what was edited: no tool and no model is asked."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import yaml
from support.judged import executed, judged_project
from support.random_edits import HARMLESS, Edit, Files, any_edit, edits, harmless, read

from pallas.fleet.reload.verdict_judge import JudgeRequest
from pallas.model import RunVerdict
from pallas.verdict.warm_judge import WarmJudge

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.slow, pytest.mark.timeout(3_600)]
SEED = int(os.environ.get("PALLAS_EDITS_SEED", "7"))
COUNT = int(os.environ.get("PALLAS_EDITS", "40"))
"""Edits; 500 is the whole battery, of ten minutes or more."""


class Battery:
    """A project whose files are edited, and the judge that a fleet has."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = read(root)
        self.judge = WarmJudge()

    async def verdict(self, edit: Edit, files: Files) -> RunVerdict:
        """What is said of the only run."""
        for path, text in files.items():
            (self.root / path).write_text(text)
            os.utime(self.root / path, ns=(self._stamp(), self._stamp()))
        servers = dict.fromkeys(edit.servers, "its file was saved")
        request = JudgeRequest(root=self.root, affected=edit.agents, tests=("lamps",), servers=servers)
        (run,) = [each async for each in self.judge.verdicts(request)]
        return run

    _time = 10**18

    def _stamp(self) -> int:
        """Another second at each write: two files of one length are told apart by it only."""
        self._time += 10**9
        return self._time


@asynccontextmanager
async def battery_of(root: Path) -> AsyncIterator[Battery]:
    """A battery that asks no model and executes nothing: both are counted."""
    battery, asked = Battery(await judged_project(root)), 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        writer.close()

    port = yaml.safe_load((battery.root / "agents.yaml").read_text())["scripted"]["port"]
    model = await asyncio.start_server(count, "127.0.0.1", port)
    try:
        yield battery
    finally:
        await battery.judge.close()
        model.close()
    assert (asked, executed(battery.root)) == (0, [])


async def test_random_edits_have_the_verdict_that_follows_from_them(tmp_path: Path) -> None:
    wrong, words = list[str](), Counter[str]()
    async with battery_of(tmp_path / "p") as battery:
        for make, number in ((any_edit, COUNT), (harmless, COUNT // 5)):
            for edit, files in edits(Random(SEED), battery.files, number, make):
                run = await battery.verdict(edit, files)
                words[run.word] += 1
                if (run.word, run.where) != (edit.word, edit.where):
                    wrong.append(f"{edit}: {run.line}")
                    print(wrong[-1])
    assert not wrong, "\n".join(wrong)
    print(dict(words))


async def test_no_kind_of_edit_that_changes_nothing_raises_an_alarm(tmp_path: Path) -> None:
    found = dict[str, str]()
    async with battery_of(tmp_path / "p") as battery:
        for make in HARMLESS:
            ((edit, files),) = edits(Random(SEED), battery.files, 1, make)
            assert files != battery.files, edit
            run = await battery.verdict(edit, files)
            found[edit.name] = run.line if run.word != "same" else ""
    assert {name: line for name, line in found.items() if line} == {}
    assert len(found) == len(HARMLESS)
