"""A fleet is killed in the middle of a chat; the workbench shows how the run goes on, here or elsewhere."""

import os
import signal
import sys
from pathlib import Path

import pytest
from support.served import served
from support.survivors import effects, ended_run, project
from support.terminal import Terminal, needs_tmux, terminal
from support.waiting import until

pytestmark = [needs_tmux, pytest.mark.pty]


async def shows(desk: Terminal, *texts: str) -> None:
    """Wait until all of the texts are on the screen."""
    seen = ""

    def found() -> bool:
        nonlocal seen
        seen = desk.screen()
        return all(each in seen for each in texts)

    try:
        await until(found, timeout=60)
    except AssertionError:
        raise AssertionError(f"{texts} not on the screen:\n{seen}") from None


@pytest.mark.slow
async def test_a_chat_goes_on_at_another_replica_and_its_answer_is_shown(tmp_path: Path) -> None:
    url, here = f"sqlite:///{tmp_path}/ledger.sqlite3", tmp_path / "here"
    here.mkdir()
    ours = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    roots = [
        project(tmp_path / name, url, here=here, unfinished_calls={"*": "repeat"}) for name in ("one", "two")
    ]
    with served(roots[0], **ours) as one, served(roots[1], **ours) as two:
        for fleet in (one, two):
            await fleet.says("] running")
        there = (await two.get("/healthz")).json()["replica"]
        command = f"{sys.executable} -m pallas.server dev --attach {one.registry}; echo left=$?"
        with terminal(command, columns=140, rows=45, environment=ours) as desk:
            await shows(desk, "Write to clerk")
            desk.type("tell me")
            desk.keys("Enter")
            await until(lambda: effects(here).count("wait b") == 1, timeout=60)
            await shows(desk, "One moment.")
            one.send(signal.SIGKILL)
            await shows(desk, "looking for the run again", "no contact since")
            await until(lambda: effects(here).count("wait b") == 2, timeout=60)
            with served(roots[0], **ours) as again:
                await again.says("] running")
                await shows(desk, f"continues at replica {there}")
                (here / "door").touch()
                await shows(desk, "waited b", "the run was found again")
                run, _ = await ended_run(url)
                assert (run.status, run.attempt) == ("ok", 2)
                assert effects(here).count("wait b") == 2
                desk.keys("C-q")
                await shows(desk, "left=0")


@pytest.mark.slow
async def test_a_workbench_that_was_killed_goes_on_with_its_run_when_it_is_started_again(
    tmp_path: Path,
) -> None:
    url, here = f"sqlite:///{tmp_path}/ledger.sqlite3", tmp_path / "here"
    here.mkdir()
    ours = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    root = project(tmp_path / "one", url, here=here, unfinished_calls={"*": "repeat"})
    command = f"{sys.executable} -m pallas.server dev {root}; reset; echo left=$?"
    with terminal(command, columns=140, rows=45, environment=ours) as desk:
        await shows(desk, "Write to clerk")
        desk.type("tell me")
        desk.keys("Enter")
        await until(lambda: effects(here).count("wait b") == 1, timeout=60)
        # No later than its question arrives, a new conversation is among the tabs that are opened again.
        os.kill(int((here / "caller").read_text("utf-8")), signal.SIGKILL)
        await shows(desk, "left=")
        desk.type(command.replace("left=", "over="))
        desk.keys("Enter")
        await shows(desk, "Write to clerk", "tell me")
        await until(lambda: effects(here).count("wait b") == 2, timeout=60)
        (here / "door").touch()
        await shows(desk, "waited b")
        run, _ = await ended_run(url)
        assert (run.status, run.attempt) == ("ok", 2)
        assert effects(here).count("wait b") == 2
        desk.keys("C-q")
        await shows(desk, "over=")
