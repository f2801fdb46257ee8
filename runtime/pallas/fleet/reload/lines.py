"""Places in a project's files."""

import re
from pathlib import Path
from typing import Final

_PLACE: Final = re.compile(r"^([^\s:]+\.[A-Za-z]+:\d+)\b")


def line_of(file: Path, key: str) -> int:
    """The line, from 1, where ``key`` stands at the top of a YAML file; 0 where it does not."""
    pattern = re.compile(rf"{re.escape(key)}\s*:")
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return 0
    return next((number for number, line in enumerate(lines, 1) if pattern.match(line)), 0)


def place_of(text: str) -> str:
    """The ``file:line`` that a message begins with; empty where it does not."""
    match = _PLACE.match(text)
    return match[1] if match else ""
