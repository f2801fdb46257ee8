"""What is written down when the workbench, or one of its panes, breaks: enough to mend it, and no secret."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from traceback import TracebackException
from typing import Final

from pallas.model.redaction import redact_text
from pallas.model.safe_text import one_line, sanitize

KEPT: Final = 10
"""Reports that stay; older ones go."""
_LONGEST: Final = 200_000
_FRAMES: Final = 100


def in_one_line(error: BaseException) -> str:
    """``KeyError: 'x'``: clean, short, with whatever looks like a secret masked."""
    error = root_of(error)
    text = one_line(redact_text(str(error)), 160)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def traceback_of(error: BaseException) -> str:
    """The traceback without any value of a variable, masked and clean."""
    error = root_of(error)
    lines = TracebackException(
        type(error), error, error.__traceback__, limit=-_FRAMES, capture_locals=False, max_group_depth=3
    ).format()
    return sanitize(redact_text("".join(lines)), _LONGEST)


def report(error: BaseException, doing: str, facts: str, actions: Iterable[str]) -> str:
    """All that a person needs to pass on. ``actions`` are names of actions, oldest first."""
    done = "\n".join(f"  {action}" for action in actions) or "  none"
    return (
        f"Pallas workbench: an error {doing}\n\n{in_one_line(error)}\n\n"
        f"{redact_text(facts)}\n\nLast actions\n{done}\n\n{traceback_of(error)}"
    )


def save_report(folder: Path, text: str, now: float | None = None) -> Path | None:
    """Keep a report for this user only; returns where it is, None when the disk would not take it."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    path = folder / f"crash-{stamp}-{os.getpid()}.txt"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        return None
    for old in sorted(folder.glob("crash-*.txt"))[:-KEPT]:
        with suppress(OSError):
            old.unlink()
    return path


def root_of(error: BaseException) -> BaseException:
    """The error inside what a worker of the screen wraps it in."""
    inner = getattr(error, "error", None)
    return inner if type(error).__name__ == "WorkerFailed" and isinstance(inner, BaseException) else error


def widgets_of(error: BaseException) -> list[object]:
    """Whose methods the error came through, the innermost first."""
    found: list[object] = []
    trace = root_of(error).__traceback__
    while trace is not None:
        values = trace.tb_frame.f_locals
        found += [values[name] for name in ("self", "widget") if values.get(name) is not None]
        trace = trace.tb_next
    return found[::-1]
