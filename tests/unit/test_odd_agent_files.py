"""Files with odd names and odd contents, as single agents and in projects."""

import json
import os
from pathlib import Path

import pytest
from support.live import write_project

from pallas.cli.app import run
from pallas.cli.single_agent import single
from pallas.config import ConfigError, load_project
from pallas.config.load import AGENTS_VARIABLE
from pallas.config.yamlfile import expand, literal

CARD = "---\nname: x\n---\nYou help.\n"


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(AGENTS_VARIABLE, "")
    monkeypatch.setenv("SECRET", "hush-hush")
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_a_file_named_like_a_reference_shows_no_variable(
    alone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = alone / "${SECRET}.md"
    card.write_text(CARD)
    root, name = single(card)
    project = load_project(root, {**os.environ})
    assert project.name == "${SECRET}.md"
    assert project.agents[name].card == card
    assert "hush" not in capsys.readouterr().out


def test_a_folder_named_like_a_reference_gives_its_name(alone: Path) -> None:
    assert run(["init", str(alone / "${SECRET}")]) == 0
    assert load_project(alone / "${SECRET}", {**os.environ}).name == "${SECRET}"


@pytest.mark.parametrize("text", ["plain", "${A}", "a ${B:c} ${", "$${A}", "${${A}}"])
def test_a_literal_text_is_given_back(text: str) -> None:
    assert expand(literal(text), {"A": "1", "B": "2", "${A": "3"}) == (text, ())


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", "has a null byte on line 3"),
        (b"---\nname: x\n---\n\xff\xfe", "byte 0xff on line 4 is not UTF-8"),
        (b"---\nname: x\n---\nhello\x00", "has a null byte on line 4"),
    ],
)
@pytest.mark.parametrize("name", ["card.md", "card.yaml"])
def test_a_card_that_is_no_text_is_refused(
    alone: Path, capsys: pytest.CaptureFixture[str], data: bytes, says: str, name: str
) -> None:
    (alone / name).write_bytes(data)
    assert run(["check", str(alone / name)]) == 2
    err = capsys.readouterr().err
    assert f"{name} is not text" in err
    assert says in err
    assert "saved as UTF-8" in err


def test_a_card_of_a_project_is_checked_too(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"one": None}, keys={"one": {"module": None, "card": "one.md"}})
    (root / "one.md").write_bytes(b"\x00")
    with pytest.raises(ConfigError, match=r"agents\.yaml:.*one\.md is not text"):
        load_project(root)
    (root / "one.md").write_bytes(CARD.encode() + "ä".encode() * ((1 << 19) - len(CARD)))
    load_project(root)


@pytest.mark.parametrize("exists", [True, False])
def test_init_writes_nothing_through_a_link(
    alone: Path, capsys: pytest.CaptureFixture[str], exists: bool
) -> None:
    elsewhere = alone.parent / "elsewhere"
    if exists:
        elsewhere.mkdir()
    (alone / "agents").symlink_to(elsewhere)
    assert run(["init", str(alone)]) == 2
    assert "agents/ is a link" in capsys.readouterr().err
    assert sorted(each.name for each in alone.iterdir()) == ["agents"]
    assert not exists or list(elsewhere.iterdir()) == []


def test_ports_of_projects_with_odd_names_are_one_file(alone: Path) -> None:
    assert run(["init", str(alone / "a b")]) == 0
    json.loads((alone.parent / "state" / "pallas" / "ports.json").read_bytes())
