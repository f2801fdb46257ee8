"""Whether this terminal draws true pixels, and the widget for it; one picture at a time, in full.

On import, ``textual-image`` sends queries to the terminal and reads the answers from the input of the keys.
That is too late once the screen runs. So the values it would find are set before: the terminal by its name,
the size of a cell by the system.
"""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from PIL.Image import Image
    from textual.widget import Widget

VARIABLE: Final = "PALLAS_IMAGES"
"""``kitty``, ``sixel`` or ``cells`` in the environment overrides the terminal's name."""

Way = Literal["kitty", "sixel", "cells"]
_CELL: Final = (10, 20)


def way(environ: Mapping[str, str] | None = None) -> Way:
    """Return how to draw on this terminal. A multiplexer gets cells: it passes text, not pixels."""
    environ = os.environ if environ is None else environ
    wanted = environ.get(VARIABLE, "").strip().lower()
    if wanted in ("kitty", "sixel", "cells"):
        return wanted  # type: ignore[return-value]
    if environ.get("TMUX") or environ.get("STY") or environ.get("ZELLIJ"):
        return "cells"
    term, program = environ.get("TERM", ""), environ.get("TERM_PROGRAM", "").lower()
    if environ.get("KITTY_WINDOW_ID") or term in ("xterm-kitty", "xterm-ghostty") or program == "ghostty":
        return "kitty"
    if term.startswith(("foot", "mlterm", "contour", "wezterm")) or program in (
        "wezterm",
        "iterm.app",
        "mlterm",
        "contour",
    ):
        return "sixel"
    return "cells"


def prepare(chosen: Way) -> None:
    """Load the library that draws pixels, without queries to the terminal.

    Takes 0.2 s once: call in a thread.
    """
    _answer_for_the_terminal(chosen)
    import_module("textual_image.widget")


def picture_widget(image: "Image", chosen: Way) -> "Widget":
    """Return a widget that shows ``image`` in pixels, after ``prepare``; ``chosen`` is not ``cells``."""
    widgets = import_module("textual_image.widget")
    made: Widget = (widgets.TGPImage if chosen == "kitty" else widgets.SixelImage)(image)
    return made


def let_go(widget: "Widget") -> None:
    """Let the terminal drop the picture of ``widget``."""
    if hasattr(widget, "image"):
        widget.image = None


def _answer_for_the_terminal(chosen: Way) -> None:
    terminal: Any = import_module("textual_image._terminal")
    if terminal.probe_terminal.__module__ == __name__:
        return
    capabilities = terminal.TerminalCapabilities(
        terminal.CellSize(*_cell_size()), sixel=chosen == "sixel", tgp=chosen == "kitty"
    )

    def probe_terminal() -> Any:
        return capabilities

    terminal.probe_terminal = probe_terminal


def _cell_size() -> tuple[int, int]:
    """Return the pixels of a cell as the terminal reported them to the system, else a usual size."""
    try:
        from array import array
        from fcntl import ioctl
        from termios import TIOCGWINSZ

        size = array("H", [0, 0, 0, 0])
        assert sys.__stdout__ is not None
        ioctl(sys.__stdout__.fileno(), TIOCGWINSZ, size)
    except (AssertionError, ImportError, OSError, ValueError):
        return _CELL
    rows, columns, width, height = size
    cell = (width // max(1, columns), height // max(1, rows))
    return cell if all(cell) else _CELL
