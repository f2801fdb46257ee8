"""Find the fleet and its token: from options, the environment and the project's files."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pallas.config import ConfigError, Project, export_env, load_project
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

URL_VARIABLE: Final = "PALLAS_URL"
TOKEN_VARIABLE: Final = "PALLAS_TOKEN"
_WELL_KNOWN: Final = "/.well-known/mcp/server.json"
_ANYWHERE: Final = ("", "0.0.0.0", "::", "localhost")


@dataclass(frozen=True, slots=True)
class FleetAddress:
    """A fleet's address, without a trailing slash. ``project`` is the expected project, if known.

    ``certificate`` is the certificate of a fleet on this machine, trusted for any host name.
    """

    origin: str
    project: Path | None = None
    certificate: Path | None = field(default=None, repr=False)

    @property
    def port(self) -> int:
        """The port of the address."""
        parts = urlsplit(self.origin)
        return parts.port or (443 if parts.scheme == "https" else 80)

    @property
    def host(self) -> str:
        """The host of the address, without brackets."""
        return urlsplit(self.origin).hostname or ""

    def literal(self) -> "FleetAddress":
        """Return the same place; ``localhost`` becomes the address of this user's fleet on that port."""
        from pallas.surfaces.control.token_file import literal_host

        host = literal_host(self.host, self.port) if self.origin.startswith("http:") else self.host
        if host == self.host:
            return self
        path = urlsplit(self.origin).path
        netloc = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        return replace(self, origin=f"http://{netloc}{path}")

    @property
    def is_loopback(self) -> bool:
        """Whether the address is on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def in_the_clear(self) -> bool:
        """Whether others on the network could read requests to it."""
        return self.origin.startswith("http:") and not self.is_loopback

    def trust(self) -> ssl.SSLContext | bool:
        """Return httpx2's ``verify``: the system's authorities, or the project's own certificate."""
        if not self.origin.startswith("https:"):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # the authorities take 30 ms
        if self.certificate is not None and self.is_loopback:
            # The certificate is for the public name; that it is this very one is enough here.
            context = ssl.create_default_context(cafile=str(self.certificate))
            context.check_hostname = False
            return context
        import httpx2

        # A client that ignores the environment's proxies would ignore SSL_CERT_FILE as well.
        return httpx2.create_ssl_context(trust_env=True)


def place_of(
    url: str = "", project: Project | None = None, environ: Mapping[str, str] = os.environ
) -> FleetAddress:
    """Return the address: ``url`` (``--url``), else ``PALLAS_URL``, else the project's registry port.

    Raises Fault (CONFIG) when none of them is given, or one is invalid.
    """
    if given_url := url.strip() or environ.get(URL_VARIABLE, "").strip():
        return FleetAddress(_origin(given_url, "--url" if url.strip() else URL_VARIABLE))
    if project is None:
        raise Fault(FaultType.CONFIG, f"which fleet? Pass --url http://host:port or set {URL_VARIABLE}")
    host = "127.0.0.1" if (project.bind or "") in _ANYWHERE else str(project.bind)
    host = f"[{host}]" if ":" in host else host
    scheme = "http" if project.tls is None else "https"
    return FleetAddress(
        f"{scheme}://{host}:{project.registry_port}",
        project.root,
        project.tls.certfile if project.tls is not None else None,
    )


def place_named(url: str, folder: Path) -> FleetAddress:
    """Return the address in ``url``, else in ``PALLAS_URL``, with the project in ``folder`` if that is there.

    Raises Fault (CONFIG) when neither is given, or it is invalid.
    """
    place = place_of(url)
    project = own_project(folder, place)
    return place if project is None else replace(place, project=project.root)


def own_project(folder: Path, place: FleetAddress) -> Project | None:
    """Return the project in ``folder`` if ``place`` is on this machine, at the port of its registry.

    Its ``.env`` is then in the environment, as with a command that names no address.
    """
    if not place.is_loopback:
        return None
    try:
        project = load_project(folder)
        if project.registry_port != place.port:
            return None
        export_env(folder)
    except ConfigError:
        return None  # A fleet elsewhere does not need this folder.
    return project


def token_of(given: str = "", environ: Mapping[str, str] = os.environ) -> str:
    """Return the token from ``--token`` or ``PALLAS_TOKEN``; empty for none.

    Raises Fault (CONFIG) for one that cannot be sent; it is not repeated.
    """
    token = given.strip() or environ.get(TOKEN_VARIABLE, "").strip()
    if token and (not token.isascii() or not token.isprintable() or " " in token):
        name = "--token" if given.strip() else TOKEN_VARIABLE
        raise Fault(FaultType.CONFIG, f"{name}: must be ASCII letters, digits and signs without blanks")
    return token


def _origin(text: str, said_by: str) -> str:
    """Normalize ``host:port`` or the registry's URL to ``http://host:port``; a proxy's path stays."""
    text = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(text)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine or not text.isprintable() or parts.username is not None or parts.query or parts.fragment:
        raise Fault(
            FaultType.CONFIG, f"{said_by}: {one_line(text, 100)} is not an address; write http://host:port"
        )
    path = parts.path.rstrip("/")
    for own in (_WELL_KNOWN, "/api/v1"):
        path = path.removesuffix(own)
    return f"{parts.scheme.lower()}://{parts.netloc}{path}"
