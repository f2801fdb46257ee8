"""Converts a handler's exceptions to Faults that tell callers as little as needed."""

import json
import logging
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pallas.model import Fault, FaultType
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

log = logging.getLogger(__name__)

# Limits of a Fault that a handler raises itself: the number of data keys, and the characters of each.
_MAX_DATA: Final = 20
_MAX_VALUE: Final = 2_000
# The keys of a Fault's data that only the fleet sets.
_OURS: Final = frozenset({"type", "retryable", "system"})


class Exited(Exception):
    """Code of a handler called ``exit`` or raised KeyboardInterrupt, which must not end the fleet."""

    @property
    def kind(self) -> str:
        """The name of the exception."""
        return "KeyboardInterrupt" if isinstance(self.__cause__, KeyboardInterrupt) else "exit"


def raised(agent: str, error: BaseException, root: Path, what: str = "") -> Fault:
    """Return the Fault for an exception of a handler; its text and traceback are only in the log.

    ``what`` is the hook that raised it, empty for an answer.
    """
    name = f"{what} of {agent}" if what else agent
    if isinstance(error, Fault):
        return passed_on(error, f"{name}: ")
    kind = error.kind if isinstance(error, Exited) else type(error).__name__
    place = _place(error, root)
    at = f" at {place}" if place else ""
    error_text = f"{kind}: {words(error)}"
    log.error("%s failed%s: %s", name, at, error_text, exc_info=error, extra={"agent": agent})
    return Fault(FaultType.UPSTREAM, f"{name} failed; the log has the details", cause=f"{error_text}{at}")


def passed_on(fault: Fault, name: str = "") -> Fault:
    """Return a Fault that a handler raised, for callers: ``name`` is put before its message.

    A handler may have put anything in it, so every field is checked.
    """
    given: Any = fault
    kind = given.type if isinstance(given.type, FaultType) else FaultType.UPSTREAM
    retryable = given.retryable if isinstance(given.retryable, bool) else None
    cause = words(given.cause) if isinstance(getattr(given, "cause", None), str) else ""
    text = f"{name}{words(fault.message)}"
    return Fault(kind, text, retryable=retryable, data=_plain(fault.data), cause=cause)


def words(error_text: Any) -> str:
    """Return ``error_text`` as text: ``str()`` of it runs code of the handler."""
    try:
        text = str(error_text)
    except BaseException as error:
        return f"no message ({type(error).__name__})"
    return one_line(redact_text(text), 300)


def _plain(data: Any) -> dict[str, Any]:
    """Return the keys of a Fault's data that can be passed on: valid JSON, and none that the fleet sets."""
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
    """Return ``file:line`` of the project where it was raised; of any file if none is the project's."""
    if isinstance(error, Exited) and error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if (path := Path(frame.filename)).is_relative_to(root):
            return one_line(f"{path.relative_to(root)}:{frame.lineno}")
    return one_line(f"{Path(frames[-1].filename).name}:{frames[-1].lineno}") if frames else ""
