"""``command:`` of a program: one text as a shell would split it, or a list of words."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

from pydantic import Discriminator, Tag

from .field_types import Word, split
from .section import Section

_Words = Annotated[tuple[Word, ...], Tag("list")]
Command = Annotated[Annotated[str, Tag("text")] | _Words, Discriminator(split)]
"""One text as a shell would split it, or a list of words."""


def command_of(section: Section, given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """The words of ``command``; empty after a mistake was noted, and where the key is absent."""
    if given is None:
        return ()
    try:
        words = tuple(shlex.split(given)) if isinstance(given, str) else given
    except ValueError as error:
        section.error("command", f"cannot be split into words: {error}", "close the quote, or write a list")
        return ()
    if not words or not words[0]:
        section.error("command", "is empty", "write the program and its arguments")
        return ()
    return words


def program_problem(command: tuple[str, ...], cwd: Path, path: str | None = None) -> str:
    """Why the program of a command cannot be started from ``cwd``, in a line; empty when it can.

    ``path`` is the ``PATH`` it is looked for in, None for that of this process. It is not run.
    """
    program = command[0]
    if "/" in program:
        return "" if shutil.which(str(cwd / program)) else f"there is no program {program} that may be run"
    # What a fleet starts finds the programs of its own environment first.
    path = os.environ.get("PATH", "") if path is None else path
    path = os.pathsep.join((str(Path(sys.executable).parent), path))
    return "" if shutil.which(program, path=path) else f"{program} is not on PATH"
