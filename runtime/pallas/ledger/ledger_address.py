"""The address of the ledger: one URL from project and environment. Imports no database library."""

import hashlib
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from platformdirs.unix import Unix

from pallas.config import Project
from pallas.config.database import MEMORY, database_url_problem, masked
from pallas.model import Fault, FaultType

VARIABLE: Final = "PALLAS_DATABASE_URL"
_LIBPQ: Final = frozenset(
    {
        "channel_binding",
        "connect_timeout",
        "gssencmode",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "sslcompression",
        "sslsni",
    }
)
_SLUG: Final = re.compile(r"[^a-z0-9]+")

__all__ = ["VARIABLE", "Address", "address_of", "database_url_of", "masked"]


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed database URL."""

    kind: Literal["sqlite", "memory", "postgresql"]
    shown: str  # the URL without its password
    path: Path | None = None  # the SQLite file, None for memory or PostgreSQL
    full: bool = False  # SQLite waits for the disk at every commit
    dsn: str = ""  # the URL for PostgreSQL's driver, with its password

    def __repr__(self) -> str:
        return f"Address({self.shown})"


def database_url_of(project: Project, environ: Mapping[str, str]) -> str:
    """The URL of a project's ledger: ``PALLAS_DATABASE_URL``, else ``database_url:`` of agents.yaml, else an
    SQLite file.

    That file is in the user's state directory. ``memory`` stores nothing durably. The file of
    ``sqlite:///FILE`` starts at the project's folder. Nothing is created. Raises Fault (CONFIG).
    """
    given = environ.get(VARIABLE, "").strip() or project.database_url
    if not given:
        return _sqlite_url(default_path(project))
    address = address_of(given, project.root)
    return _sqlite_url(address.path, full=address.full) if address.path is not None else given


def default_path(project: Project) -> Path:
    """The ledger file of a project without a setting; unique even if another project has the same name."""
    state = Unix("pallas", appauthor=False).user_state_path
    if not state.is_absolute():  # neither HOME nor an entry in the user database
        state = Path(tempfile.gettempdir()).absolute() / "pallas"
    slug = _SLUG.sub("-", project.name.lower()).strip("-")[:60] or "project"
    tag = hashlib.sha256(str(project.root).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return state / "projects" / f"{slug}-{tag}" / "ledger.sqlite3"


def address_of(url: str, base: Path | None = None) -> Address:
    """Parse a URL.

    A relative file starts at ``base``. Raises Fault (CONFIG) that does not show the password.
    """
    shown = masked(url)
    if problem := database_url_problem(url):
        raise Fault(FaultType.CONFIG, f"the database URL {shown} {problem}")
    if url == MEMORY:
        return Address("memory", shown)
    parts = urlsplit(url)
    if parts.scheme.partition("+")[0] != "sqlite":
        # Options of libpq are left out: the driver would send them to the server as settings.
        query = [
            (key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True) if key not in _LIBPQ
        ]
        return Address("postgresql", shown, dsn=urlunsplit(("postgresql", *parts[1:3], urlencode(query), "")))
    path = Path(unquote(parts.path.removeprefix("/"))).expanduser()
    options = dict(parse_qsl(parts.query))
    return Address("sqlite", shown, (base or Path.cwd()) / path, options.get("synchronous") == "full")


def _sqlite_url(path: Path, *, full: bool = False) -> str:
    return f"sqlite:///{quote(str(path))}" + ("?synchronous=full" if full else "")
