"""Which logger says how much, and that none of them writes to the terminal."""

import logging
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Final, TextIO

from .log_file import LogFileHandler, Stderr
from .log_forwarder import Forwarder
from .log_path import fallback_path, log_path

# Libraries that say every request and every chunk: pinned by name, so that a root at DEBUG stays readable.
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
# These cut themselves off from the root when they are set up, some of them again and again.
_REJOINED: Final = ("fast_agent", "fastmcp", "mcp", "uvicorn", "uvicorn.error", "uvicorn.access")
# This one whenever one of its agents starts, also long after our own start.
_RECUT: Final = "fast_agent"
_OURS: Final = ("pallas", "pallas_tui")
_LEVELS: Final = {"WARN": "WARNING", "FATAL": "CRITICAL", "PROGRESS": "INFO", "TRACE": "DEBUG"}

_logger = logging.getLogger("pallas.log")


@dataclass(slots=True)
class _State:
    """What is installed, and what the caller last asked for."""

    file: LogFileHandler | Forwarder | None = None
    wanted: Path | None = None
    stderr: Stderr | None = None
    level: str | None = None
    path: Path | None = None
    to_stderr: bool | None = None
    last_resort: logging.Handler | None = None
    raised: bool = True
    told: set[str] = field(default_factory=set)


_state = _State()
_lock = RLock()


def setup_logging(level: str | None = None, *, path: Path | None = None, stderr: bool | None = None) -> Path:
    """Send every log record to the JSON file and nothing to the terminal; returns the file's path.

    ``level`` is the project's ``logger.level``; ``PALLAS_LOG_LEVEL`` goes before it, INFO is the default.
    ``path`` and ``stderr`` go before ``PALLAS_LOG_FILE`` and ``PALLAS_LOG_STDERR``. What is None stays as
    an earlier call set it. Call it again whenever a library may have set up its own logging: each handler
    is there exactly once afterwards (SPEC PR-29, PR-33 to PR-35).

    A folder that cannot be used is replaced by a temporary one with one warning. Never raises for that.
    """
    with _lock:
        _state.level = level if level is not None else _state.level
        _state.path = path.expanduser().absolute() if path is not None else _state.path
        _state.to_stderr = stderr if stderr is not None else _state.to_stderr
        first = _state.file is None
        trouble = _open_file(_state.path or log_path())
        _open_stderr(_flag("PALLAS_LOG_STDERR") if _state.to_stderr is None else _state.to_stderr)
        doubtful = _set_levels()
        _silence_terminal()
        _attach(first)
        for warning in (trouble, *doubtful):
            if warning and warning not in _state.told:
                _state.told.add(warning)
                _logger.warning(warning)
        assert _state.file is not None
        return _state.file.path


def forward_logging(handler: Forwarder, level: str | None = None) -> None:
    """Send every log record to ``handler`` and nothing anywhere else; for a process that has no log.

    ``level`` as for ``setup_logging``. For once in a process, before anything else is set up.
    """
    with _lock:
        _state.last_resort, _state.raised = logging.lastResort, logging.raiseExceptions
        _state.file, _state.wanted = handler, handler.path
        setup_logging(level, path=handler.path, stderr=False)


def reapply_logging() -> None:
    """Put everything back as ``setup_logging`` left it, where someone else has set up logging since.

    Levels, pins and handlers; nothing when logging was never set up.
    """
    with _lock:
        if _state.file is not None:
            setup_logging()


def relevel_logging(level: str | None) -> None:
    """From now on the project's ``logger.level`` is this one, None for the default.

    ``PALLAS_LOG_LEVEL`` goes before it. Nothing when logging was never set up.
    """
    with _lock:
        if _state.file is not None:
            _state.level = level
            setup_logging()


def reopen_logging() -> Path:
    """Open the file anew, for who has moved it away (logrotate); returns where the log goes now.

    A log that had to go elsewhere comes back where the file that was wanted can be written again.
    """
    with _lock:
        _state.wanted = None
        return setup_logging()


@dataclass(frozen=True, slots=True)
class LogState:
    """How the log is: where it goes and where it should, records lost so far, why the last was, if it was."""

    path: Path
    wanted: Path
    lost: int = 0
    trouble: str = ""


