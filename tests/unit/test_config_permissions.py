"""Who else may change what runs, or read a key: told as a warning, by `pallas check` and at the start."""

import grp
import pwd
from pathlib import Path

import pytest
from support.config_folder import AGENTS, Folder

CARD_AGENTS = """\
name: demo
agents:
  jarvis:
    card: cards/jarvis.md
    port: 24201
  research:
    module: agents.deep.research
    port: 24202
"""
KEY = "sk-planted-4c1f9a7be2"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    root = tmp_path / "project"
    root.mkdir(mode=0o755)
    return Folder(root)


def warnings(folder: Folder) -> list[str]:
    found = folder.found()
    assert all(each.level == "warning" for each in found), found
    return [str(each) for each in found]


def test_a_project_of_its_owner_alone_is_warned_of_nothing(folder: Folder) -> None:
    folder.agents().write(".env", f"OPENAI_API_KEY={KEY}\n").config("default_model: generic.x\n")
    (folder.root / ".env").chmod(0o600)
    assert warnings(folder) == []


@pytest.mark.parametrize(
    ("mode", "who"), [(0o664, "its group"), (0o646, "others"), (0o666, "its group and others")]
)
def test_modules_packages_and_cards_that_others_may_write_are_named(
    folder: Folder, mode: int, who: str
) -> None:
    folder.agents(CARD_AGENTS).write("cards/jarvis.md", "---\nname: jarvis\n---\nHello.\n")
    folder.write("agents/__init__.py", "").write("agents/deep/__init__.py", "")
    folder.write("agents/deep/research.py", "").write("agents/other.py", "")
    files = ("cards/jarvis.md", "agents/deep/research.py", "agents/deep/__init__.py", "agents/__init__.py")
    for file in (*files, "agents/other.py"):  # the last belongs to no agent
        (folder.root / file).chmod(mode)
    assert warnings(folder) == [f"{file}: can be written by {who}; chmod go-w {file}" for file in files]


@pytest.mark.parametrize(
    ("name", "members", "is_primary", "warned"),
    [
        ("ada", [], True, False),
        ("ada", ["ada"], True, False),
        ("ada", ["ada", "eve"], True, True),
        ("users", [], True, True),
        ("ada", [], False, True),
    ],
)
def test_a_group_that_its_user_has_alone_is_none_that_others_write_with(
    folder: Folder,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    members: list[str],
    is_primary: bool,
    warned: bool,
) -> None:
    # As Fedora and Ubuntu set up users: a group of one's own, and a umask of 002.
    given = folder.root.stat().st_gid
    user = pwd.struct_passwd(
        ("ada", "x", 5001, given if is_primary else given + 1, "", "/home/ada", "/bin/sh")
    )
    monkeypatch.setattr(pwd, "getpwuid", lambda _: user)
    group = grp.struct_group((name, "x", given, members))
    monkeypatch.setattr(grp, "getgrgid", lambda _: group)
    folder.agents().write("agents/jarvis.py", "")
    path = folder.root / "agents/jarvis.py"
    path.chmod(0o664)
    said = [
        line for line in warnings(folder) if line.startswith("agents/jarvis.py: can be written by its group")
    ]
    assert len(said) == warned


def test_a_folder_that_others_may_write_is_a_warning_unless_it_is_sticky(folder: Folder) -> None:
    folder.agents()
    folder.root.chmod(0o757)
    (line,) = warnings(folder)
    assert "the project's folder can be written by others" in line
    folder.root.chmod(0o1777)
    assert warnings(folder) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (".env", f"OPENAI_API_KEY={KEY}\n"),
        (".env", f'export SOME_TOKEN="{KEY}"\n'),
        ("fastagent.secrets.yaml", f"openai:\n  api_key: {KEY}\n"),
        ("fastagent.secrets.yaml", f"mcp:\n  servers:\n    a: {{url: http://a/mcp, access_token: {KEY}}}\n"),
        ("fastagent.config.yaml", f"generic:\n  api_key: '{KEY}'\n"),
        (
            "fastagent.config.yaml",
            f"mcp:\n  servers:\n    a:\n      url: http://a/mcp\n"
            f"      headers:\n        Authorization: Bearer {KEY}\n",
        ),
    ],
)
def test_keys_that_everyone_may_read_are_a_warning_that_does_not_repeat_them(
    folder: Folder, file: str, text: str
) -> None:
    folder.agents().write(file, text)
    for mode, warned in ((0o644, True), (0o604, True), (0o640, False), (0o600, False)):
        (folder.root / file).chmod(mode)
        lines = warnings(folder)
        said = [
            line
            for line in lines
            if line == f"{file}: holds keys or tokens and can be read by others; chmod o-r {file}"
        ]
        assert len(said) == warned
        assert KEY not in "".join(lines)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (".env", "PALLAS_LOG_LEVEL=debug\nOPENAI_API_KEY=\n# TOKEN=abc-def-123456\n"),
        ("fastagent.secrets.yaml", 'openai:\n  api_key: "${OPENAI_API_KEY}"\n'),
        (
            "fastagent.config.yaml",
            "generic:\n  api_key: offline  # no key\nmodel_capabilities:\n  max_output_tokens: 16384\n",
        ),
    ],
)
def test_files_without_a_key_may_be_read_by_everyone(folder: Folder, file: str, text: str) -> None:
    folder.environ["OPENAI_API_KEY"] = KEY
    folder.agents().write(file, text)
    (folder.root / file).chmod(0o644)
    assert warnings(folder) == []


def test_the_warnings_stop_nothing_and_go_with_the_project(folder: Folder) -> None:
    folder.agents(AGENTS).write(".env", f"A_TOKEN={KEY}\n")
    (folder.root / ".env").chmod(0o644)
    (folder.root / "agents/jarvis.py").chmod(0o666)
    project = folder.load()
    assert {each.where.file for each in project.warnings} == {".env", "agents/jarvis.py"}
