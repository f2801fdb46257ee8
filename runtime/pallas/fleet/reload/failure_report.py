"""The report of an attempt that failed."""

import traceback
from dataclasses import dataclass
from typing import Final

from pallas.model import Fault
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line, sanitize

# Characters of a story: the reason and the traceback.
MAX_STORY: Final = 32 * 1024


@dataclass(frozen=True, slots=True)
class FailureReport:
    """``error`` in one line, ``place`` as ``file:line`` in the project if known, ``story`` all of it.

    Sanitised, secrets masked.
    """

    error: str
    place: str
    story: str


def report_failure(error: BaseException) -> FailureReport:
    """What went wrong, for a person."""
    if isinstance(error, Fault):
        reason, cause, place = error.message, error.__cause__, str(error.data.get("place", ""))
    else:
        reason, cause, place = f"{type(error).__name__}: {error}", error, ""
    reason = one_line(redact_text(reason), 400)
    return FailureReport(reason, one_line(place or _noted(error)), details_of(reason, cause))


def _noted(error: BaseException) -> str:
    """Where it was when it was given up, as a note of what it came from says: ``at FILE:LINE``."""
    seen: BaseException | None = error
    for _ in range(5):
        if seen is None:
            break
        for note in getattr(seen, "__notes__", ()):
            if note.startswith("at "):
                return str(note[3:])
        seen = seen.__cause__ or seen.__context__
    return ""


def details_of(reason: str, cause: BaseException | None) -> str:
    """What a person reads who opens the error: the reason, then the traceback of the user's code."""
    text = reason
    if cause is not None:
        text += "\n\n" + "".join(traceback.format_exception(cause))
    return sanitize(redact_text(text), MAX_STORY)
