"""A PostgreSQL server of one's own, which keeps what it commits and can be restarted."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, Literal
from urllib.parse import quote

_SETTINGS: Final = "-c fsync=on -c synchronous_commit=on -c max_connections=120 -c wal_keep_size=256MB"
KILL_SECONDS: Final = 20.0


class PostgresServer:
    """Listens on a socket in a folder of its own. ``close`` removes it.

    With a ``port`` it listens on 127.0.0.1 too. With a ``password`` its user must send that. With a
    ``primary`` it is its standby. ``settings`` are more of PostgreSQL's, by their names.
    """

    def __init__(
        self,
        *,
        user: str = "chaos",
        password: str = "",
        port: int = 0,
        primary: "PostgresServer | None" = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._programs = _programs()
        self._name, self.port, self.settings = user, port, settings or {}
        self.folder = Path(tempfile.mkdtemp(prefix="pallas-postgres-"))
        # It refuses to run as root.
        self._user: dict[str, Any] = {}
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres" if _is_user("postgres") else "nobody")
            self._user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        self._data = self.folder / "data"
        if primary is None:
            self._make(password)
        else:
            copied = ("-D", self._data, "-R", "-X", "stream", "-c", "fast", "-d", primary.url())
            self._run("pg_basebackup", *copied)
        self.start()

    def _make(self, password: str) -> None:
        made: list[str | Path] = ["-D", self._data, "-U", self._name, "--no-instructions", "-E", "UTF8"]
        made.append("--locale=C.UTF-8")
        if password:
            (self.folder / "password").write_text(password)
            made += ["-A", "scram-sha-256", "--pwfile", self.folder / "password"]
        else:
            made += ["-A", "trust"]
        self._run("initdb", *made)

    def url(self, user: str = "") -> str:
        """The database ``postgres`` at the socket, for that user or the one it was made with."""
        port = f"&port={self.port}" if self.port else ""
        return f"postgresql://{user or self._name}@/postgres?host={quote(str(self.folder), safe='')}{port}"

    def start(self, *, is_alone: bool = False) -> None:
        """Returns when it answers. ``is_alone``: at its socket only, and without its settings."""
        listens = "-c listen_addresses=" if is_alone or not self.port else "-c listen_addresses=127.0.0.1"
        if self.port:
            listens += f" -c port={self.port}"
        more = "" if is_alone else "".join(f" -c {name}={value}" for name, value in self.settings.items())
        options = f"-k {self.folder} {listens} {_SETTINGS}{more}"
        where = ("-D", self._data, "-l", self.folder / "log", "-w", "-t", "60")
        self._run("pg_ctl", *where, "-o", options, "start")

    def stop(self, mode: Literal["fast", "immediate"]) -> None:
        """End all sessions; ``immediate`` is as if the machine had lost its power."""
        self._run("pg_ctl", "-D", self._data, "-m", mode, "-w", "-t", "60", "stop")

    def kill(self) -> None:
        """End all of its processes at once, with SIGKILL; its port is free when this returns."""
        file = self._data / "postmaster.pid"
        first = int(file.read_text().split()[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        pids = [first, *map(int, children)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until = monotonic() + KILL_SECONDS
        while any(_lives(pid) for pid in pids):
            if monotonic() > until:
                raise SystemExit(f"PostgreSQL did not end within {KILL_SECONDS:g} s")
            sleep(0.01)
        # It must not take a process for living that nobody has waited for yet.
        for left in (file, *self.folder.glob(".s.PGSQL.*")):
            left.unlink()

    def close(self) -> None:
        """Leave nothing of it."""
        if (self._data / "postmaster.pid").exists():
            try:
                self.stop("immediate")
            except SystemExit as error:
                print(error)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=120,
            cwd=self.folder,
            start_new_session=True,
            **self._user,
        )
        if done.returncode:
            log = self.folder / "log"
            end = log.read_text(errors="replace")[-1000:] if log.exists() else ""
            raise SystemExit(f"{program} failed: {done.stderr.decode()}{end}")


def _is_user(name: str) -> bool:
    return any(each.pw_name == name for each in pwd.getpwall())


def _lives(pid: int) -> bool:
    """Whether there is a process that is no zombie: the one that inherits them may be slow."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _programs() -> Path:
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "initdb").is_file():
            return folder
    raise SystemExit("PostgreSQL is not installed; as root: make system-packages")
