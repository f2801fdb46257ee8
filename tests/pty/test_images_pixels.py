"""True pixels: only where the terminal's name says so, only in full, and the terminal is asked nothing."""

import os
import pty
import select
import struct
import sys
import termios
import textwrap
from collections.abc import Mapping
from fcntl import ioctl
from pathlib import Path
from subprocess import Popen
from time import monotonic

import pytest

pytestmark = [pytest.mark.pty]

APP = """
    import base64, logging, sys
    from pallas_tui.isolate import isolate

    guard = isolate(logging.getLogger("stray"))
    from support.pane_app import STYLES
    from support.pictures import picture
    from textual.app import App
    from pallas_tui.pictures.images import image_of
    from pallas_tui.widgets.dialogs.picture_dialog import PictureScreen

    class Showing(App):
        CSS_PATH = sorted(STYLES.glob("*.tcss"))

        def on_mount(self):
            shown = image_of(picture(size=(640, 480)), "a.png")
            self.push_screen(PictureScreen(lambda: (shown,)))
            self.set_interval(0.05, self.look)

        def look(self):
            if self.screen.shown and not self.screen.workers:
                self.set_timer(0.3, self.exit)

    Showing().run()
    guard.restore()
    print("left", flush=True)
"""


def written(tmp_path: Path, environment: Mapping[str, str]) -> str:
    """Everything that the program wrote to a terminal of 100 by 40 cells of 10 by 20 pixels."""
    script = tmp_path / "showing.py"
    script.write_text(textwrap.dedent(APP))
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 1000, 800))
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    folders = os.pathsep.join(str(Path(__file__).parents[at]) for at in (1, 2))
    clean |= {"PYTHONPATH": folders, "TERM": "xterm-256color", "COLORTERM": "truecolor", **environment}
    process = Popen([sys.executable, str(script)], stdin=theirs, stdout=theirs, stderr=theirs, env=clean)
    os.close(theirs)
    output, deadline = b"", monotonic() + 60
    try:
        while monotonic() < deadline:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    output += os.read(ours, 65_536)
                except OSError:  # the other end is closed
                    break
            elif process.poll() is not None:
                break
    finally:
        process.kill()
        process.wait(60)
        os.close(ours)
    return output.decode("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{"TERM": "xterm-kitty"}, {"TERM_PROGRAM": "ghostty"}])
def test_kitty_and_its_like_get_the_picture_itself(tmp_path: Path, environment: dict[str, str]) -> None:
    output = written(tmp_path, environment)
    assert "left" in output
    assert "\x1b_Gi=" in output
    assert "\U0010eeee" in output
    assert "▀▀▀▀" not in output
    assert "\x1b_Ga=d" in output  # and lets go of it
    asked = output.partition("\x1b_Gi=")[0]
    assert "a=q" not in asked
    assert "\x1b[16t" not in output


@pytest.mark.slow
def test_terminals_with_sixel_get_that(tmp_path: Path) -> None:
    output = written(tmp_path, {"TERM": "foot"})
    assert "left" in output
    assert "\x1bP" in output
    assert "#0;2;" in output
    assert "▀▀▀▀" not in output
    assert "\x1b[16t" not in output


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"TERM": "xterm-kitty", "TMUX": "/tmp/tmux-0/default,1,0"},
        {"TERM": "foot", "PALLAS_IMAGES": "cells"},
    ],
)
def test_all_others_and_multiplexers_get_cells(tmp_path: Path, environment: dict[str, str]) -> None:
    output = written(tmp_path, environment)
    assert "left" in output
    assert "▀▀▀▀" in output
    assert "\x1b_G" not in output
    assert "\x1bPq" not in output
