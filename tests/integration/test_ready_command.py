"""`pallas ready`: whether a fleet on this machine takes runs, for scripts and containers."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from support.live import agent_module, write_project
from support.waiting import until

from pallas.cli.app import run
from pallas.config import load_project

ROOT = Path(__file__).parents[2]


def asked(root: Path, *options: str) -> int:
    return run(["ready", str(root), *options])


def test_where_nothing_answers_it_says_where_it_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path, {"one": None})
    assert asked(root) == 1
    port = load_project(root).registry_port
    out, err = capsys.readouterr()
    assert out == ""
    assert f"test: nothing answers at 127.0.0.1:{port}" in err


def test_a_project_with_mistakes_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(tmp_path) == 2
    assert "agents.yaml" in capsys.readouterr().err


async def test_it_waits_until_the_fleet_is_ready_and_names_what_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = agent_module("two") + "\nraise ValueError('no')\n"
    root = write_project(tmp_path / "project", {"one": None, "two": broken}, top={"bind": "127.0.0.1"})
    waiting = asyncio.create_task(asyncio.to_thread(asked, root, "--wait", "60"))
    with (tmp_path / "out").open("w") as out:
        fleet = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "pallas.server", "--serve", "--project", str(root)),
            stdout=out,
            stderr=out,
            env={**os.environ, "PALLAS_LOG_FILE": str(tmp_path / "pallas.log"), "PYTHONPATH": str(ROOT)},
        )
    try:
        assert await waiting == 0
        assert capsys.readouterr().out == "test: ready: two error\n"
        fleet.terminate()
        await until(lambda: asked(root) == 1, timeout=30)
    finally:
        if fleet.returncode is None:
            fleet.kill()
        await fleet.wait()
