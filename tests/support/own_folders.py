"""Folders outside of pytest's own: their names have the number of the process that made them.

One that was killed leaves its folder behind. The next run removes it.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

import psutil

_NAME: Final = re.compile(r"pallas-(?:alone|pg|forks|looks)-(\d+)-\w+")
"""Those of ``tools/suite_run.py``, ``databases``, ``fork_server`` and pytest-textual-snapshot."""


def own_folder(kind: str) -> Path:
    """Make a folder of that kind for this process, which removes it."""
    return Path(tempfile.mkdtemp(prefix=f"pallas-{kind}-{os.getpid()}-"))


def remove_abandoned() -> None:
    """Remove the folders of processes that no longer run."""
    for folder in Path(tempfile.gettempdir()).glob("pallas-*"):
        named = _NAME.fullmatch(folder.name)
        if named and not psutil.pid_exists(int(named[1])):
            shutil.rmtree(folder, ignore_errors=True)
