"""Keeps what agents' code and their programs print out of the output of a command."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from threading import Thread
from typing import TYPE_CHECKING, Final, TextIO

_LINE: Final = 16_384
"""Bytes of a line; a longer one is heard in pieces."""
_LAST_LINES_S: Final = 2.0

if TYPE_CHECKING:
    from pallas.config import Project


@contextmanager
def quietly(project: "Project") -> Iterator[None]:
    """In this block only the log gets what a fleet of the project in this process says."""
    from pallas.telemetry.log import close_logging, redact_project, setup_logging
    from pallas.telemetry.log.printed_lines import logging_prints

    setup_logging(project.log_level, stderr=False, project=project.root)
    redact_project(project)
    silence = Silence()
    try:
        with logging_prints():
            yield
    finally:
        silence.end()
        close_logging()


@contextmanager
def own_output() -> Iterator[TextIO]:
    """Standard output as it is now, which ``quietly`` does not close: a line is there once it is printed."""
    try:
        descriptor = os.dup(sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        yield sys.stdout
        return
    with os.fdopen(
        descriptor, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, buffering=1
    ) as output:
        sys.stdout.flush()
        yield output


class Silence:
    """Keeps the output of agents' code and their programs away from stdout and stderr, until ``end``.

    ``heard`` gets each line of it, in a thread of its own; without it they are dropped.
    """

    def __init__(self, heard: Callable[[str], None] | None = None) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        self._saved = [(number, os.dup(number)) for number in (1, 2) if _is_open(number)]
        self._reader: Thread | None = None
        if heard is None:
            sink = os.open(os.devnull, os.O_WRONLY)
        else:
            source, sink = os.pipe()
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, TextIOWrapper):
                    stream.reconfigure(
                        line_buffering=True
                    )  # else a line is heard when many more were printed
            self._reader = Thread(target=_hear, args=(source, heard), name="printed lines", daemon=True)
            self._reader.start()
        for number, _ in self._saved:
            os.dup2(sink, number)
        os.close(sink)

    def end(self) -> None:
        """Restore both descriptors."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        for number, saved in self._saved:
            os.dup2(saved, number)
            os.close(saved)
        self._saved.clear()
        if self._reader is not None:  # a program that was left behind may hold the pipe
            self._reader.join(_LAST_LINES_S)


def _hear(source: int, heard: Callable[[str], None]) -> None:
    with open(source, "rb") as lines:
        while line := lines.readline(_LINE):
            with suppress(Exception):
                heard(line.decode("utf-8", "replace").rstrip("\r\n"))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
