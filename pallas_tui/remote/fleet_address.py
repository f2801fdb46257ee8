"""The address of a remote fleet, and of its agents as reached from here."""

from dataclasses import replace
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from pallas.model import FleetSnapshot
from pallas.safe_text import one_line
from pallas.surfaces.control.control_tokens import is_loopback
from pallas.surfaces.control.owner import owner
from pallas.surfaces.control.token_file import literal_host

from ..instances.registry_address import WELL_KNOWN, document_url, label_of

# Paths of the registry's document below the address of a fleet; the last ones are those of other registries.
_DOCUMENTS: Final = (WELL_KNOWN, "/v0.1/servers", "/server.json", "/servers", "")


def control_origin(text: str) -> str:
    """Return ``http://host:port`` for typed text: that, ``host:port``, or the URL of the registry.

    A path stays, as a proxy has it in front of the whole fleet (``https://example.com/pallas``). Without a
    certificate that says who answers, ``localhost`` becomes the address of this user's fleet on that port.

    Raises Fault CONFIG with the mistake and its fix.
    """
    text = text.strip()
    if text and "://" not in text:
        text = f"http://{text}"
    parts = urlsplit(document_url(text))
    path = next(parts.path.removesuffix(own) for own in _DOCUMENTS if parts.path.endswith(own))
    netloc = parts.netloc
    if parts.scheme == "http" and parts.port and parts.hostname == "localhost":
        host = literal_host("localhost", parts.port)
        netloc = f"[{host}]:{parts.port}" if ":" in host else f"{host}:{parts.port}"
    return f"{parts.scheme}://{netloc}{path}"


def label(origin: str) -> str:
    """``host:port``, the name of the fleet until its own is known."""
    return label_of(origin)


def place_of(origin: str, named: Any) -> str:
    """Where the fleet at ``origin`` runs, in words; ``named`` is the ``owner`` in its answer, if it has one.

    Behind a tunnel a loopback address is another machine: only the fleet knows which.
    """
    here, there = owner(), named if isinstance(named, dict) else {}
    host, user, pid = (one_line(str(there.get(key, "")), 40) for key in ("host", "user", "pid"))
    place = label(origin)
    if host and is_loopback_url(origin):
        place = "this machine" if host == here["host"] else f"{host} at {place}"
    whose = f" of {user}" if user and user != here.get("user") else ""
    return f"{place} (pid {pid}{whose})" if pid else place


def is_loopback_url(url: str) -> bool:
    """Whether the URL's host is this machine."""
    return is_loopback(urlsplit(url).hostname or "")


def as_reached(snapshot: FleetSnapshot, origin: str) -> FleetSnapshot:
    """``snapshot`` with the URLs that are loopback where the fleet runs, as they are reached from here.

    The fleet is another machine's when ``origin`` is no loopback: then its own loopback is that host. What
    is on the same port as its registry is reached as that is, through the same proxy.
    """
    if is_loopback_url(origin):
        return snapshot
    own = _origin(snapshot.registry_url)
    if own and is_loopback_url(own):
        snapshot = replace(
            snapshot,
            registry_url=_through(snapshot.registry_url, own, origin),
            agents=tuple(replace(each, url=_through(each.url, own, origin)) for each in snapshot.agents),
        )
    host = urlsplit(origin).hostname or ""
    host = f"[{host}]" if ":" in host else host
    return replace(
        snapshot,
        registry_url=_moved(snapshot.registry_url, host),
        agents=tuple(replace(agent, url=_moved(agent.url, host)) for agent in snapshot.agents),
        servers=tuple(replace(server, url=_moved(server.url, host)) for server in snapshot.servers),
    )


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


def _through(url: str, own: str, origin: str) -> str:
    """``url`` with ``origin`` for the fleet's ``own``, where it begins with that."""
    return origin + url.removeprefix(own) if _origin(url) == own else url


def _moved(url: str, host: str) -> str:
    try:
        parts: SplitResult = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    if not parts.hostname or not is_loopback_url(url):
        return url
    return parts._replace(netloc=f"{host}:{port}" if port else host).geturl()
