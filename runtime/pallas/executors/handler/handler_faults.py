"""What a caller is told of what a handler raised: as little as is right, however odd it is."""

import json
import logging
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pallas.model import Fault, FaultType
from pallas.model.redaction import redact_text
from pallas.model.safe_text import one_line

log = logging.getLogger(__name__)

# Of a Fault that a handler raises itself: so many data, each of so many characters.
_MAX_DATA: Final = 20
_MAX_VALUE: Final = 2_000
# What the fleet itself says of a Fault.
_OURS: Final = frozenset({"type", "retryable", "system"})


class Exited(Exception):
    """Code of a handler called ``exit``, or interrupts: that is no reason for its fleet to end."""

    @property
    def kind(self) -> str:
        """What it did."""
        return "KeyboardInterrupt" if isinstance(self.__cause__, KeyboardInterrupt) else "exit"


def raised(agent: str, error: BaseException, root: Path, what: str = "") -> Fault:
    """What a caller is told of an exception of a handler; its text and its traceback are in the log alone.

    ``what`` is the hook that raised it, empty for an answer.
    """
    who = f"{what} of {agent}" if what else agent
    if isinstance(error, Fault):
        return passed_on(error, f"{who}: ")
    kind = error.kind if isinstance(error, Exited) else type(error).__name__
    place = _place(error, root)
    at = f" at {place}" if place else ""
    said = f"{kind}: {words(error)}"
    log.error("%s failed%s: %s", who, at, said, exc_info=error, extra={"agent": agent})
    return Fault(FaultType.UPSTREAM, f"{who} failed; the log has the details", cause=f"{said}{at}")


def passed_on(fault: Fault, who: str = "") -> Fault:
    """A Fault that a handler let out, as others may see it: ``who`` stands before its words.

    Code of a handler may have put anything in it, so nothing of it is taken for what it should be.
    """
    given: Any = fault
    kind = given.type if isinstance(given.type, FaultType) else FaultType.UPSTREAM
    retryable = given.retryable if isinstance(given.retryable, bool) else None
    cause = words(given.cause) if isinstance(getattr(given, "cause", None), str) else ""
    text = f"{who}{words(fault.message)}"
    return Fault(kind, text, retryable=retryable, data=_plain(fault.data), cause=cause)


def words(said: Any) -> str:
    """It as text: asking for that runs code of a handler."""
    try:
        text = str(said)
    except BaseException as error:
        return f"no words ({type(error).__name__})"
    return one_line(redact_text(text), 300)


def _plain(data: Any) -> dict[str, Any]:
    """What of a Fault's data can be passed on: it is in JSON for callers, and says nothing of the fleet's."""
    plain: dict[str, Any] = {}
    if not isinstance(data, Mapping):
        return plain
    with suppress(Exception):
        for name, value in list(data.items())[:_MAX_DATA]:
            with suppress(TypeError, ValueError, RecursionError):
                written = json.dumps(value, allow_nan=False)
                if isinstance(name, str) and name not in _OURS and len(written) <= _MAX_VALUE:
                    plain[one_line(name, 40)] = json.loads(written)
    return plain


def _place(error: BaseException, root: Path) -> str:
    """``file:line`` of the project where it was raised; of any file where none is the project's."""
    if isinstance(error, Exited) and error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if (path := Path(frame.filename)).is_relative_to(root):
            return one_line(f"{path.relative_to(root)}:{frame.lineno}")
    return one_line(f"{Path(frames[-1].filename).name}:{frames[-1].lineno}") if frames else ""
