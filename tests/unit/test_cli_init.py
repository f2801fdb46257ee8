"""pallas init: the project it writes is right, and nothing is ever overwritten."""

import json
import re
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from pallas.cli.app import run
from pallas.cli.check import check
from pallas.cli.init import init
from pallas.config import load_project
from pallas.config.json_schema import SCHEMA_FILE, schema_text
from pallas.safe_text import sanitize

FILES = {
    ".env.example",
    ".gitignore",
    ".pallas/agents.schema.json",
    "README.md",
    "agents.yaml",
    "agents/desk.md",
    "fastagent.config.yaml",
    "model.yaml",
    "servers/dates.py",
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
    assert list(project.agents) == ["desk"]
    assert project.capabilities is not None
    assert project.unset == ()


def test_its_parts_fit_together(tmp_path: Path) -> None:
    assert init(tmp_path) == 0
    project = load_project(tmp_path, {})
    assert project.scripted is not None
    assert project.scripted.script == tmp_path / "model.yaml"
    assert (project.provider, project.model) == ("generic", "scripted")
    assert project.settings["generic"]["base_url"] == f"http://127.0.0.1:{project.scripted.port}/v1"
    rules = yaml.safe_load((tmp_path / "model.yaml").read_text())["rules"]
    assert all({"say", "call"} & rule.keys() and "when" in rule for rule in rules)
    called = {call["tool"] for rule in rules for call in rule.get("call", ())}
    tools = re.findall(r"@server.tool\(\)\ndef (\w+)", (tmp_path / "servers" / "dates.py").read_text())
    assert called == {f"{name}__{tool}" for name in project.downstreams for tool in tools}
    assert len(called) == 2


def test_a_model_of_a_provider_needs_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(tmp_path, "responses.gpt-4.1") == 0
    assert f"first: write OPENAI_API_KEY=... into {tmp_path}/.env" in capsys.readouterr().out
    assert written(tmp_path) == FILES - {"model.yaml"}
    assert "\nOPENAI_API_KEY=\n" in (tmp_path / ".env.example").read_text()
    project = load_project(tmp_path, {})
    assert (project.provider, project.model, project.scripted) == ("responses", "gpt-4.1", None)
    texts = "".join((tmp_path / name).read_text() for name in written(tmp_path) - {SCHEMA_FILE})
    assert not re.search(r"offline|scripted|MODEL\b|KEY_NAME|<\w+>", texts)


def test_a_server_that_does_not_answer_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path, model_url="http://127.0.0.1:1") == 0
    assert "http://127.0.0.1:1/v1 does not answer; start the server" in capsys.readouterr().err
    project = load_project(tmp_path, {})
    assert (project.provider, project.model) == ("generic", "default")
    assert project.settings["generic"] == {"base_url": "http://127.0.0.1:1/v1", "api_key": "none"}
    assert init(tmp_path / "named", "qwen3:8b", "http://127.0.0.1:1/v1/") == 0
    assert load_project(tmp_path / "named", {}).model == "qwen3:8b"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("gpt-4.1",), "the provider is missing; write for example openai.gpt-4.1"),
        (("opnai.gpt-4.1",), "opnai is not a provider; did you mean openai"),
        (("generic.qwen",), "give its address with --model-url http://HOST:PORT/v1"),
        (("", "127.0.0.1:8080"), "is not an http URL"),
        (("", "http://me:secret@127.0.0.1/v1"), "holds a user or password"),
    ],
)
def test_an_option_that_cannot_be_used_writes_nothing(
    options: tuple[str, ...], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path / "desk", *options) == 2
    err = capsys.readouterr().err
    assert problem in err
    assert "secret" not in err
    assert not (tmp_path / "desk").exists()


def test_two_projects_never_have_the_same_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    names = "abc"
    with ThreadPoolExecutor() as threads:
        assert set(threads.map(lambda name: init(tmp_path / name), names)) == {0}
    taken = {ports_of(tmp_path / name) for name in names}
    assert len({port for each in taken for port in each}) == 9
    busy = ports_of(tmp_path / "a")[1]
    shutil.rmtree(tmp_path / "a")
    with socket.socket() as other:
        other.bind(("127.0.0.1", busy))
        assert init(tmp_path / "d") == 0
    assert not {*ports_of(tmp_path / "d")} & {port for each in taken for port in each}
    # The ports of a project that is gone can be given again.
    remembered = json.loads((tmp_path / "state" / "pallas" / "ports.json").read_text())
    assert remembered == {str(tmp_path / name): ports_of(tmp_path / name)[0] for name in "bcd"}


def ports_of(root: Path) -> tuple[int, ...]:
    project = load_project(root, {})
    assert project.scripted is not None
    return project.registry_port, project.agents["desk"].port, project.scripted.port


def test_nothing_is_overwritten_and_nothing_else_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agents.yaml").write_text("mine")
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "desk.md").write_text("mine")
    assert init(tmp_path) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "agents.yaml" in err and "agents/desk.md" in err and "model.yaml" not in err
    assert written(tmp_path) == {"agents.yaml", "agents/desk.md"}
    assert (tmp_path / "agents.yaml").read_text() == "mine"


def test_an_empty_name_is_not_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init", ""]) == 2
    assert "is empty; name the folder, or write . for this one" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert run(["init", "."]) == 0
    assert run(["init", "."]) == 2
    assert "would be overwritten; choose another folder, or remove them" in capsys.readouterr().err


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
