"""What a database URL may look like, and how it is shown: never with its password."""

import re
from typing import Final
from urllib.parse import parse_qsl, urlsplit

MEMORY: Final = "memory"
"""In place of a URL: everything is kept in memory, and gone with the fleet."""

_SQLITE: Final = ("sqlite", "sqlite+aiosqlite")
_POSTGRESQL: Final = ("postgres", "postgresql", "postgresql+asyncpg")
_SYNCHRONOUS: Final = ("normal", "full")
_EXAMPLES: Final = "write sqlite:///FILE, postgresql://USER:PASSWORD@HOST/DATABASE, or memory"
# Up to the very last @: a password may hold anything that is not escaped.
_CREDENTIALS: Final = re.compile(r"(?<=://).*@", re.DOTALL)
_QUERY: Final = re.compile(r"(?i)((?:password|passfile|sslpassword|user)=)[^&]*")


def database_url_problem(text: str) -> str | None:
    """What is wrong with a database URL, in words that repeat nothing of it; None for a good one."""
    if text == MEMORY:
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return f"is not a URL; check its host and port, and escape / ? # @ in a password; {_EXAMPLES}"
    if parts.scheme in _SQLITE:
        return _sqlite_problem(text, parts.netloc, parts.path, parts.query)
    if parts.scheme not in _POSTGRESQL:
        return f"names no database that is known here; {_EXAMPLES}"
    if port == 0 or parts.netloc.count("@") > 1 or parts.fragment or any(map(str.isspace, text)):
        return f"is not a URL; escape / ? # @ and spaces in a password; {_EXAMPLES}"
    if not parts.path.strip("/"):
        return f"names no database after the host; {_EXAMPLES}"
    return None


def _sqlite_problem(text: str, netloc: str, path: str, query: str) -> str | None:
    if netloc or "#" in text:
        return "names a host; write sqlite:///FILE, with three slashes (four for an absolute path)"
    if len(path) < 2 or path.endswith("/"):
        return "names no file; write sqlite:///FILE, or memory to keep nothing"
    if path == "/:memory:":
        return "names no file; write memory to keep nothing"
    options = parse_qsl(query, keep_blank_values=True)
    if any(key != "synchronous" or value not in _SYNCHRONOUS for key, value in options):
        return "has an option that is not known; allowed: ?synchronous=normal, ?synchronous=full"
    return None


def masked(url: str) -> str:
    """A database URL as it may be shown and logged: without user, password and line ends."""
    shown = _QUERY.sub(r"\1***", _CREDENTIALS.sub("***@", url))
    return "".join(char if char.isprintable() else "?" for char in shown)[:200]
