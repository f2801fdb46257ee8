"""Sets up logging: the level of each logger, and no handler that writes to the terminal."""

import logging
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Final, TextIO

from .json_lines import JsonLines
from .log_file import LogFileHandler, Stderr
from .log_forwarder import Forwarder
from .log_path import fallback_path, log_path

# Libraries that log every request and chunk. Pinned to WARNING, so that a root at DEBUG stays readable.
PINNED: Final = (
    "openai",
    "openai._base_client",
    "anthropic",
    "anthropic._base_client",
    "sse_starlette",
    "sse_starlette.sse",
    "mcp",
    "mcp.client",
    "mcp.server",
    "httpx",
    "httpcore",
    # Successors of some of them.
    "httpx2",
    "httpcore2",
    "fastmcp",
    "uvicorn",
)
# These stop propagating to the root when they are set up, some of them repeatedly.
_REJOINED: Final = ("fast_agent", "fastmcp", "mcp", "uvicorn", "uvicorn.error", "uvicorn.access")
# This one does so whenever one of its agents starts, also long after our own start.
_RECUT: Final = "fast_agent"
_OURS: Final = ("pallas", "pallas_tui")
_LEVELS: Final = {"WARN": "WARNING", "FATAL": "CRITICAL", "PROGRESS": "INFO", "TRACE": "DEBUG"}

_logger = logging.getLogger("pallas.log")


@dataclass(slots=True)
class _State:
    """The installed handlers, and the arguments of the last call."""

    file: LogFileHandler | Forwarder | None = None
    requested_path: Path | None = None
    stderr: Stderr | None = None
    level: str | None = None
    path: Path | None = None
    to_stderr: bool | None = None
    project: str = ""
    last_resort: logging.Handler | None = None
    raised: bool = True
    warned: set[str] = field(default_factory=set)


_state = _State()
_lock = RLock()


def setup_logging(
    level: str | None = None,
    *,
    path: Path | None = None,
    stderr: bool | None = None,
    project: Path | None = None,
) -> Path:
    """Send every log record to the JSON file and nothing to the terminal; returns the file's path.

    ``level`` is the project's ``logger.level``; ``PALLAS_LOG_LEVEL`` overrides it, INFO is the default.
    ``path`` and ``stderr`` override ``PALLAS_LOG_FILE`` and ``PALLAS_LOG_STDERR``. ``project`` is the folder
    that each record names: several projects share the file. An argument that is None keeps its earlier value.
    Call it again whenever a library may have set up its own logging: afterwards each handler is installed
    exactly once (PR-29, PR-33 to PR-35). A folder that cannot be used is replaced by a temporary one,
    with one warning and no error.
    """
    with _lock:
        _state.level = level if level is not None else _state.level
        _state.path = path.expanduser().absolute() if path is not None else _state.path
        _state.to_stderr = stderr if stderr is not None else _state.to_stderr
        _state.project = str(project) if project is not None else _state.project
        first = _state.file is None
        trouble = _open_file(_state.path or log_path())
        _open_stderr(_flag("PALLAS_LOG_STDERR") if _state.to_stderr is None else _state.to_stderr)
        doubtful = _set_levels()
        _silence_terminal()
        _attach(first)
        for warning in (trouble, *doubtful):
            if warning and warning not in _state.warned:
                _state.warned.add(warning)
                _logger.warning(warning)
        assert _state.file is not None
        return _state.file.path


def forward_logging(handler: Forwarder, level: str | None = None) -> None:
    """Send every log record to ``handler`` and nowhere else, for a process without a log of its own.

    ``level`` as for ``setup_logging``. Call it once in a process, before any other setup.
    """
    with _lock:
        _state.last_resort, _state.raised = logging.lastResort, logging.raiseExceptions
        _state.file, _state.requested_path = handler, handler.path
        setup_logging(level, path=handler.path, stderr=False)


def reapply_logging(project: Path | None = None) -> None:
    """Restore levels and handlers after another library set up logging; does nothing before
    ``setup_logging``. ``project`` as there.
    """
    with _lock:
        if _state.file is not None:
            setup_logging(project=project)


def relevel_logging(level: str | None) -> None:
    """Set the project's ``logger.level``, None for the default.

    ``PALLAS_LOG_LEVEL`` overrides it. Does nothing before ``setup_logging``.
    """
    with _lock:
        if _state.file is not None:
            _state.level = level
            setup_logging()


def reopen_logging() -> Path:
    """Open the file again after it was moved (logrotate); returns the path in use now.

    A log that fell back to a temporary file returns to its own file if that can be written again.
    """
    with _lock:
        _state.requested_path = None
        return setup_logging()


@dataclass(frozen=True, slots=True)
class LogState:
    """The state of the log."""

    path: Path  # the file in use
    requested_path: Path  # the file it should use
    lost: int = 0  # records lost so far
    trouble: str = ""  # why the last record was lost, empty if it was not


def log_state() -> LogState | None:
    """The state of the log; None if this process has no log file. Safe from any thread."""
    file, requested_path = _state.file, _state.requested_path
    if not isinstance(file, LogFileHandler):
        return None
    return LogState(file.path, requested_path or file.path, file.failed, file.trouble)


def write_record(record: logging.LogRecord) -> None:
    """Write a record to the log itself: no other handler gets it, which might print it again."""
    for handler in (_state.file, _state.stderr):
        if handler is not None and record.levelno >= handler.level:
            handler.handle(record)


