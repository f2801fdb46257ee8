"""What a database URL may look like, and how it is shown: never with its password."""

import re
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

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
        ports = [urlsplit(each).port for each in urls_of_hosts(text)]
    except ValueError:
        return f"is not a URL; check its host and port, and escape / ? # @ in a password; {_EXAMPLES}"
    if parts.scheme in _SQLITE:
        return _sqlite_problem(text, parts.netloc, parts.path, parts.query)
    if parts.scheme not in _POSTGRESQL:
        return f"names no database that Pallas knows; {_EXAMPLES}"
    if 0 in ports or parts.netloc.count("@") > 1 or parts.fragment or any(map(str.isspace, text)):
        return f"is not a URL; escape / ? # @ and spaces in a password; {_EXAMPLES}"
    if not parts.path.strip("/"):
        return f"names no database after the host; {_EXAMPLES}"
    return None


def urls_of_hosts(url: str) -> list[str]:
    """A URL for each host of a PostgreSQL URL with several, in their order; else the URL itself.

    They are in front of the database, ``HOST:PORT,HOST:PORT``, or in the query, as libpq permits. Raises
    ValueError if a host is empty or there are other numbers of hosts and of ports.
    """
    parts = urlsplit(url)
    credentials, at, names = parts.netloc.rpartition("@")
    if names:
        hosts = names.split(",")
        if len(hosts) > 1 and not all(hosts):
            raise ValueError("a host is empty")
        return [urlunsplit(parts._replace(netloc=f"{credentials}{at}{host}")) for host in hosts]
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    hosts, ports = query.get("host", "").split(","), query.get("port", "").split(",")
    if len(hosts) == 1:
        return [url]
    if len(ports) == 1:
        ports *= len(hosts)
    if not all(hosts) or len(ports) != len(hosts):
        raise ValueError("hosts and ports do not fit")
    found = []
    for host, port in zip(hosts, ports, strict=True):
        one = {**query, "host": host, **({"port": port} if port else {})}
        found.append(urlunsplit(parts._replace(query=urlencode(one))))
    return found


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
