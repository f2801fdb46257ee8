"""The location of the log file."""

import os
import tempfile
from pathlib import Path

from platformdirs.unix import Unix


def log_path() -> Path:
    """The absolute path of the log file: ``PALLAS_LOG_FILE``, else ``~/.local/state/pallas/pallas.log``.

    ``XDG_STATE_HOME`` moves the default (PR-35). Nothing is created.
    """
    if chosen := os.environ.get("PALLAS_LOG_FILE", "").strip():
        return Path(chosen).expanduser().absolute()
    folder = Unix("pallas", appauthor=False).user_state_path
    # Without HOME and an entry in the user database "~" is not expanded: do not create such a folder.
    return (folder if folder.is_absolute() else _temporary()) / "pallas.log"


def fallback_path() -> Path:
    """A log file in a temporary folder of this user, for when ``log_path`` cannot be used."""
    folder = _temporary()
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.lstat()
    if folder.is_symlink() or state.st_uid != os.getuid() or state.st_mode & 0o077:
        folder = Path(tempfile.mkdtemp(prefix="pallas-"))  # another user owns that name
    return folder / "pallas.log"


def _temporary() -> Path:
    return Path(tempfile.gettempdir()).absolute() / f"pallas-{os.getuid()}"
