"""What the workbench presets inside ``textual-image``: an upgrade that moves it must fail here."""

import subprocess
import sys
import textwrap

import pytest
from textual_image import _terminal

PROGRAM = """
    import sys

    class Terminal:
        def isatty(self): return True
        def fileno(self): raise OSError
        def write(self, text): raise SystemExit(f"asked the terminal: {text!r}")
        def flush(self): pass

    sys.__stdout__ = Terminal()
    from pallas_tui.pictures.pixels import prepare
    prepare("kitty")
    from textual_image._terminal import get_cell_size, probe_terminal
    from textual_image.widget import SixelImage, TGPImage
    assert probe_terminal().tgp and not probe_terminal().sixel
    assert get_cell_size() == (10, 20), get_cell_size()
"""


def ran(program: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_loading_it_asks_the_terminal_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_names_that_are_preset_are_there() -> None:
    capabilities = _terminal.TerminalCapabilities(_terminal.CellSize(9, 18), sixel=True, tgp=False)
    assert capabilities.cell_size == (9, 18)
    assert callable(_terminal.probe_terminal)


@pytest.mark.slow
def test_nothing_of_the_workbench_loads_it_before_it_is_needed() -> None:
    program = (
        "import sys, pallas_tui.launch, pallas_tui.app, pallas_tui.widgets.chat;"
        "import pallas_tui.widgets.dialogs.picture_dialog;"
        "assert not [name for name in sys.modules if name.startswith(('textual_image', 'PIL'))]"
    )
    done = ran(program)
    assert done.returncode == 0, done.stderr
