"""Formats a log record as one line of JSON."""

import json
import logging
import traceback
from collections.abc import Mapping
from typing import Any, Final

from pallas.model.redaction import MASK, is_sensitive, redact_head, redact_text
from pallas.model.time_text import iso
from pallas.safe_text import json_escape, replace_invisible
from pallas.telemetry.trace_context import current_agent, current_run

MAX_MESSAGE: Final = 64 * 1024
MAX_TRACEBACK: Final = 256 * 1024
MAX_EXTRA: Final = 16 * 1024
_MAX_ITEMS: Final = 100
_MAX_DEPTH: Final = 5

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OURS: Final = frozenset({"time", "level", "logger", "message", "exc", "stack"})


class JsonLines(logging.Formatter):
    """``{"time", "level", "logger", "message", ...extras, "exc"?}``, redacted and bounded, without a newline.

    ``time`` is UTC with milliseconds. Extras are the ``extra={...}`` of the log call, after the fixed keys
    and never over them. ``exc`` is the whole traceback (PR-35, PR-36). ``project`` is the folder of the
    project that this process works for, empty for none. Never raises.
    """

    project = ""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        text = json.dumps(self.fields(record), ensure_ascii=False, separators=(", ", ": "))
        # JSON escapes below U+0020 only.
        return replace_invisible(text, json_escape)

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """The record as plain JSON values, redacted and bounded."""
        line: dict[str, Any] = {
            "time": iso(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": _clip(_message(record), MAX_MESSAGE),
            **_of_run(record),
        }
        for name, value in vars(record).items():
            if name not in _STANDARD and not name.startswith("_"):
                line[f"{name}_" if name in _OURS else name] = _extra(name, value)
        if trace := _traceback(record):
            line["exc"] = _clip(trace, MAX_TRACEBACK)
        if self.project:
            line.setdefault("project", self.project)
        if record.stack_info:
            line["stack"] = _clip(record.stack_info, MAX_TRACEBACK)
        return line


def _of_run(record: logging.LogRecord) -> dict[str, str]:
    """The agent and the run that the record was made for, and its trace; the record's own extras win.

    A record is made and formatted by one thread, in the context of the log call.
    """
    run = current_run()
    own = {"agent": current_agent()}
    if run is not None and getattr(record, "run_id", run.run_id) == run.run_id:
        own = {"agent": current_agent() or run.agent, "run_id": run.run_id, "trace_id": run.context.trace_id}
    return {name: value for name, value in own.items() if value and not hasattr(record, name)}


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # a wrong log call of a library must not lose the record
        return f"{record.msg!s} {_text(record.args)}"


def _traceback(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[0] is None:
        return record.exc_text or ""
    try:
        return "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
    except Exception:  # an exception whose own text cannot be made
        return f"{record.exc_info[0].__name__} (its traceback could not be formatted)"


def _clip(text: str, limit: int) -> str:
    """``text`` redacted and at most about ``limit`` characters."""
    if len(text) <= limit:
        return redact_text(text)
    return f"{redact_head(text, limit)}… [{len(text) - limit} characters left out]"


def _extra(name: str, value: Any, depth: int = 0) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if is_sensitive(name) and not (name.lower().endswith("tokens") and isinstance(value, int)):
        return MASK
    if isinstance(value, int) and abs(value) < 1 << 63:
        return int(value)
    if isinstance(value, float) and value - value == 0:  # JSON has neither NaN nor infinity
        return float(value)
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        pairs = list(value.items())[:_MAX_ITEMS]
        return {_clip(_text(key), 200): _extra(_text(key), item, depth + 1) for key, item in pairs}
    if depth < _MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
        return [_extra("", item, depth + 1) for item in list(value)[:_MAX_ITEMS]]
    return _clip(_text(value), MAX_EXTRA)


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # a third party's __str__ may raise
        return f"<{type(value).__name__}>"
