"""One line of the log, understood: as a row, and in full."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pallas.text import one_line, sanitize

from .index import LEVELS

ROW_LIMIT: Final = 4_096
"""Characters of a line that a row can show."""
PARSE_LIMIT: Final = 64 * 1024
"""Bytes of a line that is still read as JSON for its row; a longer one is shown as it stands."""
FULL_LIMIT: Final = 1024 * 1024
"""Bytes of a record that are shown in full."""

_KNOWN: Final = ("time", "level", "logger", "message")
_LEVEL_BY_LETTER: Final = {name[0]: name for name in LEVELS if name}


@dataclass(frozen=True, slots=True)
class Record:
    """A line as a row shows it. ``level`` is one of ``LEVELS``, ``extra`` the other keys; all sanitised."""

    time: str
    level: str
    logger: str
    message: str
    extra: str = ""


def parse(line: bytes, whole: int) -> Record:
    """The row of a line of which ``line`` holds the beginning and that has ``whole`` bytes in all."""
    data = _load(line) if whole <= PARSE_LIMIT else None
    if data is None:
        text = line[: 4 * ROW_LIMIT].decode("utf-8", "replace")
        return Record("", "", "", one_line(text, ROW_LIMIT))
    extra = " ".join(
        f"{one_line(key, 40)}={_short(value)}"
        for key, value in data.items()
        if key not in _KNOWN and value != ""
    )
    return Record(
        time=_clock(data.get("time")),
        level=_level(data.get("level")),
        logger=one_line(str(data.get("logger", "")), 80),
        message=one_line(str(data.get("message", "")), ROW_LIMIT),
        extra=extra[:ROW_LIMIT],
    )


def title_of(line: bytes) -> str:
    """What a record in full has as its title: when, how grave, and who says it."""
    record = parse(line, len(line))
    return "  ".join(part for part in (record.time, record.level, record.logger) if part) or "Line"


def full(line: bytes, whole: int) -> tuple[str, str]:
    """A record in full: its JSON on many lines, and what had lines of its own (a traceback) as it reads."""
    note = "" if len(line) >= whole - 2 else f"\n(the first {len(line):,} of {whole:,} bytes)"
    data = _load(line) if not note else None
    if data is None:
        return "", sanitize(line.decode("utf-8", "replace")) + note
    texts = {key: value for key, value in data.items() if isinstance(value, str) and "\n" in value.strip()}
    rest = {key: value for key, value in data.items() if key not in texts}
    blocks = "\n\n".join(f"{one_line(key, 40)}:\n{sanitize(text.rstrip())}" for key, text in texts.items())
    return sanitize(json.dumps(rest, indent=2, ensure_ascii=False)), blocks


def _load(line: bytes) -> dict[str, Any] | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _clock(value: object) -> str:
    """Local time of day with milliseconds; what is no time is shown as it is."""
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            at = datetime.fromtimestamp(value, UTC)
        else:
            return ""
        local = at.astimezone() if at.tzinfo is not None else at
    except (ValueError, OverflowError, OSError):
        return one_line(str(value), 12)
    return f"{local:%H:%M:%S}.{local.microsecond // 1000:03}"


def _level(value: object) -> str:
    text = str(value or "").strip().upper()
    return _LEVEL_BY_LETTER.get({"F": "C", "T": "D", "N": "I"}.get(text[:1], text[:1]), "")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(text, 120)
