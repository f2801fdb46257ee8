"""`pallas dev card.md`, `pallas dev agent.py` and `pallas chat card.md`: one file is enough."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from support import pallas_process
from support.live import ERAS, agent_module, ask
from support.ports import free_row

from pallas.cli.single_agent import NotSingle, root_of, single
from pallas.config import load_project
from pallas.config.load import AGENTS_VARIABLE

CARD = "---\ntype: agent\nname: greeter\nmodel: passthrough\n---\nYou greet.\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in (AGENTS_VARIABLE, "PYTHONDONTWRITEBYTECODE"):  # set by what is tested
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "Front Desk.md").write_text(CARD, "utf-8")
    (folder / "helper.py").write_text(agent_module("helper", model="passthrough"), "utf-8")
    return folder


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return pallas_process.run(*arguments, cwd=cwd, capture_output=True, text=True, timeout=120)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


@pytest.mark.slow
async def test_a_file_is_a_fleet_of_one_and_its_folder_stays_as_it_is(folder: Path) -> None:
    card = folder / "Front Desk.md"
    assert single(card) == (folder, "front-desk")
    port = free_row(20)  # as many as a project is given
    (book,) = (folder.parent / "state").rglob("ports.json")
    given = json.loads(book.read_text("utf-8"))
    book.write_text(json.dumps(dict.fromkeys(given, port)), "utf-8")
    environment = {name: value for name, value in os.environ.items() if name != AGENTS_VARIABLE}
    served = pallas_process.start("dev", "--serve", str(card), env=environment, stderr=subprocess.DEVNULL)
    try:
        assert run("ready", card.name, "--wait", "60", cwd=folder).returncode == 0
        url = f"http://127.0.0.1:{port}/agents/front-desk/mcp"
        for era in ERAS:
            async with Client(streamable_http_client(url), mode=era) as client:
                assert await ask(client, f"hello {era}") == f"hello {era}"
        asked = run("chat", card.name, "-m", "and you?", cwd=folder)
        assert (asked.returncode, asked.stdout) == (0, "and you?\n")
        assert "no fleet" not in asked.stderr
    finally:
        served.terminate()
        assert served.wait(60) == 0
    alone = run("chat", "helper.py", "-m", "hello", cwd=folder)
    assert (alone.returncode, alone.stdout) == (0, "hello\n"), alone.stderr
    assert "no fleet of helper.py runs" in alone.stderr
    assert names_in(folder) == ["Front Desk.md", "helper.py"]


def test_the_configuration_above_a_file_is_its_own(folder: Path) -> None:
    deep = folder / "cards" / "deep.md"
    deep.parent.mkdir()
    deep.write_text(CARD.replace("model: passthrough\n", ""), "utf-8")
    (folder / "fastagent.config.yaml").write_text("default_model: passthrough\n", "utf-8")
    assert root_of(deep) == folder
    project = load_project(folder)
    assert [(each.name, each.card) for each in project.agents.values()] == [("deep", deep)]
    assert project.model == "passthrough"
    # A second file has ports of its own, and the first keeps those that it had.
    first = project.port
    assert root_of(folder / "helper.py") == folder
    assert load_project(folder).port != first
    assert root_of(deep) == folder
    assert load_project(folder).port == first


def test_a_file_that_cannot_be_one_agent_says_why(folder: Path) -> None:
    odd = folder / "my agent.py"
    odd.touch()
    with pytest.raises(NotSingle, match=r"my agent is not a module name"):
        root_of(odd)
    (folder / "agents.yaml").touch()
    assert root_of(folder / "agents.yaml") == folder == root_of(folder)


@pytest.mark.slow
def test_an_agent_without_a_model_says_where_it_belongs(folder: Path) -> None:
    (folder / "bare.md").write_text(CARD.replace("model: passthrough\n", ""), "utf-8")
    asked = run("chat", "bare.md", "-m", "hello", cwd=folder)
    assert asked.returncode == 1
    assert (
        "names no model, and the project has no default_model; write model: there, or default_model: into"
        in asked.stderr
    )
