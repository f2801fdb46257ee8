"""A PostgreSQL server for a moment, where its programs are installed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import quote

DEADLINE = 60.0


@contextmanager
def server() -> Iterator[str]:
    """The URL of a database of its own; empty where PostgreSQL is not installed."""
    programs = _programs()
    if not programs:
        yield ""
        return
    # It refuses to run as root.
    user, group = ("nobody", "nogroup") if os.getuid() == 0 else (None, None)
    with tempfile.TemporaryDirectory(prefix="pallas-pg-") as folder:
        data = Path(folder) / "data"
        data.mkdir(mode=0o700)
        if user is not None and group is not None:
            shutil.chown(folder, user, group)
            shutil.chown(data, user, group)
        environment = {**os.environ, "LC_ALL": "C", "HOME": folder}
        subprocess.run(
            [programs["initdb"], "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=folder,
            env=environment,
            user=user,
            group=group,
        )
        running = subprocess.Popen(
            [programs["postgres"], "-D", data, "-k", folder, "-c", "listen_addresses="],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            start_new_session=True,
            user=user,
            group=group,
        )
        try:
            _create(programs["createdb"], folder)
            yield f"postgresql://bench@/bench?host={quote(folder, safe='')}"
        finally:
            running.terminate()
            with suppress(subprocess.TimeoutExpired):
                running.wait(20)
            running.kill()
            running.wait()


def _create(createdb: str, folder: str) -> None:
    deadline = monotonic() + DEADLINE
    while subprocess.run([createdb, "-h", folder, "-U", "bench", "bench"], capture_output=True).returncode:
        if monotonic() > deadline:
            raise SystemExit("PostgreSQL did not start")
        sleep(0.1)


def _programs() -> dict[str, str]:
    """The server's programs by name; empty where there are none. They stand beside one another."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        programs = {name: folder / name for name in ("initdb", "postgres", "createdb")}
        if all(each.is_file() for each in programs.values()):
            return {name: str(each) for name, each in programs.items()}
    return {}
