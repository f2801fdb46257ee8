"""What can be wrong with a file as a whole, before any key is read."""

import ctypes
import os
from pathlib import Path

import pytest
from support.config_folder import AGENTS, Folder

from pallas.config import ConfigError, load_project


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "agents.yaml: is empty"),
        ("# only a comment\n", "agents.yaml: is empty"),
        ("just text\n", "agents.yaml:1: holds no mapping at its top"),
        ("- a\n", "agents.yaml:1: holds no mapping at its top"),
        (b"name: caf\xe9\n", "agents.yaml:1: is not UTF-8: byte 0xe9 on line 1; save the file as UTF-8"),
        (AGENTS.encode("utf-16"), "agents.yaml:1: is not UTF-8: byte 0xff on line 1"),
        (
            "name: x\nagents:\n\tjarvis: 1\n",
            "agents.yaml:3: not valid YAML: line 3, column 1: found character",
        ),
        ("name: a: b\n", "not valid YAML: line 1, column 8: mapping values are not allowed here"),
        (
            "name: 'x\n",
            "agents.yaml:1: not valid YAML: line 1, column 7: this ' is never closed; write another '",
        ),
        (
            "name: [a\nb: c\n",
            "agents.yaml:1: not valid YAML: line 1, column 7: this [ is not closed; write ]",
        ),
        ("name: \x00\n", "agents.yaml:1: not valid YAML: line 1, column 7: a control character (0x00)"),
        ("name: x\n---\nname: y\n", "agents.yaml:2: not valid YAML: line 2, column 1: a second document"),
        ("name: *x\n", "a value that begins with * is an alias; quote it"),
        ("name: x\nname: y\n", "agents.yaml:2: name: is given twice, first on line 1; keep one of them"),
        (
            "name: !!int x\n",
            "agents.yaml:1: name: is not a valid value of the type that it looks like; quote it",
        ),
        ("name: !secret x\n", "agents.yaml:1: name: is not a valid value of the type that it looks like"),
        ("agents: !!set {a}\n", "agents.yaml:1: agents: has a tag that is not supported"),
        ("? [a, b]\n: c\n", "agents.yaml:1: a list or mapping cannot be a key"),
        ("? \n: x\n", "agents.yaml:1: a key is empty"),
        ("name: &a [*a]\n", "an alias refers to a value that contains it"),
        ("[" * 5000, "is nested too deep"),
        ("name: " + "[" * 100 + "]" * 100, "is nested too deep"),
        ("[" * 1_000_000, "is nested too deep"),
        ("- " * 500_000, "is nested too deep"),
        ("{a: " * 200_000, "is nested too deep"),
        ("? " * 500_000, "is nested too deep"),
        ("# " + "x" * (1 << 20), "agents.yaml: is larger than 1 MiB"),
        ("version: " + "1" * 5000, "version: is not a valid value of the type that it looks like"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(folder: Folder, text: str | bytes, said: str) -> None:
    lines = folder.agents(text).lines()
    assert any(said in line for line in lines), lines
    with pytest.raises(ConfigError):
        folder.load()


@pytest.mark.slow
def test_aliases_that_multiply_are_refused(folder: Folder) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert any("holds too many values" in line for line in folder.agents("\n".join(levels)).lines())


def test_merges_that_multiply_are_refused(folder: Folder) -> None:
    levels = ["a0: &a0 {x: 1}"]
    levels += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 9)]
    assert any("holds too many values" in line for line in folder.agents("\n".join(levels)).lines())


def test_anchors_and_merges_are_followed(folder: Folder) -> None:
    project = folder.agents(
        """\
name: demo
agents:
  jarvis: &base
    module: agents.jarvis
    port: 24201
    max_instances: 3
  research:
    <<: *base
    port: 24202
"""
    ).load()
    research = project.agents["research"]
    assert (research.port, research.max_instances, research.module) == (24202, 3, "agents.jarvis")


def test_a_byte_order_mark_is_no_mistake(folder: Folder) -> None:
    assert folder.agents(b"\xef\xbb\xbf" + AGENTS.encode()).load().name == "demo"


