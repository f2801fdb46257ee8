"""Which agent of a module or a folder of cards an entry of agents.yaml serves, and where that is shown."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.live import agent_module, ask, client, running, write_project
from support.offline import offline_project

from pallas.cli.app import run

SCRIPT = """
rules:
  - {when: {system: You edit}, say: edited}
  - {when: {system: You write}, say: written}
"""
EDITOR, WRITER = '"Editor", instruction="You edit."', '"my_writer", instruction="You write."'


def two(first: str = EDITOR, second: str = WRITER) -> str:
    return f"""
from fast_agent import FastAgent

fast = FastAgent("two")


@fast.agent({first})
async def one() -> None: ...


@fast.agent({second})
async def other() -> None: ...
"""


def project(root: Path, entries: Mapping[str, Mapping[str, Any]], module: str | None = None) -> Path:
    files = {"two.py": module or two()}
    keys = {name: {"module": "two", **more} for name, more in entries.items()}
    return offline_project(root, dict.fromkeys(entries), SCRIPT, keys=keys, files=files)


async def answers(root: Path) -> dict[str, tuple[str, str]]:
    """By entry, the agent that it says it serves, and what it answers."""
    found = {}
    async with running(root) as fleet:
        for agent in fleet.agents:
            async with client(fleet, agent.name) as caller:
                found[agent.name] = (agent.snapshot().serves, await ask(caller, "go"))
    return found


@pytest.mark.slow
async def test_an_entry_serves_the_agent_of_its_name_then_that_of_its_key_then_the_default(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(
        tmp_path, {"my-writer": {}, "editor": {}, "third": {"agent": "my_writer"}, "fourth": {}, "fifth": {}}
    )
    writes, edits = ("my_writer", "written"), ("Editor", "edited")
    assert await answers(root) == {
        "my-writer": writes,
        "editor": edits,
        "third": writes,
        "fourth": edits,
        "fifth": edits,
    }
    several = (
        "two.py has several agents, and none is named fourth: its first, Editor, is served; write `agent:"
    )
    assert several in caplog.text
    capsys.readouterr()
    assert run(["check", str(root), "--offline"]) == 0
    printed = capsys.readouterr()
    assert several in printed.err
    assert printed.err.count("has several agents") == 2  # of fourth and fifth
    assert "my-writer serves my_writer (two.py:11), editor serves Editor (two.py:7)" in printed.out
    assert await asyncio.to_thread(run, ["--project", str(root), "get", "agents"]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.split()}
    assert ("SERVES" in rows["NAME"], "my_writer" in rows["third"], "Editor" in rows["fifth"]) == (True,) * 3


def test_a_name_that_no_agent_has_is_a_mistake_and_a_key_that_changes_nothing_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path, {"third": {"agent": "writre"}, "editor": {"agent": "my_writer"}})
    assert run(["check", str(root), "--offline"]) == 2
    printed = capsys.readouterr().err
    assert "agents.third.agent: there is no agent writre in two.py; allowed: Editor, my_writer" in printed
    assert "agents.editor.agent: has no effect: two.py has an agent Editor, and the entry's name" in printed


async def test_the_default_that_a_module_names_needs_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path, {"third": {}}, two(second=f"{WRITER}, default=True"))
    assert await answers(root) == {"third": ("my_writer", "written")}
    assert run(["check", str(root), "--offline"]) == 0
    assert "several agents" not in caplog.text + capsys.readouterr().err


@pytest.mark.slow
def test_what_only_the_import_shows_is_chosen_and_reported_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    computed = (
        'f"{1}-editor", instruction="You edit."',
        '"-".join(["my", "writer"]), instruction="You write."',
    )
    root = project(tmp_path, {"my-writer": {}, "third": {}, "fourth": {"agent": "x"}}, two(*computed))
    assert run(["check", str(root), "--offline"]) == 0
    assert "several agents" not in capsys.readouterr().err
    assert run(["check", str(root), "--offline", "--import"]) == 2
    printed = capsys.readouterr().err
    assert "agents.third.module: two.py has several agents, and none is named third" in printed
    assert "agents.fourth.agent: there is no agent x in two.py; allowed: 1-editor, my-writer" in printed


def test_one_agent_of_any_name_is_served_without_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path, {"other": agent_module("one")})
    assert run(["check", str(root), "--offline"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "other serves one (agents/other.py:7)" in printed.out
