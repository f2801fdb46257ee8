"""An editor on the real terminal, under the guard that keeps the terminal for the screen."""

import sys
import textwrap
from pathlib import Path

import pytest
from support.terminal import needs_tmux, terminal

pytestmark = [needs_tmux, pytest.mark.pty]

APP = """
    import logging
    from pallas_tui.isolate import isolate

    guard = isolate(logging.getLogger("stray"))
    from textual.app import App
    from textual.widgets import Static
    from pallas.model import Fault
    from pallas_tui.editor import edit

    class Writing(App):
        BINDINGS = [("e", "edit", "edit"), ("q", "quit", "quit")]

        def compose(self):
            yield Static("nothing yet", markup=False)

        def action_edit(self):
            try:
                text = edit(self, "first words")
            except Fault as fault:
                text = fault.message
            self.query_one(Static).update(f"got: {text}")

    Writing().run()
    guard.restore()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "writing.py"
    path.write_text(textwrap.dedent(APP))
    return path


def editor(tmp_path: Path, body: str) -> str:
    path = tmp_path / "my editor"
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)
    return f"'{path}' --flag"


@pytest.mark.slow
def test_the_editor_has_the_terminal_and_the_screen_comes_back(script: Path, tmp_path: Path) -> None:
    body = (
        'echo "editing $1: $(cat "$2")"; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo "a terminal"; '
        'read -r line; echo "$line" > "$2"'
    )
    environment = {"EDITOR": editor(tmp_path, body)}
    with terminal(
        f"{sys.executable} {script}; echo left", columns=80, rows=24, environment=environment
    ) as desk:
        desk.until("nothing yet")
        desk.keys("e")
        screen = desk.until("editing --flag: first words", "a terminal")
        assert "nothing yet" not in screen
        desk.type("second words")
        desk.keys("Enter")
        screen = desk.until("got: second words")
        assert "editing" not in screen
        desk.keys("q")
        desk.until("left")
        desk.type("echo back at the prompt")
        desk.keys("Enter")
        desk.until("back at the prompt")


def test_ctrl_c_in_the_editor_ends_neither_it_nor_the_screen(script: Path, tmp_path: Path) -> None:
    body = 'trap "echo interrupted" INT; echo editing; read -r line; read -r line; echo "$line" > "$2"'
    environment = {"EDITOR": editor(tmp_path, body)}
    with terminal(
        f"{sys.executable} {script}; echo left", columns=80, rows=24, environment=environment
    ) as desk:
        desk.until("nothing yet")
        desk.keys("e")
        desk.until("editing")
        desk.keys("C-c")
        desk.until("interrupted")
        desk.keys("Enter")
        desk.type("after it")
        desk.keys("Enter")
        desk.until("got: after it")
        desk.keys("q")
        desk.until("left")


@pytest.mark.slow
def test_an_editor_that_fails_is_told_and_the_screen_stands(script: Path, tmp_path: Path) -> None:
    environment = {"VISUAL": editor(tmp_path, "exit 7"), "EDITOR": "true"}
    with terminal(
        f"{sys.executable} {script}; echo left", columns=80, rows=24, environment=environment
    ) as desk:
        desk.until("nothing yet")
        desk.keys("e")
        desk.until("my editor ended with status 7; the text is as it was before")
        desk.keys("q")
        desk.until("left")