def is_on_stderr() -> bool:
    """Whether every record also goes to the error stream."""
    return _state.stderr is not None


def close_logging(*, for_good: bool = False) -> None:
    """Remove our handlers and close the file. Every record is on disk already.

    ``for_good`` is for a process that is about to end: records of its remaining threads are then dropped.
    """
    global _state
    with _lock:
        for handler in (_state.file, _state.stderr):
            if handler is not None:
                logging.getLogger().removeHandler(handler)
                handler.close()
        if _state.file is not None:
            # A thread that still logs while the process ends must not write to the terminal.
            logging.lastResort = logging.NullHandler() if for_good else _state.last_resort
            logging.raiseExceptions = not for_good and _state.raised
            logging.captureWarnings(False)
            logging.getLogger(_RECUT).removeFilter(_rejoin)
        _state = _State()


def _open_file(requested_path: Path) -> str:
    """Open the file unless it is open; returns a warning if another file had to be used."""
    if _state.file is not None and requested_path == _state.requested_path:
        return ""
    warning = ""
    try:
        opened = LogFileHandler(requested_path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        try:
            opened = LogFileHandler(fallback_path())
        except OSError:  # no temporary folder either: go on without a log
            opened = LogFileHandler(Path(os.devnull))
        warning = (
            f"cannot write the log to {requested_path} ({reason}); writing to {opened.path}."
            " Set PALLAS_LOG_FILE to another file"
        )
    if _state.file is not None:
        logging.getLogger().removeHandler(_state.file)
        _state.file.close()
    _state.file, _state.requested_path = opened, requested_path
    return warning


def _open_stderr(on: bool) -> None:
    if on and _state.stderr is None and sys.__stderr__ is not None:
        _state.stderr = Stderr()
    elif not on and _state.stderr is not None:
        logging.getLogger().removeHandler(_state.stderr)
        _state.stderr.close()
        _state.stderr = None


def _set_levels() -> list[str]:
    """Set the levels; returns one warning for each unknown level name."""
    level, unknown = _level(os.environ.get("PALLAS_LOG_LEVEL") or _state.level, logging.INFO)
    root, unknown_root = _level(os.environ.get("PALLAS_ROOT_LOG_LEVEL"), max(level, logging.INFO))
    for name in _OURS:
        logging.getLogger(name).setLevel(level)
    for name in PINNED:
        logging.getLogger(name).setLevel(logging.WARNING)
    # Its debug records contain whole conversations and tool results.
    logging.getLogger(_RECUT).setLevel(max(root, logging.INFO))
    logging.getLogger().setLevel(root)
    for handler in (_state.file, _state.stderr):
        if handler is not None:
            handler.setLevel(min(level, root))
    return [
        f"unknown log level {name!r}; using {logging.getLevelName(used).lower()}."
        " Use debug, info, warning, error or critical"
        for name, used in ((unknown, level), (unknown_root, root))
        if name
    ]


def _level(name: str | None, default: int) -> tuple[int, str]:
    """The number of a level name, and the name again if there is no such level."""
    if name is None or not name.strip():
        return default, ""
    known = logging.getLevelNamesMapping()
    upper = name.strip().upper()
    upper = _LEVELS.get(upper, upper)
    return (known[upper], "") if upper in known else (default, name.strip()[:40])


def _silence_terminal() -> None:
    """Remove every foreign handler that would write to the terminal."""
    known = list(logging.Logger.manager.loggerDict.values())
    for logger in (logging.getLogger(), *(each for each in known if isinstance(each, logging.Logger))):
        _undraw(logger)
    for name in _REJOINED:
        logging.getLogger(name).propagate = True
    # fast-agent replaces the handlers of its logger but keeps filters.
    logging.getLogger(_RECUT).addFilter(_rejoin)


def _undraw(logger: logging.Logger) -> None:
    for handler in list(logger.handlers):
        if _draws(handler):
            logger.removeHandler(handler)


def _rejoin(record: logging.LogRecord) -> bool:
    """Let the logger propagate to the root again, so that its record reaches the file."""
    logger = logging.getLogger(record.name)
    if not logger.propagate:
        _undraw(logger)
        logger.propagate = True
    return True


def _draws(handler: logging.Handler) -> bool:
    """Whether the handler writes to the terminal. Files, and handlers of tests, do not."""
    if handler is _state.stderr:
        return False
    if type(handler).__name__ == "RichHandler":
        return True
    stream: TextIO | None = getattr(handler, "stream", None)
    if stream is None or isinstance(handler, logging.FileHandler):
        return False
    if stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        return True
    try:
        return stream.fileno() in (1, 2) or stream.isatty()
    except (AttributeError, OSError, ValueError):
        return False


def _attach(first: bool) -> None:
    root = logging.getLogger()
    for handler in (_state.file, _state.stderr):
        if handler is not None and root.handlers.count(handler) != 1:
            root.removeHandler(handler)
            root.addHandler(handler)
        if handler is not None and isinstance(handler.formatter, JsonLines):
            handler.formatter.project = _state.project
    if first:
        _state.last_resort, _state.raised = logging.lastResort, logging.raiseExceptions
    # A logger that does not propagate and has no handler uses this, and not stderr.
    logging.lastResort = _state.file
    # A foreign handler that fails would print its own traceback.
    logging.raiseExceptions = False
    logging.captureWarnings(True)


def _flag(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")
