"""How a server differs from ``tools.lock``, as lines of several colours."""

from collections.abc import Iterator
from typing import Final

from pallas.model import LockChange, LockChangeKind, ServerDetail, ServerLock

from ...text import Line, count
from ..tones import DIM, STRONG

CHANGE_MARKS: Final[dict[LockChangeKind, tuple[str, str]]] = {
    "added": ("+", "$text-success"),
    "removed": ("-", "$text-error"),
    "renamed": (">", "$text-warning"),
    "changed": ("~", "$text-warning"),
}
HELD: Final = ("!", "$text-error")
"""The mark of a tool that is not as the lock has it."""
FOUND: Final = ("?", "$text-warning")
"""That of one in which something is suspicious."""
_STYLES: Final = {"removed": "$text-error", "inserted": "$text-success"}


def is_compared(lock: ServerLock | None) -> bool:
    """Whether the lock says something of the server, or should."""
    return lock is not None and (lock.mode != "off" or lock.state != "not locked")


def lock_words(lock: ServerLock | None) -> str:
    """How the server differs from the lock, in a few words; empty where there is nothing to say."""
    if lock is None:
        return ""
    parts = []
    if is_compared(lock) and lock.state == "changed":
        parts.append(f"{count(len(lock.changes), 'difference')} from tools.lock")
    elif is_compared(lock) and lock.state == "not locked":
        parts.append(lock.problem or "not in tools.lock")
    if parts and lock.mode == "hold":
        parts.append("held")
    if lock.findings:
        parts.append(count(len(lock.findings), "finding"))
    return ", ".join(parts)


def not_acceptable(server: ServerDetail | None) -> str:
    """Why nothing of the server can be accepted; empty if something can."""
    if server is None or not server.server:
        return "Select one of the agent's servers, or a tool of it."
    lock = server.lock
    if lock is None:
        return f"{server.server} is not compared with tools.lock."
    if not lock.digest:
        return f"{server.server}: {server.problem or lock.problem}"
    if lock.state in ("same", "not lockable"):
        return f"{server.server} matches tools.lock."
    return lock.problem


def change_of(lock: ServerLock | None, tool: str) -> LockChange | None:
    """What became of a tool; None if it is as locked, or nothing of it is."""
    changes = lock.changes if lock is not None and is_compared(lock) and lock.state == "changed" else ()
    return next((each for each in changes if each.what == "tool" and each.name == tool), None)


def lock_lines(server: ServerDetail) -> tuple[Line, ...]:
    """All that differs, word by word, and all that is suspicious."""
    lock = server.lock
    if lock is None:
        return ()
    return (*_changes(lock), *_findings(lock))


def _changes(lock: ServerLock) -> Iterator[Line]:
    from pallas.recordings.diff_lines import word_lines
    from pallas.recordings.word_diff import word_diff

    for change in lock.changes:
        sign, style = CHANGE_MARKS[change.kind]
        yield ((f"{sign} ", style), (str(change), STRONG))
        if change.kind in ("changed", "added"):
            for line in word_lines(word_diff(change.before, change.after)):
                yield (("    ", ""), *((text, _STYLES.get(tone, "")) for text, tone in line))
        yield (("", ""),)


def _findings(lock: ServerLock) -> Iterator[Line]:
    for finding in lock.findings:
        named = f"{finding.what} {finding.name}".rstrip()
        yield ((f"{FOUND[0]} ", FOUND[1]), (f"{named}: ", STRONG), (finding.message, ""))
        yield ((f"    rule {finding.rule}", DIM),)
