"""`pallas --serve --watch` and its signals, in a process as people run it: what they read when they save."""

import re
import signal
from pathlib import Path

import pytest
from support.live import ERAS, ask, write_project
from support.offline import offline_project
from support.reloading import module, saying
from support.served import Served, served
from support.waiting import until

SLOW = "import time\nfrom pathlib import Path\nPath('importing').touch()\ntime.sleep(1.5)\n"


async def says(fleet: Served, era: str) -> str:
    async with fleet.client("one", era) as caller:
        return await ask(caller, "hello")


@pytest.mark.slow
async def test_a_person_who_saves_reads_what_came_of_it(tmp_path: Path) -> None:
    root = offline_project(tmp_path / "p", {"one": module("one", "Apple.")}, saying("Apple.", "Birch."))
    file = root / "agents" / "one.py"
    with served(root, "--watch") as fleet:
        await fleet.says("] running")
        file.write_text(module("one", "Birch."))
        line = await fleet.says("version 2")
        assert re.fullmatch(
            r"\[test\] one: version 2 is live after \d+\.\d+ s \(agents/one\.py\): instruction", line
        )
        for era in ERAS:
            assert await says(fleet, era) == "Birch. 1"
        file.write_text(module("one", "Birch.") + "\nraise ValueError('not today')\n")
        line = await fleet.says("not today")
        number = file.read_text().count("\n")
        assert line == (
            f"[test] error: one: not reloaded (agents/one.py): agents/one.py:{number}: ValueError: not today"
            "; the previous version still answers"
        )
        assert line in fleet.err
        assert await says(fleet, ERAS[0]) == "Birch. 1"
        file.write_text(module("one", "Apple."))
        await fleet.says("version 3 is live")
        good = (root / "agents.yaml").read_text()
        (root / "agents.yaml").write_text(good + "nonsense: 1\n")
        line = await fleet.says("nonsense")
        number = good.count("\n") + 1
        assert f"error: project: not reloaded (agents.yaml): agents.yaml:{number}: nonsense" in line
        (root / "agents.yaml").write_text(good.replace("name: test", "name: test\nversion: 2.0.0"))
        line = await fleet.says("project: reloaded")
        assert re.search(r"project: reloaded after \d+\.\d+ s \(agents\.yaml\): config version", line)
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() == 0
        # One line each, and none of another kind between.
        told = [line for line in (*fleet.out, *fleet.err) if "reloaded" in line or "version" in line]
        assert len(told) == 5


@pytest.mark.slow
async def test_a_save_during_the_start_and_a_hangup_then_are_acted_on_after_it(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"one": SLOW + module("one", "Apple.")})
    with served(root, "--watch") as fleet:
        await until((root / "importing").exists, timeout=60)
        fleet.send(signal.SIGHUP)
        (root / "agents" / "one.py").write_text(module("one", "Birch."))
        await fleet.says("version 2 is live")
        await fleet.says("project: reloaded")
        lines = [line.partition("] ")[2] for line in fleet.out]
        running = next(n for n, line in enumerate(lines) if line.startswith("running"))
        assert running < next(n for n, line in enumerate(lines) if line.startswith("one: version 2"))
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() == 0
