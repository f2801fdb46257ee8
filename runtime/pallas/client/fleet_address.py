"""Where a fleet is and with which token it is asked: what was said, the environment, the project's files."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pallas.config import Project
from pallas.model import Fault, FaultType
from pallas.model.safe_text import one_line

URL_VARIABLE: Final = "PALLAS_URL"
TOKEN_VARIABLE: Final = "PALLAS_TOKEN"
_WELL_KNOWN: Final = "/.well-known/mcp/server.json"
_ANYWHERE: Final = ("", "0.0.0.0", "::", "localhost")


@dataclass(frozen=True, slots=True)
class FleetAddress:
    """A fleet's address without a slash at its end; ``project`` is whose fleet is meant, where that is known.

    ``certificate`` is what a fleet of this machine shows, believed whatever name stands in it.
    """

    origin: str
    project: Path | None = None
    certificate: Path | None = field(default=None, repr=False)

    @property
    def port(self) -> int:
        """The port of it."""
        parts = urlsplit(self.origin)
        return parts.port or (443 if parts.scheme == "https" else 80)

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine, as far as its address says so."""
        host = urlsplit(self.origin).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @property
    def in_the_clear(self) -> bool:
        """Whether everyone on the way could read what is sent there."""
        return self.origin.startswith("http:") and not self.is_loopback

    def trust(self) -> ssl.SSLContext | bool:
        """What httpx2 takes as ``verify``: the system's authorities, or the project's own certificate."""
        if not self.origin.startswith("https:"):
            return True
        if self.certificate is not None and self.is_loopback:
            # The certificate is for the name that others use; that it is this very one is enough here.
            context = ssl.create_default_context(cafile=str(self.certificate))
            context.check_hostname = False
            return context
        import httpx2

        # A client that leaves the environment's proxies out would leave SSL_CERT_FILE out with them.
        return httpx2.create_ssl_context(trust_env=True)


def place_of(
    url: str = "", project: Project | None = None, environ: Mapping[str, str] = os.environ
) -> FleetAddress:
    """Where to ask: ``url`` (``--url``), else ``PALLAS_URL``, else the registry port of the project.

    Raises Fault (CONFIG) where none of them says it, or says it wrongly.
    """
    if said := url.strip() or environ.get(URL_VARIABLE, "").strip():
        return FleetAddress(_origin(said, "--url" if url.strip() else URL_VARIABLE))
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


def token_of(given: str = "", environ: Mapping[str, str] = os.environ) -> str:
    """The token that a person gave with ``--token`` or in ``PALLAS_TOKEN``; empty for none.

    Raises Fault (CONFIG) for one that cannot be sent; it is not repeated.
    """
    token = given.strip() or environ.get(TOKEN_VARIABLE, "").strip()
    if token and (not token.isascii() or not token.isprintable() or " " in token):
        name = "--token" if given.strip() else TOKEN_VARIABLE
        raise Fault(FaultType.CONFIG, f"{name}: must be ASCII letters, digits and signs without blanks")
    return token


def _origin(text: str, said_by: str) -> str:
    """``http://host:port`` for that, ``host:port``, or the registry's URL; a proxy's path in front stays."""
    text = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(text)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine or not text.isprintable() or parts.username is not None or parts.query or parts.fragment:
        raise Fault(
            FaultType.CONFIG, f"{said_by}: {one_line(text, 100)} is no address; write http://host:port"
        )
    path = parts.path.rstrip("/")
    for own in (_WELL_KNOWN, "/api/v1"):
        path = path.removesuffix(own)
    return f"{parts.scheme.lower()}://{parts.netloc}{path}"
