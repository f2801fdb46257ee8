"""What a host, an address and a URL may look like: each function says what is wrong, or None."""

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from pallas.model.redaction import is_sensitive

_LABELS: Final = re.compile(
    r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*"
)
_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~-]+")
AGENTS: Final = "agents"
"""The path below which agents are reached at the one port."""
VIRTUAL: Final = "virtual"
"""The path below which each agent is an MCP server with the one tool ``chat``."""
PROJECTS: Final = "projects"
"""The path below which each project is an MCP server with a tool for each of its agents."""
OWN_PATHS: Final = frozenset(
    {AGENTS, VIRTUAL, PROJECTS, ".well-known", "v0.1", "api", "healthz", "readyz", "metrics", "mcp"}
)
"""First parts of the paths that are served at the one port."""
_GLOB: Final = re.compile(r"[A-Za-z0-9_.*?-]+(:(\d{1,5}|\*))?")


def host_problem(text: str) -> str | None:
    """For the ``host`` of published URLs: a name or an address, no scheme, no port."""
    if "://" in text:
        return "is a URL; write only the host name, for example my-host.example.com"
    if text.startswith("[") and text.endswith("]") and _is_address(text[1:-1], 6):
        return None
    if _is_address(text, 6):
        return f"is an IPv6 address without brackets; write [{text}]"
    if ":" in text:
        return "holds a port; ports belong to registry_port and to each agent"
    if len(text) > 253 or not _LABELS.fullmatch(text):
        return "is not a host name; allowed: a name such as my-host.example.com, or an IP address"
    return None


def bind_problem(text: str) -> str | None:
    """For ``bind``: an address of this machine, or localhost."""
    if text == "localhost" or _is_address(text):
        return None
    return "cannot be listened on; allowed: localhost, or an IP address such as 127.0.0.1, 0.0.0.0 or ::"


def allowed_host_problem(text: str) -> str | None:
    """For an entry of ``allowed_hosts``: a name that may be in a Host header, ``*`` within it allowed."""
    if "://" in text:
        return "is a URL; write only the host name"
    if not text.strip("*?:."):
        return "would allow every host and switch the protection off; name the hosts"
    if _is_address(text.removeprefix("[").removesuffix("]"), 6) or _GLOB.fullmatch(text):
        return None
    return "is not a host name; allowed: my-host.example.com, *.example.com, 10.0.0.7"


def url_problem(text: str) -> str | None:
    """For a URL that something will be asked at: http or https, and a host."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return "is not a URL; check its host and port"
    if parts.scheme not in {"http", "https"}:
        return "is not an http URL; write http://HOST:PORT/PATH"
    if not parts.hostname or port == 0 or any(char.isspace() for char in text):
        return "is not a URL; write http://HOST:PORT/PATH"
    return None


def secret_in(url: str) -> str:
    """Which secret a URL holds, as words for a message; empty where it holds none."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        return "a user or password"
    pairs = parse_qsl(f"{parts.query}&{parts.fragment}")
    return "a secret in its query" if any(value and is_sensitive(key) for key, value in pairs) else ""


def public_url_problem(text: str) -> str | None:
    """For ``public_url``: what callers elsewhere put before ``/agents/NAME/mcp``."""
    if problem := url_problem(text):
        return f"{problem.partition(';')[0]}; write https://HOST, or https://HOST/PATH"
    parts = urlsplit(text)
    if "@" in parts.netloc or "?" in text or "#" in text:
        return "holds more than scheme, host, port and path; write https://HOST, or https://HOST/PATH"
    if host_problem(_bracketed(parts.hostname or "")):
        return "names no host that callers could reach; write https://HOST, or https://HOST/PATH"
    segments = parts.path.strip("/").split("/") if parts.path.strip("/") else []
    if any(not _SEGMENT.fullmatch(each) or each in (".", "..") for each in segments):
        return "has a path with other than letters, digits and . _ ~ - between its slashes"
    if segments and segments[0] in OWN_PATHS:
        return f"has a path that begins with {segments[0]}, as a path of the fleet's does; choose another"
    return None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def local_port(url: str) -> int | None:
    """The port of a URL on this machine, None when it is elsewhere or not a URL."""
    if url_problem(url):
        return None
    parts = urlsplit(url)
    host = parts.hostname or ""
    local = host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)
    return (parts.port or (443 if parts.scheme == "https" else 80)) if local else None


def _is_address(text: str, version: int | None = None) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return version is None or address.version == version
