"""Where a fleet elsewhere is, and where its agents are as seen from here."""

from dataclasses import replace
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from pallas.model import FleetSnapshot

from ..instances.address import document_url, label_of


def control_origin(text: str) -> str:
    """``http://host:port`` for what a person typed: that, ``host:port``, or any URL on the registry's port.

    Raises Fault CONFIG that says what is wrong and how to write it.
    """
    text = text.strip()
    if text and "://" not in text:
        text = f"http://{text}"
    parts = urlsplit(document_url(text))
    return f"{parts.scheme}://{parts.netloc}"


def label(origin: str) -> str:
    """``host:port``, as the fleet is called before it has told its name."""
    return label_of(origin)


def is_loopback(url: str) -> bool:
    """Whether the URL's host is this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def as_reached(snapshot: FleetSnapshot, origin: str) -> FleetSnapshot:
    """``snapshot`` with the URLs that are loopback where the fleet runs, as they are reached from here.

    The fleet is another machine's when ``origin`` is no loopback: then its own loopback is that host.
    """
    if is_loopback(origin):
        return snapshot
    host = urlsplit(origin).hostname or ""
    host = f"[{host}]" if ":" in host else host
    return replace(
        snapshot,
        registry_url=_moved(snapshot.registry_url, host),
        agents=tuple(replace(agent, url=_moved(agent.url, host)) for agent in snapshot.agents),
        servers=tuple(replace(server, url=_moved(server.url, host)) for server in snapshot.servers),
    )


def _moved(url: str, host: str) -> str:
    try:
        parts: SplitResult = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    if not parts.hostname or not is_loopback(url):
        return url
    return parts._replace(netloc=f"{host}:{port}" if port else host).geturl()