def test_a_missing_agents_file_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_project(tmp_path, {})
    assert str(caught.value) == (
        "agents.yaml: there is no such file; run `pallas init DIR` for a new project, or pass --project DIR"
    )


@pytest.mark.parametrize("target", ["agents.yaml", "gone.yaml"], ids=["itself", "nothing"])
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, target: str) -> None:
    (tmp_path / "agents.yaml").symlink_to(target)
    with pytest.raises(ConfigError) as caught:
        load_project(tmp_path, {})
    words = "is a link that leads nowhere; put the file there, or correct the link"
    assert str(caught.value) == f"agents.yaml: {words}"
    (tmp_path / "agents.yaml").unlink()
    (tmp_path / "card.md").symlink_to("card.md")
    (tmp_path / "agents.yaml").write_text("name: x\nagents:\n  desk: {card: card.md, port: 24201}\n")
    with pytest.raises(ConfigError) as caught:
        load_project(tmp_path, {})
    assert str(caught.value) == f"agents.yaml:3: agents.desk.card: card.md {words}"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere: there is no such folder; pass --project DIR"):
        load_project(tmp_path / "nowhere", {})


@pytest.mark.parametrize("name", ["~no-such-user-at-all/x", "a\0b", "x" * 5000])
def test_a_name_that_no_folder_can_have_is_no_crash(name: str) -> None:
    with pytest.raises(ConfigError, match="there is no such folder"):
        load_project(Path(name), {})


def test_a_file_in_place_of_the_folder_is_named(folder: Folder) -> None:
    folder.agents()
    with pytest.raises(ConfigError, match=r"agents\.yaml: is not a folder"):
        load_project(folder.root / "agents.yaml", {})


def test_a_folder_in_place_of_a_file_is_named(folder: Folder) -> None:
    (folder.root / "agents.yaml").mkdir()
    assert folder.lines() == ["agents.yaml: is not a file; put a text file there"]


def test_a_pipe_in_place_of_a_file_is_not_waited_for(folder: Folder) -> None:
    os.mkfifo(folder.root / "agents.yaml")
    assert "agents.yaml: is not a file; put a text file there" in folder.lines()


_NOBODY = 65534


def _become(user: int) -> int:
    """Look at files as ``user``, in this thread alone; returns who it was."""
    return ctypes.CDLL(None).setfsuid(user)


def test_a_file_without_permission_says_so(folder: Folder) -> None:
    folder.agents()
    (folder.root / "agents.yaml").chmod(0)
    if os.geteuid() != 0:
        assert any("cannot be read: Permission denied" in line for line in folder.lines())
        return
    # Root reads everything: for the look it is somebody else, in this thread alone.
    for parent in (folder.root, *folder.root.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o055)
    before = _become(_NOBODY)
    try:
        lines = folder.lines()
    finally:
        _become(before)
    assert any("cannot be read: Permission denied" in line for line in lines)


@pytest.mark.parametrize(
    ("mode", "who"), [(0o664, "its group"), (0o646, "others"), (0o666, "its group and others")]
)
def test_a_file_that_others_may_write_is_a_warning(folder: Folder, mode: int, who: str) -> None:
    folder.agents().config("default_model: generic.x\n").write(".env", "A=1\n")
    for name in ("agents.yaml", "fastagent.config.yaml", ".env"):
        (folder.root / name).chmod(mode)
    warnings = folder.load().warnings
    assert [(warning.where.file, warning.level) for warning in warnings] == [
        ("agents.yaml", "warning"),
        ("fastagent.config.yaml", "warning"),
        (".env", "warning"),
    ]
    assert warnings[0].problem == f"can be written by {who}"


def test_the_default_of_a_shell_is_warned_about(folder: Folder) -> None:
    project = folder.agents(AGENTS + "    title: ${T:-Butler}\n").load()
    assert project.agents["jarvis"].title == "-Butler"
    (warning,) = project.warnings
    assert "begins with a dash" in warning.problem