def log_state() -> LogState | None:
    """How the log is now; None when this process has no file of its own. Safe from any thread."""
    file, wanted = _state.file, _state.wanted
    if not isinstance(file, LogFileHandler):
        return None
    return LogState(file.path, wanted or file.path, file.failed, file.trouble)


def is_on_stderr() -> bool:
    """Whether every record is on the error stream as well."""
    return _state.stderr is not None


def close_logging(*, for_good: bool = False) -> None:
    """Take our handlers out again and close the file. Every record is on disk already.

    ``for_good`` is for a process that is about to end: what its threads still log goes nowhere then.
    """
    global _state
    with _lock:
        for handler in (_state.file, _state.stderr):
            if handler is not None:
                logging.getLogger().removeHandler(handler)
                handler.close()
        if _state.file is not None:
            # A thread that still logs while the process ends must not do so on the terminal.
            logging.lastResort = logging.NullHandler() if for_good else _state.last_resort
            logging.raiseExceptions = not for_good and _state.raised
            logging.captureWarnings(False)
            logging.getLogger(_RECUT).removeFilter(_rejoin)
        _state = _State()


def _open_file(wanted: Path) -> str:
    """Open the file unless it is open; returns a warning when another one had to be taken."""
    if _state.file is not None and wanted == _state.wanted:
        return ""
    warning = ""
    try:
        opened = LogFileHandler(wanted)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        try:
            opened = LogFileHandler(fallback_path())
        except OSError:  # no temporary folder either: the log is lost, the program is not
            opened = LogFileHandler(Path(os.devnull))
        warning = (
            f"cannot write the log to {wanted} ({reason}); writing to {opened.path}."
            " Set PALLAS_LOG_FILE to another file"
        )
    if _state.file is not None:
        logging.getLogger().removeHandler(_state.file)
        _state.file.close()
    _state.file, _state.wanted = opened, wanted
    return warning


def _open_stderr(on: bool) -> None:
    if on and _state.stderr is None and sys.__stderr__ is not None:
        _state.stderr = Stderr()
    elif not on and _state.stderr is not None:
        logging.getLogger().removeHandler(_state.stderr)
        _state.stderr = None


def _set_levels() -> list[str]:
    """Set the levels; returns one warning for each name that is no level."""
    level, unknown = _level(os.environ.get("PALLAS_LOG_LEVEL") or _state.level, logging.INFO)
    root, unknown_root = _level(os.environ.get("PALLAS_ROOT_LOG_LEVEL"), max(level, logging.INFO))
    for name in _OURS:
        logging.getLogger(name).setLevel(level)
    for name in PINNED:
        logging.getLogger(name).setLevel(logging.WARNING)
    # Its debug records hold whole conversations, with what tools returned.
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
    """The number of a level's name, and the name again when there is no such level."""
    if name is None or not name.strip():
        return default, ""
    known = logging.getLevelNamesMapping()
    upper = name.strip().upper()
    upper = _LEVELS.get(upper, upper)
    return (known[upper], "") if upper in known else (default, name.strip()[:40])


def _silence_terminal() -> None:
    """Remove every handler of others that would write to the terminal, whoever added it."""
    known = list(logging.Logger.manager.loggerDict.values())
    for logger in (logging.getLogger(), *(each for each in known if isinstance(each, logging.Logger))):
        _undraw(logger)
    for name in _REJOINED:
        logging.getLogger(name).propagate = True
    # A filter survives what fast-agent does to its logger; handlers do not.
    logging.getLogger(_RECUT).addFilter(_rejoin)


def _undraw(logger: logging.Logger) -> None:
    for handler in list(logger.handlers):
        if _draws(handler):
            logger.removeHandler(handler)


def _rejoin(record: logging.LogRecord) -> bool:
    """Join the logger to the root again when it was cut off since: its record then reaches the file."""
    logger = logging.getLogger(record.name)
    if not logger.propagate:
        _undraw(logger)
        logger.propagate = True
    return True


def _draws(handler: logging.Handler) -> bool:
    """Whether the handler writes where people look. Files, and what a test listens with, stay."""
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
    if first:
        _state.last_resort, _state.raised = logging.lastResort, logging.raiseExceptions
    # A logger cut off from the root and without a handler falls back to this instead of to stderr.
    logging.lastResort = _state.file
    # A foreign handler that fails would print its own traceback.
    logging.raiseExceptions = False
    logging.captureWarnings(True)


def _flag(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")
