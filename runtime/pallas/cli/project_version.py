"""Another version of a project: a copy of a revision of git, or of a folder."""

import io
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pallas.config.files import is_there
from pallas.safe_text import one_line

from .resources.fleet_requests import Wrong

_GIT_S: Final = 60.0
_UNTRACKED: Final = (".env", "fastagent.secrets.yaml")
"""Files of a project that are in no revision, and that its agents need."""
_NOT_COPIED: Final = (".git", ".venv", "__pycache__")
_MAX_SHOWN: Final = 60


def copied_version(root: Path, version: str, target: Path, how: str) -> Path:
    """Copy a version of the project at ``root`` to ``target``, and return that.

    ``how`` is the option that names it, for messages. Raises Wrong, OSError.
    """
    folder = Path(version)
    if is_there(folder / "agents.yaml"):
        shutil.copytree(folder, target, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        return target
    if version.startswith("-"):
        raise Wrong(f"{how} {one_line(version, _MAX_SHOWN)}: name a revision of git, or a folder")
    _check_out(root, version, target, how)
    for name in _UNTRACKED:
        if (root / name).is_file() and not (target / name).exists():
            shutil.copy(root / name, target / name)
    return target


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """In this block SIGTERM leaves no copy of the project, whose files may hold secrets."""

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_out(root: Path, revision: str, target: Path, how: str) -> None:
    shown = f"{how} {one_line(revision, _MAX_SHOWN)}"
    try:
        prefix = _git(root, "rev-parse", "--show-prefix").decode().strip()
        top = Path(_git(root, "rev-parse", "--show-toplevel").decode().strip())
        archive = _git(top, "archive", "--format=tar", f"{revision}:{prefix}" if prefix else revision)
    except FileNotFoundError:
        raise Wrong(f"{shown}: git is not installed; name a folder") from None
    except subprocess.TimeoutExpired:
        raise Wrong(f"{shown}: git did not answer in {_GIT_S:.0f} s; name a folder") from None
    except subprocess.CalledProcessError as error:
        why = one_line(error.stderr.decode("utf-8", "replace"), 200)
        raise Wrong(f"{shown}: no folder of a project, and no revision: {why}") from None
    target.mkdir()
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as files:
            files.extractall(target, filter="data")
    except tarfile.TarError as error:
        raise Wrong(f"{shown} cannot be unpacked: {one_line(str(error), 200)}") from None
    if not (target / "agents.yaml").exists():
        raise Wrong(f"{shown}: there is no agents.yaml in it")


def _git(root: Path, *arguments: str) -> bytes:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, check=True, timeout=_GIT_S).stdout
