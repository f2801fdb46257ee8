"""The output of the project's servers beside their answers: its records, and whether it is logged."""

import logging
import os
from typing import Final

VARIABLE: Final = "PALLAS_SERVER_STDERR"
"""The environment variable that turns it on with ``1``; `pallas dev` does so unless it is set."""


def is_logged() -> bool:
    """Whether the output of stdio downstreams is logged."""
    return os.environ.get(VARIABLE) == "1"


def log_by_default() -> None:
    """Log it, in this process and those that it starts, unless the user chose otherwise."""
    os.environ.setdefault(VARIABLE, "1")


def server_log(server: str, source: str) -> "logging.LoggerAdapter[logging.Logger]":
    """Return the log of one server; its records have the fields ``server`` and ``source``."""
    logger = logging.getLogger(f"pallas.servers.{server}")
    return logging.LoggerAdapter(logger, {"server": server, "source": source})
