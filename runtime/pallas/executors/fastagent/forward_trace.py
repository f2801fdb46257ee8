"""Failures of calls to a downstream: the traceback goes to the log, a short text to the model.

fast-agent turns every exception of a dispatch into a tool result with the exception's text and drops its
traceback. This module logs it where it arises, under ``pallas.forward.trace`` (SPEC PR-32).
"""

import logging
import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from fast_agent.mcp.mcp_aggregator import MCPAggregator
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED

from pallas.mcp_client.library_hooks import Hook
from pallas.mcp_client.stdio_seam import was_ended
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

from .aggregator_seam import EXECUTE, EXECUTE_PARAMETERS, connection_of
from .log_seam import is_logged, note_logged
from .stderr_seam import reader_of

log = logging.getLogger("pallas.forward.trace")

# The longest error text that a model gets, in characters.
MAX_TEXT: Final = 500
# These exceptions are bugs in a program, not errors of a server: their text does not help a model.
_MISTAKES: Final = (TypeError, AttributeError, LookupError, NameError, AssertionError)
# Code awaited something that is not awaitable. Only its author can use the text.
_AWAITED: Final = re.compile(r"object '?\w+'? can't be (?:used in 'await' expression|awaited)")

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


def _dispatch(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a whole dispatch: note the server and tool, and shorten the error text for the model."""

    async def execute_on_server(
        self: Any,
        server_name: str,
        operation_type: str,
        operation_name: str,
        method_name: str,
        method_args: dict[str, Any] | None = None,
        error_factory: Callable[[str], Any] | None = None,
        progress_callback: Any = None,
    ) -> Any:
        token = _hop.set((server_name, operation_name or method_name))
        reader = reader_of(connection_of(self, server_name))
        seen = reader.count if reader is not None else 0
        short, made = None, list[str]()
        if error_factory is not None:

            def short(text: str, make: Callable[[str], Any] = error_factory) -> Any:
                made.append(text)
                return make(_short(text))

        try:
            result = await original(
                self,
                server_name,
                operation_type,
                operation_name,
                method_name,
                method_args,
                short,
                progress_callback,
            )
        except Exception as error:
            _trace(self, error)
            raise
        finally:
            _hop.reset(token)
        _structured.set(getattr(result, "structured_content", None))
        if getattr(result, "is_error", False) is True:
            said = "\n".join(str(getattr(block, "text", "")) for block in getattr(result, "content", ()))
            if reader is not None:
                _exception.set(reader.exception_since(seen, said))
            if not made:
                raised = reader.take_traceback() if reader is not None else ""
                _log_answer(self, server_name, operation_name, said, raised)
        return _without_riddles(server_name, result)

    return execute_on_server


def _traced(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap one step of a dispatch, where an exception appears first."""

    async def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await original(self, *args, **kwargs)
        except Exception as error:
            _mask(error)
            _trace(self, error)
            if _closed(error):
                raise ConnectionError("the connection was closed in the middle of it") from error
            if was_ended(error):  # connect again at once, for the next calls
                raise ConnectionError(one_line(str(error), MAX_TEXT)) from error
            if isinstance(error, _MISTAKES):
                raise RuntimeError(_mistake(error)) from error  # noqa: TRY004 - it is about no value of ours
            raise

    return step


HOOKS: Final = (
    Hook(
        "trace.dispatch",
        MCPAggregator,
        EXECUTE,
        EXECUTE_PARAMETERS,
        _dispatch,
    ),
    Hook(
        "trace.connect",
        MCPAggregator,
        "_execute_initial_server_operation",
        ("self", "server_name", "try_execute"),
        _traced,
    ),
    Hook(
        "trace.reconnect",
        MCPAggregator,
        "_reconnect_and_replay_server_operation",
        ("self", "server_name", "try_execute"),
        _traced,
    ),
    Hook(
        "trace.call",
        MCPAggregator,
        "_execute_session_method",
        ("self", "client", "method_name", "method_args", "progress_callback"),
        _traced,
    ),
)


def _trace(aggregator: Any, error: Exception) -> None:
    """Log the exception once, at the first wrapper that catches it."""
    if is_logged(error):
        return
    note_logged(error)
    server, tool = (one_line(part, 80) for part in _hop.get())
    agent = one_line(str(aggregator.agent_name or ""), 80)
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


def _log_answer(aggregator: Any, server: str, tool: str, said: str, raised: str) -> None:
    """Log a call that the server answered with an error, with the traceback that it ``raised`` itself."""
    agent = one_line(str(aggregator.agent_name or ""), 80)
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
    """Return whether the other end closed the connection. fast-agent reconnects only for a
    ConnectionError."""
    if not isinstance(error, MCPError):
        return False
    return error.code == CONNECTION_CLOSED and error.message == "Connection closed"


def _mistake(error: Exception) -> str:
    return "it failed inside; the log has the details under pallas.forward.trace"


def _short(text: str) -> str:
    """Return at most ``MAX_TEXT`` characters in one line, with secrets masked."""
    return one_line(redact_text(_AWAITED.sub("an internal error", text)), MAX_TEXT)


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
                f"the tool failed inside {server}, by a mistake in its own code; its log has the details"
            )
            blocks[index] = block.model_copy(update={"text": public_text})
            changed = True
    return result.model_copy(update={"content": blocks}) if changed else result
