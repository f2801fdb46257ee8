"""The log: one JSON file, rotated, redacted, and nothing on the terminal. See ``docs/logging.md``."""

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
