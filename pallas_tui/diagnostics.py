"""What a report of a mistake should say of this installation: versions, terminal, paths, limits, counts."""

import os
import platform
import resource
import sys
import threading
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from pallas.safe_text import one_line

Section = tuple[str, tuple[tuple[str, str], ...]]
"""A heading, and names with what they are."""

_PACKAGES: Final = ("pallas-mcp", "textual", "fast-agent-mcp", "mcp", "fastmcp-slim", "rich")
_TERMINAL: Final = (
    "TERM", "COLORTERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "LANG", "LC_ALL", "NO_COLOR",
)  # fmt: skip
_NAME_WIDTH: Final = 20


def versions() -> Section:
    """Programs and libraries."""
    found = [(name, _version(name)) for name in _PACKAGES]
    return "Versions", (
        *found,
        ("python", platform.python_version()),
        ("platform", f"{platform.system()} {platform.release()} {platform.machine()}"),
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def terminal(
    size: tuple[int, int], colours: str, *, plain: bool, theme: str, environ: Mapping[str, str] | None = None
) -> Section:
    """Return facts about the terminal. Only environment names that never hold a secret are read."""
    environ = os.environ if environ is None else environ
    variables = [(name, one_line(environ[name], 60)) for name in _TERMINAL if environ.get(name)]
    return "Terminal", (
        ("size", f"{size[0]}x{size[1]}"),
        ("colours", colours),
        ("theme", theme),
        ("characters", "ASCII" if plain else "Unicode"),
        ("in tmux", _yes("TMUX" in environ)),
        ("over ssh", _yes("SSH_CONNECTION" in environ or "SSH_TTY" in environ)),
        *variables,
    )


def paths(named: Mapping[str, Path | None]) -> Section:
    """Where things are; the home folder as ``~``, for a report is read by others."""
    return "Paths", tuple((name, _at_home(path)) for name, path in named.items() if path is not None)


def _at_home(path: Path) -> str:
    try:
        return one_line(str(Path("~") / path.relative_to(Path.home())), 200)
    except (ValueError, RuntimeError):
        return one_line(str(path), 200)


def process() -> Section:
    """What this process takes."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    unit = 1 if sys.platform == "darwin" else 1024
    return "Process", (
        ("pid", str(os.getpid())),
        ("threads", str(threading.active_count())),
        ("memory at most", f"{used.ru_maxrss * unit / 1e6:.0f} MB"),
        ("CPU", f"{used.ru_utime + used.ru_stime:.1f} s"),
    )


def as_text(sections: tuple[Section, ...]) -> str:
    """The sections as plain text."""
    return "\n\n".join(
        "\n".join((title, *(f"  {name:<{_NAME_WIDTH}} {value}" for name, value in lines)))
        for title, lines in sections
    )


def _yes(value: Any) -> str:
    return "yes" if value else "no"
