"""Passes log records of a child process to the log of its parent."""

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from .json_lines import JsonLines

_TAKEN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_FIXED: Final = frozenset({"time", "level", "logger", "message", "exc", "stack"})


class Forwarder(logging.Handler):
    """Passes each record to ``send`` as plain JSON values, redacted and bounded. Never raises."""

    path = Path(os.devnull)

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._send = send
        self._lines = JsonLines()

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        with suppress(Exception):  # the log must not break what it reports on
            self._send(self._lines.fields(record))


def replay(fields: Mapping[str, Any], **more: str) -> None:
    """Log a record that a ``Forwarder`` sent from another process, as if it had been logged here.

    ``more`` are additional extras; those of the record win.
    """
    logger = logging.getLogger(str(fields.get("logger") or "pallas"))
    level = logging.getLevelNamesMapping().get(str(fields.get("level")), logging.INFO)
    if not logger.isEnabledFor(level):
        return
    record = logger.makeRecord(logger.name, level, "", 0, str(fields.get("message", "")), (), None)
    record.created = _seconds(fields.get("time"), record.created)
    record.exc_text = str(fields["exc"]) if fields.get("exc") else None
    record.stack_info = str(fields["stack"]) if fields.get("stack") else None
    for name, value in {**more, **fields}.items():
        if name not in _FIXED and name not in _TAKEN and not name.startswith("_"):
            setattr(record, name, value)
    logger.handle(record)


def _seconds(time: object, otherwise: float) -> float:
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return otherwise
