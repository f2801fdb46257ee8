"""Failures of calls to a downstream: the traceback goes to the log, a short text to the model.

The log's records are under ``pallas.forward.trace`` (PR-32).
"""

import logging
import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

from mcp import MCPError
from mcp_types import CONNECTION_CLOSED

from pallas.downstreams.connection import end_notes
from pallas.downstreams.server_stderr import ServerErrorReader
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

from .log_seam import is_logged, note_logged

log = logging.getLogger("pallas.forward.trace")

# The longest error text that a model gets, in characters.
MAX_TEXT: Final = 500
# These exceptions are bugs in a program, not errors of a server: their text does not help a model.
_MISTAKES: Final = (TypeError, AttributeError, LookupError, NameError, AssertionError)
# Code awaited something that is not awaitable. Only its author can use the text.
_AWAITED: Final = re.compile(r"object '?\w+'? can't be (?:used in 'await' expression|awaited)")

_MISTAKE: Final = "it failed inside; the log has the details under pallas.forward.trace"

_run_id: ContextVar[str] = ContextVar("run_id", default="")
_hop: ContextVar[tuple[str, str]] = ContextVar("hop", default=("", ""))
_exception: ContextVar[str] = ContextVar("tool_exception", default="")
_structured: ContextVar[Any] = ContextVar("tool_structured", default=None)


def name_run(run_id: str) -> None:
    """Put this run's id on records of the current task, and of the tasks that it starts from now on."""
    _run_id.set(run_id)


def current_hop() -> tuple[str, str]:
    """Return the server and the tool, or other method, that this task calls; empty outside of a call."""
    return _hop.get()


def begin_tool() -> None:
    """Forget the exception and the result of the call before, in the current task."""
    _exception.set("")
    _structured.set(None)


def tool_exception() -> str:
    """Return the last line of the exception that made this task's call fail, from its server's stderr."""
    return _exception.get()


def structured_content() -> Any:
    """Return the structured content of the result of this task's call; None if it has none."""
    return _structured.get()


async def dispatched[T](
    agent: str,
    server: str,
    operation: str,
    reader: ServerErrorReader | None,
    call: Callable[[], Awaitable[T]],
) -> T:
    """Make a request of a downstream; ``operation`` is the tool, or another method. Logs what goes wrong.

    ``reader`` reads the server's stderr. Raises what the call raised, with a text for models; never a
    mistake of a program.
    """
    token = _hop.set((server, operation))
    seen = reader.count if reader is not None else 0
    try:
        result = await call()
    except Exception as error:
        _mask(error)
        _trace(agent, error)
        if _closed(error):
            how = ": ".join(("the connection was closed in the middle of it", *end_notes(error)))
            raise ConnectionError(how) from error
        if isinstance(error, _MISTAKES):
            raise RuntimeError(_MISTAKE) from error  # noqa: TRY004 - it is about no value of ours
        raise
    finally:
        _hop.reset(token)
    _structured.set(getattr(result, "structured_content", None))
    if getattr(result, "is_error", False) is True:
        said = "\n".join(str(getattr(block, "text", "")) for block in getattr(result, "content", ()))
        if reader is not None:
            _exception.set(reader.exception_since(seen, said))
        raised = reader.take_traceback() if reader is not None else ""
        _log_answer(agent, server, operation, said, raised)
    made: T = _without_riddles(server, result)
    return made


def short(text: str) -> str:
    """Return at most ``MAX_TEXT`` characters in one line, with secrets masked: what a model gets."""
    return one_line(redact_text(_AWAITED.sub("an internal error", text)), MAX_TEXT)


def _trace(agent: str, error: Exception) -> None:
    """Log the exception once."""
    if is_logged(error):
        return
    note_logged(error)
    server, tool = (one_line(part, 80) for part in _hop.get())
    known = {"agent": agent, "downstream": server, "tool": tool, "run_id": _run_id.get()}
    log.error(
        "%s: %s/%s failed: %s: %s",
        agent or "an agent",
        server,
        tool,
        type(error).__name__,
        one_line(str(error)),
        exc_info=error,
        extra={key: value for key, value in known.items() if value},
    )


def _log_answer(agent: str, server: str, tool: str, said: str, raised: str) -> None:
    """Log a call that the server answered with an error, with the traceback that it ``raised`` itself."""
    server, tool = one_line(server, 80), one_line(tool, 80)
    extra = {"agent": agent, "downstream": server, "tool": tool, "run_id": _run_id.get()}
    text = f"{agent or 'an agent'}: {server}/{tool} failed: {one_line(redact_text(said), MAX_TEXT)}"
    record = log.makeRecord(log.name, logging.WARNING, "", 0, text, (), None, extra=extra)
    record.exc_text = raised or None
    log.handle(record)


def _mask(error: Exception) -> None:
    """Mask secrets in a server's text at once: fast-agent logs it later.

    By then the run may have ended, and with it the knowledge of the caller's token.
    """
    if isinstance(error, MCPError):
        error.error = error.error.model_copy(update={"message": redact_text(error.message)})
        error.args = (error.code, error.message, error.data)


def _closed(error: Exception) -> bool:
    """Return whether the other end closed the connection."""
    if not isinstance(error, MCPError):
        return False
    return error.code == CONNECTION_CLOSED and error.message == "Connection closed"


def _without_riddles(server: str, result: Any) -> Any:
    """Replace the text of a failed result that only its author can understand by one that says what
    happened."""
    if getattr(result, "is_error", False) is not True:
        return result
    blocks = list(getattr(result, "content", ()))
    changed = False
    for index, block in enumerate(blocks):
        text = getattr(block, "text", None)
        if isinstance(text, str) and _AWAITED.search(text):
            public_text = (
                f"the tool failed inside {server}, because of an error in its code; its log has the details"
            )
            blocks[index] = block.model_copy(update={"text": public_text})
            changed = True
    return result.model_copy(update={"content": blocks}) if changed else result
