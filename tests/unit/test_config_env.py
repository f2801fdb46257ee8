""".env: read for ${VAR}, exported on demand, never over the environment."""

import os
from pathlib import Path

import pytest
from support.config_folder import AGENTS, Folder

from pallas.config import ConfigError, export_env


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path).agents(AGENTS + "    title: ${TITLE:none}\n")


def title(folder: Folder) -> str:
    return folder.load().agents["jarvis"].title


def test_variables_come_from_the_file(folder: Folder) -> None:  # PR-10
    assert title(folder) == "none"
    assert title(folder.write(".env", "TITLE='from file'\n")) == "from file"


def test_the_environment_goes_before_the_file(folder: Folder) -> None:  # PR-10
    folder.write(".env", "TITLE=file\n").environ["TITLE"] = "environment"
    assert title(folder) == "environment"


def test_loading_changes_no_environment(folder: Folder) -> None:
    before = dict(os.environ)
    folder.write(".env", "TITLE=file\nPALLAS_TEST_ONLY=1\n").load()
    assert (dict(os.environ), folder.environ) == (before, {})


def test_the_file_may_name_the_agents_file(folder: Folder) -> None:  # PR-3
    folder.write(".env", "PALLAS_AGENTS_CONFIG=x.yaml\n").write("x.yaml", AGENTS.replace("demo", "other"))
    assert folder.load().name == "other"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('TITLE="a b" # comment\n', "a b"),
        ("export TITLE=a\n", "a"),
        ("BASE=x\nTITLE=${BASE}/y\n", "x/y"),
        ("TITLE=${OTHER:-z}\n", "z"),
        ("TITLE=a\r\n", "a"),
        ("\n\n# comment\nTITLE=a\n", "a"),
        ("", "none"),
    ],
)
def test_what_a_line_may_look_like(folder: Folder, text: str, value: str) -> None:
    assert title(folder.write(".env", text)) == value


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("A=1\n\nhunter2planted\n", 3),
        ("A=1\nB C=hunter2planted\n", 2),
        ('A="hunter2planted\n', 1),
        ("A=a\0b\n", 1),
    ],
)
def test_a_line_that_is_no_setting_is_told_without_its_content(folder: Folder, text: str, line: int) -> None:
    folder.write(".env", text)
    with pytest.raises(ConfigError) as caught:
        folder.load()
    assert [(m.where.file, m.where.line) for m in caught.value.mistakes] == [(".env", line)]
    assert "hunter2" not in str(caught.value)
    environ: dict[str, str] = {}
    with pytest.raises(ConfigError):
        export_env(folder.root, environ)
    assert environ == {}


def test_a_file_that_is_not_utf8_is_told(folder: Folder) -> None:
    assert folder.write(".env", b"A=\xff\n").lines() == [
        ".env:1: is not UTF-8: byte 0xff on line 1; save the file as UTF-8"
    ]


def test_export_sets_what_is_not_set(folder: Folder) -> None:  # PR-10
    folder.write(".env", "A=file\nB=${A}!\nC=file\n")
    environ = {"A": "environment"}
    export_env(folder.root, environ)
    assert environ == {"A": "environment", "B": "environment!", "C": "file"}


def test_export_without_a_file_changes_nothing(tmp_path: Path) -> None:
    environ = {"A": "1"}
    export_env(tmp_path, environ)
    assert environ == {"A": "1"}
