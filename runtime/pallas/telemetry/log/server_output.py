"""The output of the project's servers apart from their answers: its records, and whether it is logged."""

import os
from typing import Final

from pallas.telemetry.trace_context import current_agent

from .printed_lines import OutputLog

VARIABLE: Final = "PALLAS_SERVER_STDERR"
"""The environment variable that turns it on with ``1``; `pallas dev` does so unless it is set."""


def is_logged() -> bool:
    """Whether the output of stdio downstreams is logged."""
    return os.environ.get(VARIABLE) == "1"


def log_by_default() -> None:
    """Log it, in this process and those that it starts, unless the user chose otherwise."""
    os.environ.setdefault(VARIABLE, "1")


def server_lines(server: str, source: str) -> OutputLog:
    """Return the log of what one server writes; its records have the fields ``server`` and ``source``.

    They have ``agent`` if this is called for one.
    """
    agent = {"agent": current_agent()} if current_agent() else {}
    return OutputLog(f"pallas.servers.{server}", {"server": server, "source": source, **agent})
