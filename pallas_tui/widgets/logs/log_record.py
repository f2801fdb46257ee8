"""One parsed line of the log: as a row, and in full."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pallas.safe_text import one_line, sanitize

from .log_index import LEVELS

ROW_LIMIT: Final = 4_096
"""Characters of a line that a row can show."""
PARSE_LIMIT: Final = 64 * 1024
"""Bytes of a line that is still parsed as JSON for its row; a longer one is shown unchanged."""
FULL_LIMIT: Final = 1024 * 1024
"""Bytes of a record that are shown in full."""

_KNOWN: Final = ("time", "level", "logger", "message")
# The same for nearly all rows.
_NOT_IN_ROWS: Final = (*_KNOWN, "project")
_LEVEL_BY_LETTER: Final = {name[0]: name for name in LEVELS if name}


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """A line as a row. ``level`` is one of ``LEVELS``, ``extra`` the other keys; all sanitised."""

    time: str
    level: str
    logger: str
    message: str
    extra: str = ""

    @property
    def is_raw(self) -> bool:
        """Whether it is not a log record, and shown unchanged."""
        return not (self.time or self.level or self.logger)


def parse(line: bytes, whole: int) -> ShownRecord:
    """Return the row of a line; ``line`` has its beginning, ``whole`` is its number of bytes."""
    data = load(line) if whole <= PARSE_LIMIT else None
    if data is None:
        text = line[: 4 * ROW_LIMIT].decode("utf-8", "replace")
        return ShownRecord("", "", "", one_line(text, ROW_LIMIT))
    extra = " ".join(
        f"{one_line(key, 40)}={_short(value)}"
        for key, value in data.items()
        if key not in _NOT_IN_ROWS and value != ""
    )
    return ShownRecord(
        time=_clock(data.get("time")),
        level=_level(data.get("level")),
        logger=one_line(str(data.get("logger", "")), 80),
        message=one_line(str(data.get("message", "")), ROW_LIMIT),
        extra=extra[:ROW_LIMIT],
    )


def title_of(line: bytes) -> str:
    """Return the title of a record in full: time, level and logger."""
    record = parse(line, len(line))
    return "  ".join(part for part in (record.time, record.level, record.logger) if part) or "Line"


def as_text(line: bytes, whole: int) -> str:
    """Return a record as text for a report: its row in full, then the values with several lines."""
    record = load(line) if len(line) >= whole - 2 else None
    if record is None:
        return sanitize(line.decode("utf-8", "replace")) + cut_note(line, whole)
    head = [one_line(str(record[key]), FULL_LIMIT) for key in _KNOWN if record.get(key)]
    rest = {key: value for key, value in record.items() if key not in _KNOWN and value != ""}
    blocks = {key: value for key, value in rest.items() if isinstance(value, str) and "\n" in value.strip()}
    head += [
        f"{one_line(key, 40)}={_short(value, FULL_LIMIT)}" for key, value in rest.items() if key not in blocks
    ]
    texts = [f"{one_line(key, 40)}:\n{sanitize(value.rstrip())}" for key, value in blocks.items()]
    return "\n".join(["  ".join(head), *texts])


def as_json(line: bytes, whole: int) -> str:
    """Return a record as indented JSON; any other line unchanged."""
    record = load(line) if len(line) >= whole - 2 else None
    if record is None:
        return sanitize(line.decode("utf-8", "replace")) + cut_note(line, whole)
    return sanitize(json.dumps(record, indent=2, ensure_ascii=False))


def cut_note(line: bytes, whole: int) -> str:
    """Return a note below a line of which only the beginning is there; empty when all of it is."""
    return "" if len(line) >= whole - 2 else f"\n(the first {len(line):,} of {whole:,} bytes)"


def load(line: bytes) -> dict[str, Any] | None:
    """Return a line as a JSON object; None where it is none."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def clock_of(value: object) -> datetime | None:
    """Return a record's time, local if it has an offset; None where it is no time."""
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            at = datetime.fromtimestamp(value, UTC)
        else:
            return None
        return at.astimezone() if at.tzinfo is not None else at
    except (ValueError, OverflowError, OSError):
        return None


def _clock(value: object) -> str:
    """Return the local time of day with milliseconds; any other value unchanged."""
    if (local := clock_of(value)) is None:
        return one_line(str(value), 12) if isinstance(value, str | int | float) and value is not True else ""
    return f"{local:%H:%M:%S}.{local.microsecond // 1000:03}"


def _level(value: object) -> str:
    text = str(value or "").strip().upper()
    return _LEVEL_BY_LETTER.get({"F": "C", "T": "D", "N": "I"}.get(text[:1], text[:1]), "")


def _short(value: object, limit: int = 120) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(text, limit)
