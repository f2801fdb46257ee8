"""The log: one JSON file, rotated and redacted; nothing goes to the terminal. See ``docs/logging.md``.

``log_setup`` installs the handlers and levels, ``log_file`` writes and rotates the file, ``json_lines``
formats a record, ``repeats`` counts warnings that repeat, ``log_path`` finds the file. ``printed_lines`` logs
what agents' code and servers print. ``log_forwarder`` passes records of a child process to its
parent's log, ``project_secrets`` gives a project's secrets to the redaction.
"""

from pallas.telemetry.log.project_secrets import redact_project

from .log_forwarder import Forwarder, replay
from .log_path import log_path
from .log_setup import (
    LogState,
    close_logging,
    forward_logging,
    is_on_stderr,
    log_state,
    reapply_logging,
    relevel_logging,
    reopen_logging,
    setup_logging,
)

__all__ = [
    "Forwarder",
    "LogState",
    "close_logging",
    "forward_logging",
    "is_on_stderr",
    "log_path",
    "log_state",
    "reapply_logging",
    "redact_project",
    "relevel_logging",
    "reopen_logging",
    "replay",
    "setup_logging",
]
