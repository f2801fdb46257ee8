"""pallas init: the project it writes is right, and nothing is ever overwritten."""

from pathlib import Path

import pytest
import yaml

from pallas.cli.check import check
from pallas.cli.init import init
from pallas.config import load_project
from pallas.config.json_schema import SCHEMA_FILE, schema_text
from pallas.safe_text import sanitize

FILES = {
    ".gitignore",
    ".pallas/agents.schema.json",
    "README.md",
    "agents.yaml",
    "agents/__init__.py",
    "agents/desk.py",
    "agents/research.py",
    "fastagent.config.yaml",
    "model.yaml",
}


def written(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("forked_children")
def test_it_writes_a_project_that_passes_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "my fleet"
    assert init(target) == 0
    out, err = capsys.readouterr()
    assert (f"next:  pallas dev '{target}'" in out, err) == (True, "")
    assert written(target) == FILES
    first = (target / "agents.yaml").read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema={SCHEMA_FILE}"
    assert (target / SCHEMA_FILE).read_text() == schema_text()
    assert check(target, do_import=True) == 0
    project = load_project(target, {})
    assert [warning for warning in project.warnings if "can be written" not in warning.problem] == []
    assert project.name == "my fleet"
    assert list(project.agents) == ["desk", "research"]
    assert project.start_layers() == (("research",), ("desk",))
    assert project.capabilities is not None
    assert project.unset == ()


def test_its_parts_fit_together(tmp_path: Path) -> None:
    assert init(tmp_path) == 0
    project = load_project(tmp_path, {})
    assert project.scripted is not None
    assert project.scripted.script == tmp_path / "model.yaml"
    assert (project.provider, project.model) == ("generic", "scripted")
    assert project.settings["generic"]["base_url"] == f"http://127.0.0.1:{project.scripted.port}/v1"
    assert project.downstreams["research"].url == f"http://127.0.0.1:{project.agents['research'].port}/mcp"
    assert project.settings["mcp"]["servers"]["research"]["auth"] == {"oauth": False}
    rules = yaml.safe_load((tmp_path / "model.yaml").read_text())["rules"]
    assert all({"say", "call"} & rule.keys() and "when" in rule for rule in rules)
    called = {call["tool"] for rule in rules for call in rule.get("call", ())}
    assert called == {f"{name}__send_message" for name in project.downstreams}


def test_nothing_is_overwritten_and_nothing_else_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agents.yaml").write_text("mine")
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "desk.py").write_text("mine")
    assert init(tmp_path) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "agents.yaml" in err and "agents/desk.py" in err and "model.yaml" not in err
    assert written(tmp_path) == {"agents.yaml", "agents/desk.py"}
    assert (tmp_path / "agents.yaml").read_text() == "mine"


def test_a_link_to_nothing_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").symlink_to(tmp_path / "elsewhere")
    assert init(tmp_path) == 2
    assert not (tmp_path / "elsewhere").exists()


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert init(tmp_path) == 0
    assert written(tmp_path) == FILES | {"notes.txt"}


def test_a_file_in_place_of_the_folder_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "taken"
    target.write_text("mine")
    assert init(target) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "cannot be written" in err


@pytest.mark.parametrize("name", ['it\'s: a "fleet" #1', "no", "12", "ünï – 漢字", "{x}"])
def test_any_folder_name_makes_a_project_name(tmp_path: Path, name: str) -> None:
    assert init(tmp_path / name) == 0
    assert load_project(tmp_path / name, {}).name == sanitize(name)
