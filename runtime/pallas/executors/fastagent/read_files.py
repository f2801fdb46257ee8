"""Records which files of a project are read while an agent is made."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from threading import Thread
from typing import Any, Final
from weakref import WeakSet

from pallas.config import Project

# The limit of files recorded for one version of an agent.
MAX_FILES: Final = 2_000
# Folders without files of a project's author.
_NOT_OURS: Final = frozenset({"__pycache__", "site-packages", ".venv", "venv", "node_modules", ".git"})
_THREAD: Final = frozenset({"_thread.start_new_thread", "_thread.start_joinable_thread"})
_WRITING: Final = os.O_WRONLY | os.O_RDWR
_NAMES: Final = ("fast-agent.yaml", "fast-agent.config.yaml", "fastagent.config.yaml")
_SECRETS: Final = ("fast-agent.secrets.yaml", "fastagent.secrets.yaml", ".env")


class Reads:
    """Collects the files below a project's folder that are opened for reading while it listens.

    Includes files that were looked for in vain. Excludes the project's own configuration, whose changes are
    tracked separately.
    """

    def __init__(self, project: Project) -> None:
        self._root = f"{project.root}{os.sep}"
        self._kept = f"{self._root}.fast-agent{os.sep}sessions{os.sep}"
        self._depth = len(project.root.parts)
        own = (project.agents_file, project.organism_file, project.config_file)
        self._never = {str(path) for path in own if path is not None} | {
            str(project.root / name) for name in (*_NAMES, *_SECRETS)
        }
        self._found: dict[str, None] = {}
        self._threads: WeakSet[Thread] = WeakSet()
        self._is_finished = False

    @property
    def files(self) -> frozenset[Path]:
        """The files so far, absolute."""
        return frozenset(map(Path, self._found))

    def add(self, *paths: Path) -> None:
        """Add files that were not opened now."""
        for path in paths:
            self._note(str(path))

    def finish(self) -> None:
        """Stop collecting, even if code still runs."""
        self._is_finished = True

    def file_opened(self, path: object, mode: object, flags: object) -> None:
        """Record a file that is about to be opened. Never raises: that would fail the opener."""
        if self._is_finished:
            return
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str) and _reading(mode, flags):
            self._note(os.path.abspath(path))  # noqa: PTH100 - asks nobody, where resolve() looks at files

    def started(self, thread: object) -> None:
        """Record a thread that is about to be started. Never raises."""
        if isinstance(thread, Thread) and not self._is_finished:
            self._threads.add(thread)

    @property
    def threads(self) -> tuple[str, ...]:
        """Return the names of the started threads that still run."""
        return tuple(sorted(thread.name for thread in list(self._threads) if thread.is_alive()))

    def _note(self, path: str) -> None:
        if (
            path.startswith(self._root)
            and path not in self._never
            and path not in self._found
            and len(self._found) < MAX_FILES
            and _NOT_OURS.isdisjoint(Path(path).parts[self._depth :])
            and not path.startswith(self._kept)
            and not path.endswith(".pyc")
        ):
            self._found[path] = None


def _reading(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return "r" in mode and "+" not in mode
    return not (isinstance(flags, int) and flags & _WRITING)


_listening: Final[ContextVar[Reads | None]] = ContextVar("pallas_reads", default=None)
_installed: Final[list[bool]] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    # Called for every audited event of the process, for ever: the first comparison nearly always decides.
    if event == "open":
        if (reads := _listening.get(None)) is not None:
            reads.file_opened(*arguments)
    elif event in _THREAD and (reads := _listening.get(None)) is not None:
        reads.started(getattr(arguments[0], "__self__", None))


@contextmanager
def unnoted() -> Iterator[None]:
    """Record none of the files that this block opens."""
    token = _listening.set(None)
    try:
        yield
    finally:
        _listening.reset(token)


@contextmanager
def noting(reads: Reads) -> Iterator[None]:
    """Record the files that this block, and the tasks begun in it, open in ``reads``."""
    if not _installed:  # an audit hook cannot be removed
        _installed.append(True)
        sys.addaudithook(_hear)
    token = _listening.set(reads)
    try:
        yield
    finally:
        _listening.reset(token)
