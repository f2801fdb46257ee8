"""The committed lists of what is expected to fail, each entry with the reason beside it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The suite reads the file as YAML. Here it is read by line, because YAML forgets the comments.
_ENTRY: Final = re.compile(r"\s*-\s+(?P<scenario>[a-z0-9-]+)(?::(?P<check>\S+))?(?:\s+#\s*(?P<reason>\S.*))?")
_OTHER: Final = re.compile(r"\s*(#.*)?|server:(\s*\[\])?\s*(#.*)?")


@dataclass(frozen=True, slots=True)
class Entry:
    """A check of a scenario (all of it where ``check`` is empty) that cannot pass, and why."""

    scenario: str
    check: str
    reason: str


def read_baseline(path: Path) -> tuple[Entry, ...]:
    """The entries in order. Raises ValueError, with file and line, for one without reason or there twice."""
    entries: list[Entry] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if _OTHER.fullmatch(line):
            continue
        found = _ENTRY.fullmatch(line)
        if found is None:
            raise ValueError(f"{path.name}:{number}: is no entry; write `- scenario:check # reason`")
        entry = Entry(found["scenario"], found["check"] or "", (found["reason"] or "").strip())
        if not entry.reason:
            raise ValueError(f"{path.name}:{number}: {entry.scenario} has no reason; write it behind a #")
        if any((entry.scenario, entry.check) == (other.scenario, other.check) for other in entries):
            raise ValueError(f"{path.name}:{number}: {entry.scenario} {entry.check} stands there twice")
        entries.append(entry)
    return tuple(entries)
