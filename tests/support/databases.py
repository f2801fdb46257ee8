"""Databases for tests of what lasts: an SQLite file, and a PostgreSQL server of this process's own."""

import os
import pwd
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import asyncpg
import pytest

from pallas.ledger import Ledger, open_ledger
from pallas.ledger.postgres import PostgresDatabase
from pallas.ledger.schema import bring_up_to_date

from .own_folders import own_folder

KINDS = ("sqlite", "postgresql")
SQLITE_FIRST = (KINDS[0], pytest.param(KINDS[1], marks=pytest.mark.slow))
"""For tests of what both kinds do alike: PostgreSQL runs with ``make test-slow``."""
_USER = "pallas"
_TEMPLATE = "made"
_SETTINGS = (
    "listen_addresses=",
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "shared_buffers=32MB",
    "max_connections=100",
    "jit=off",
    "autovacuum=off",
)


def programs() -> Path | None:
    """The folder of PostgreSQL's programs: Debian keeps them out of the path."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]), reverse=True
    )
    initdb = found[0] if found else Path(shutil.which("initdb") or "")
    return initdb.parent if initdb.name else None


class Server:
    """A PostgreSQL server that listens on a socket in a folder of its own and keeps nothing."""

    def __init__(self, bin: Path) -> None:  # noqa: A002 - as the folder is called
        self._bin = bin
        self.folder = own_folder("pg")
        # It refuses root.
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres" if _is_user("postgres") else "nobody")
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        self._runs = False
        self._has_template = False

    def url(self, database: str = "postgres") -> str:
        """Where a database of it is."""
        return f"postgresql://{_USER}@/{database}?host={quote(str(self.folder), safe='')}"

    def start(self) -> None:
        """Make it, or start it again; returns when it answers."""
        data = self.folder / "data"
        if not data.exists():
            made = ("-D", data, "-A", "trust", "-U", _USER, "--no-sync", "--no-instructions", "-E", "UTF8")
            self._run("initdb", *made, "--locale=C.UTF-8")
        settings = " ".join(f"-c {setting}" for setting in _SETTINGS)
        options = ("-D", data, "-l", self.folder / "log", "-w", "-t", "60")
        # No child of this process: tests count those.
        self._run("pg_ctl", *options, "-o", f"-k {self.folder} {settings}", "start")
        self._end_with_us(data)
        self._runs = True

    async def template(self) -> str:
        """The name of a database with Pallas's tables and nothing in them, which others are copied from."""
        if not self._has_template:
            async with _created(self, _TEMPLATE, keep=True) as url:
                database = await PostgresDatabase.open(url, _TEMPLATE)
                await database.write(lambda connection: bring_up_to_date(connection, _TEMPLATE))
                await database.close()
            self._has_template = True
        return _TEMPLATE

    @property
    def pid(self) -> int:
        """That of the process that listens."""
        return int((self.folder / "data" / "postmaster.pid").read_text("utf-8").split()[0])

    def stop(self) -> None:
        """Everybody is thrown out; what was kept stays for ``start``."""
        if self._runs:
            self._runs = False
            self._run("pg_ctl", "-D", self.folder / "data", "-m", "fast", "-w", "-t", "60", "stop")

    def _end_with_us(self, data: Path) -> None:
        """Where this process dies at once, the server does within two seconds."""
        stop = f"{self._bin}/pg_ctl -D {data} -m immediate stop"
        watch = f"while [ -d /proc/{os.getpid()} ] && [ -e {data}/postmaster.pid ]; do sleep 2; done; {stop}"
        command = ["sh", "-c", f"({watch}) </dev/null >/dev/null 2>&1 &"]
        subprocess.run(command, check=True, cwd=self.folder, start_new_session=True, **self._as)

    def start_as_standby(self) -> None:
        """Start it again, as the standby of a primary that is gone: it can be read only."""
        (self.folder / "data" / "standby.signal").touch()
        self.start()

    def promote(self) -> None:
        """Make a standby the primary."""
        self._run("pg_ctl", "-D", self.folder / "data", "-w", "-t", "60", "promote")

    def close(self) -> None:
        """Nothing of it is left."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _ask(self, program: str, *arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [self._bin / program, *arguments], capture_output=True, timeout=120, cwd=self.folder, **self._as
        )

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = self._ask(program, *arguments)
        assert done.returncode == 0, done.stderr.decode()


def _is_user(name: str) -> bool:
    return any(each.pw_name == name for each in pwd.getpwall())


def new_server() -> Server:
    """A server that runs; whoever asked closes it. Skips the test where PostgreSQL is not installed."""
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    server = Server(found)
    try:
        server.start()
    except BaseException:
        server.close()
        raise
    return server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server of this process."""
    server = new_server()
    yield server
    server.close()


@asynccontextmanager
async def fresh_database(server: Server, *, is_empty: bool = False) -> AsyncIterator[str]:
    """The URL of a new database, which goes again. It has Pallas's tables, with nothing in them.

    ``is_empty`` leaves out the tables. Making them takes a third of a second.
    """
    source = "template1" if is_empty else await server.template()
    async with _created(server, f"t{uuid4().hex[:12]}", source=source) as url:
        yield url


@asynccontextmanager
async def _created(
    server: Server, name: str, *, source: str = "template1", keep: bool = False
) -> AsyncIterator[str]:
    connection = await asyncpg.connect(server.url())
    try:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {source}")
        yield server.url(name)
        if not keep:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()


@asynccontextmanager
async def _database_of(
    request: pytest.FixtureRequest, folder: Path, *, is_empty: bool = False
) -> AsyncIterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{folder}/ledger.sqlite3"
    else:
        async with fresh_database(request.getfixturevalue("postgres"), is_empty=is_empty) as url:
            yield url


@pytest.fixture(params=SQLITE_FIRST)
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """A database without rows, on SQLite; with ``make test-slow`` on PostgreSQL, too."""
    async with _database_of(request, tmp_path) as url:
        yield url


@pytest.fixture(params=SQLITE_FIRST)
async def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The same without tables, for tests of how those are made."""
    async with _database_of(request, tmp_path, is_empty=True) as url:
        yield url


@pytest.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    """A ledger in a database of its own."""
    opened = await open_ledger(database_url)
    yield opened
    await opened.close()
