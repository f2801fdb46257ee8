"""The log: one JSON file, rotated, redacted, and nothing on the terminal. See ``docs/logging.md``."""

from .place import log_path
from .redaction import forget, redact, redact_project, redact_text
from .setup import close_logging, reapply_logging, setup_logging

__all__ = [
    "close_logging",
    "forget",
    "log_path",
    "reapply_logging",
    "redact",
    "redact_project",
    "redact_text",
    "setup_logging",
]
