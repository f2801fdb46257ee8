"""An editor takes the real terminal and gives it back."""

import sys
from pathlib import Path

import pytest
from support.live import write_project
from support.terminal import needs_tmux, terminal

pytestmark = [needs_tmux, pytest.mark.pty]

EDITOR = """#!/bin/sh
echo "editing $*"
read line
echo "$line" > "{said}"
"""


@pytest.mark.slow
def test_the_editor_has_the_terminal_at_the_line_and_the_workbench_comes_back(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"one": None})
    said, editor = tmp_path / "said", tmp_path / "vim"
    editor.write_text(EDITOR.format(said=said))
    editor.chmod(0o755)
    with terminal(
        f"{sys.executable} -m pallas.server dev {root}; echo left with $?",
        columns=120,
        rows=40,
        environment={
            "PALLAS_LOG_FILE": str(tmp_path / "pallas.log"),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "VISUAL": str(editor),
        },
    ) as shown:
        shown.until("1 ok")
        shown.keys("F2")
        shown.until("e edit")
        shown.keys("e")
        screen = shown.until("editing +")
        assert f"{root}/agents.yaml" in screen.replace("\n", "")
        # What is typed now belongs to the editor alone.
        shown.type("q quit")
        shown.keys("Enter")
        shown.until("Agents", "source  agents.yaml:")
        shown.until("editing +", gone=True)
        assert said.read_text() == "q quit\n"
        shown.keys("C-q")
        shown.until("left with 0")
