"""The files of an isolated handler as its fleet sees them: a scratch folder, and what it is kept from."""

import os
import shutil
import tempfile
from pathlib import Path

from platformdirs.unix import Unix

from pallas.config import Project
from pallas.ledger.address import address_of, database_url_of
from pallas.model import Fault
from pallas.telemetry.log.place import log_path


def scratch_folder(old: Path | None) -> Path:
    """A new folder for one process, which begins in it and has its temporary files there. Raises OSError."""
    drop_folder(old)
    return Path(tempfile.mkdtemp(prefix="pallas-handler-"))


def drop_folder(folder: Path | None) -> None:
    """Remove it with all in it, as far as that can be done."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def hidden_from(project: Project) -> tuple[str, ...]:
    """What this user's fleets keep beside the project: their state, settings, log and database."""
    folders = Unix("pallas", appauthor=False)
    log = log_path()
    older = (log.with_name(f"{log.name}.{number}") for number in range(1, 10))
    found = [folders.user_state_path, folders.user_config_path, log, *older]
    try:
        database = address_of(database_url_of(project, os.environ)).path
    except Fault:
        database = None
    if database is not None:
        found += [database, *(database.with_name(database.name + end) for end in ("-wal", "-shm"))]
    return tuple(str(each) for each in found if each.is_absolute())
