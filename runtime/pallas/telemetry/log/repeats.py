"""Writes a warning that repeats once, with the number of its repetitions."""

import logging
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

from pallas.telemetry.trace_context import current_agent, current_run

INTERVAL_S: Final = 300.0
"""Seconds in which a warning is written once."""
MOST: Final = 256
"""Different warnings that are remembered; for the next one the oldest is forgotten."""
_MAX_TEXT: Final = 1_000
# A trail of who was refused is complete.
_COMPLETE: Final = "pallas.audit"
# What differs from one repetition to the next: addresses of objects, ids, names of tasks, durations.
_VARYING: Final = re.compile(
    r"0x[0-9a-f]+|\b[0-9a-f]{8,}(?:-[0-9a-f]{4,})*\b|\bTask-\d+|(?<![\d.])\d+\.\d+(?![\d.])", re.IGNORECASE
)


@dataclass(slots=True)
class _Repeated:
    """A warning that was written; ``last`` is its newest repetition that was not."""

    since: float
    written: datetime
    group: tuple[str, str, str]
    count: int = 0
    last: dict[str, Any] = field(default_factory=dict)


class Repeats:
    """Decides which records are written: of equal warnings and errors one in ``INTERVAL_S``.

    The first is written at once. The next one after the interval has the number of those in between, in its
    text and as ``repeated``. If there is none, the last of them is written with it: with the next record of
    any kind, or ``rest``. An INFO record of the same logger about the same agent and server says that
    something has changed, so a warning after it is a new one.

    Records of runs, of the audit trail and of what programs print are always written. Use it from one thread
    at a time, as the lock of a handler ensures.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[tuple[Any, ...], _Repeated] = OrderedDict()

    def admit(self, record: logging.LogRecord) -> list[logging.LogRecord]:
        """The records to write now that ``record`` was logged, in order. Never raises."""
        try:
            return self._admit(record)
        except Exception:  # a record with wrong values, which nothing checks
            return [record]

    def _admit(self, record: logging.LogRecord) -> list[logging.LogRecord]:
        now, group = self._clock(), _group_of(record)
        if record.levelno < logging.WARNING:
            return [*self._due(now), *self._changed(group), record]
        if not _may_repeat(record):
            return [*self._due(now), record]
        key = (group, record.levelno, *_text_of(record))
        known = self._known.get(key)
        if known is not None and now - known.since < INTERVAL_S:
            known.count += 1
            known.last = _without_traceback(record)
            return self._due(now)
        if known is not None:
            del self._known[key]
        self._known[key] = _Repeated(now, datetime.fromtimestamp(record.created, UTC), group)
        if known is not None and known.count:
            record = _counted(vars(record), known)
        written = [*self._due(now), record]
        while len(self._known) > MOST:
            written[-1:-1] = _rest_of(self._known.popitem(last=False)[1])
        return written

    def rest(self) -> list[logging.LogRecord]:
        """The counts that were not written yet; nothing is remembered after that."""
        known = [*self._known.values()]
        self._known.clear()
        return [record for each in known for record in _rest_of(each)]

    def _due(self, now: float) -> list[logging.LogRecord]:
        written: list[logging.LogRecord] = []
        while self._known:
            key, oldest = next(iter(self._known.items()))
            if now - oldest.since < INTERVAL_S:
                break
            del self._known[key]
            written += _rest_of(oldest)
        return written

    def _changed(self, group: tuple[str, str, str]) -> list[logging.LogRecord]:
        found = [key for key in self._known if key[0] == group]
        return [record for key in found for record in _rest_of(self._known.pop(key))]


def _may_repeat(record: logging.LogRecord) -> bool:
    if record.name.startswith(_COMPLETE) or hasattr(record, "source"):
        return False
    return not hasattr(record, "run_id") and current_run() is None


def _group_of(record: logging.LogRecord) -> tuple[str, str, str]:
    server = getattr(record, "downstream", "") or getattr(record, "server", "")
    return record.name, str(getattr(record, "agent", None) or current_agent()), str(server)


def _text_of(record: logging.LogRecord) -> tuple[str, str]:
    """The message without what varies, and the name of its exception."""
    raised = record.exc_info[0] if record.exc_info else None
    return _VARYING.sub("#", _text(record)), raised.__name__ if raised is not None else ""


def _without_traceback(record: logging.LogRecord) -> dict[str, Any]:
    """The record's values, but not the objects that its traceback keeps alive."""
    bare = {"exc_info": None, "exc_text": None, "stack_info": None}
    return {**vars(record), "msg": _text(record), "args": None, **bare}


def _text(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()[:_MAX_TEXT]
    except Exception:  # a wrong log call of a library
        return record.msg[:_MAX_TEXT] if isinstance(record.msg, str) else type(record.msg).__name__


def _rest_of(known: _Repeated) -> list[logging.LogRecord]:
    return [_counted(known.last, known)] if known.count else []


def _counted(values: dict[str, Any], known: _Repeated) -> logging.LogRecord:
    """A record with those values that says how often it was logged since it was written last."""
    record = logging.makeLogRecord(values)
    times = "once" if known.count == 1 else f"{known.count} times"
    since = known.written.strftime("%H:%M:%SZ")
    record.msg, record.args = f"{_text(record)} (repeated {times} since {since})", None
    record.repeated = known.count
    return record
