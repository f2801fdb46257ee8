"""A path that is nearly one that is there, also by the case of a folder, is answered with that one."""

from pathlib import Path

import pytest
from support.config_folder import Folder

from pallas.cli.app import run

HEAD = "name: demo\nport: 24299\n"
JARVIS = "agents:\n  jarvis: {module: agents.jarvis}\n"
URL = "'http://127.0.0.1:24297/mcp'"
CARD = "---\nname: one\n---\nYou answer.\n"
KEYS = {
    f"{HEAD}agents:\n  one: {{card: Cards/one.md}}\n": "cards/one.md",
    f"{HEAD}agents:\n  one: {{card: card/one.md}}\n": "cards/one.md",
    f"{HEAD}agents:\n  one: {{card: CARDS/ONE.MD}}\n": "cards/one.md",
    f"{HEAD}agents:\n  one: {{card: ./Cards//one.md}}\n": "cards/one.md",
    f"{HEAD}agents:\n  one: {{card: Cards}}\n": "cards",
    f"{HEAD}agents:\n  one: {{card: cards/on.md}}\n": "cards/one.md",
    f"{HEAD}agents:\n  one: {{module: Agents.jarvis}}\n": "agents.jarvis",
    f"{HEAD}{JARVIS}  one: {{module: agnets.jarvis}}\n": "agents.jarvis",
    f"{HEAD}{JARVIS}scripted: {{script: Scripts/Talk.yaml, port: 24298}}\n": "scripts/talk.yaml",
    f"{HEAD}agents:\n  one: {{kind: worker, command: [python], cwd: Scripts}}\n": "scripts",
    f"{HEAD}{JARVIS}servers:\n  s: {{command: [python], url: {URL}, cwd: Scirpts}}\n": "scripts",
}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    found = Folder(tmp_path).write("cards/one.md", CARD).write("scripts/talk.yaml", "- text: hello\n")
    return found.write("servers/tool.py", "").write("skills/a/SKILL.md", "---\nname: a\n---\n")


@pytest.mark.parametrize("text", KEYS)
def test_a_key_of_agents_yaml_names_the_near_path(folder: Folder, text: str) -> None:
    lines = folder.agents(text).lines()
    assert len(lines) == 1, lines
    assert lines[0].endswith(f"did you mean {KEYS[text]}"), lines


SERVERS = {
    "{command: python, args: [Servers/tool.py]}": "no script Servers/tool.py; did you mean servers/tool.py",
    "{command: python, args: [tool.py], cwd: Servers}": "did you mean servers",
    "{command: python, args: [servers/tol.py]}": "did you mean servers/tool.py",
}


@pytest.mark.parametrize("entry", SERVERS)
def test_a_script_and_a_folder_of_a_program_too(
    folder: Folder, entry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.agents(f"{HEAD}{JARVIS}").config(f"mcp: {{servers: {{tool: {entry}}}}}\n")
    run(["check", str(folder.root), "--offline"])
    (line,) = [each for each in capsys.readouterr().err.splitlines() if "mcp.servers.tool" in each]
    assert line.endswith(SERVERS[entry]), line


def test_skills_and_includes_too(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    card = "---\nname: one\nmodel: passthrough\nskills: [Skills]\n---\n{{file:Scripts/talk.yaml}}\n"
    folder.agents(f"{HEAD}agents:\n  one: {{card: cards/one.md}}\n").write("cards/one.md", card)
    run(["check", str(folder.root), "--offline"])
    ends = [each.rpartition("; ")[2] for each in capsys.readouterr().err.splitlines()]
    assert ends == ["did you mean skills", "did you mean scripts/talk.yaml"]


def test_what_is_far_away_is_not_suggested(folder: Folder) -> None:
    (line,) = folder.agents(f"{HEAD}agents:\n  one: {{card: zebra/quux.md}}\n").lines()
    assert "did you mean" not in line
