"""Where something of the project is written (``agents.yaml:12``), and the editor that opens it there."""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from textual.app import App, SuspendNotSupported

from pallas.safe_text import one_line

from ..editor import run_on_terminal

_PLACE: Final = re.compile(r"(?P<file>.+?)(?::(?P<line>[0-9]{1,9}))?\Z")
_AFTER_COLON: Final = frozenset(("hx", "helix", "subl", "zed", "micro"))
_GOTO: Final = frozenset(("code", "code-insiders", "codium", "cursor"))
_PLUS: Final = frozenset(("vi", "vim", "nvim", "view", "nano", "emacs", "emacsclient", "kak", "joe"))
_WAITS: Final = frozenset(("code", "code-insiders", "codium", "cursor", "subl", "zed"))


def place_of(source: str, root: Path | None) -> tuple[Path, int] | None:
    """File and line (1 where none is named) of a source within ``root``; None where that is no file there."""
    match = _PLACE.match(source)
    if match is None or root is None:
        return None
    path = (root / match["file"]).resolve()
    # What a fleet names must not open any file of this machine.
    if not path.is_relative_to(root.resolve()) or not path.is_file():
        return None
    return path, int(match["line"] or 1)


def editor_of(setting: str, environ: Mapping[str, str]) -> str:
    """The user's editor: the setting, else ``VISUAL``, else ``EDITOR``; empty when there is none."""
    found = (setting, environ.get("VISUAL", ""), environ.get("EDITOR", ""))
    return next((one.strip() for one in found if one.strip()), "")


def command(editor: str, path: Path, line: int) -> list[str]:
    """The command that opens ``path`` at ``line``; for an editor that is not known, without the line."""
    parts = shlex.split(editor)
    name = Path(parts[0]).name
    wait = ["--wait"] if name in _WAITS and "--wait" not in parts and "-w" not in parts else []
    if name in _GOTO:
        return [*parts, *wait, "--goto", f"{path}:{line}"]
    if name in _AFTER_COLON:
        return [*parts, *wait, f"{path}:{line}"]
    return [*parts, f"+{line}", str(path)] if name in _PLUS else [*parts, str(path)]


def open_source(app: App[Any], source: str) -> str:
    """Open a source in the user's editor while the screen is away; what went wrong in a line, else empty."""
    root = getattr(app, "root", None)
    if not source:
        return "It is not known where that is configured."
    if (place := place_of(source, root)) is None:
        return f"{source} is not a file of a project on this machine; y copies the place."
    editor = editor_of(getattr(getattr(app, "settings", None), "editor", ""), os.environ)
    if not editor:
        return f"{source}: no editor is set; set EDITOR, or `editor` in the settings."
    try:
        words = command(editor, *place)
        with app.suspend():
            run_on_terminal(words, cwd=root)
    except SuspendNotSupported:
        return f"{source}: an editor cannot take this screen; y copies the place."
    except (OSError, ValueError) as error:
        return f"{one_line(editor, 60)} could not be run: {one_line(str(error), 120)}; set EDITOR."
    app.refresh(layout=True)
    return ""
