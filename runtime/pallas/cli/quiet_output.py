"""Keeps what agents' code and their programs print out of the output of a command."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pallas.config import Project


@contextmanager
def quietly(project: "Project") -> Iterator[None]:
    """In this block only the log gets what a fleet of the project in this process says."""
    from pallas.telemetry.log import close_logging, redact_project, setup_logging

    setup_logging(project.log_level, stderr=False)
    redact_project(project)
    silence = Silence()
    try:
        yield
    finally:
        silence.end()
        close_logging()


class Silence:
    """Keeps the output of agents' code and their programs away from stdout and stderr, until ``end``."""

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        self._saved = [(number, os.dup(number)) for number in (1, 2) if _is_open(number)]
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number, _ in self._saved:
            os.dup2(nowhere, number)
        os.close(nowhere)

    def end(self) -> None:
        """Restore both descriptors."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        for number, saved in self._saved:
            os.dup2(saved, number)
            os.close(saved)
        self._saved.clear()


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
