"""An MCP server as the project configures it, for a connection without an agent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pallas.access.sent_credential import configured_credential
from pallas.config.models import DownstreamConfig, Project
from pallas.model import Fault, FaultType

_MODES: Final = {"legacy": "legacy", "modern": "2026-07-28"}


@dataclass(frozen=True, slots=True)
class ServerEndpoint:
    """How to connect to one server. ``mode`` says how to detect the protocol's era, as the SDK's client
    takes it.

    ``env`` and ``cwd`` are for a command; the environment may hold secrets. ``certificate`` is a PEM file
    with the one certificate to trust under any host name; None for the usual verification.
    """

    config: DownstreamConfig
    mode: str = "auto"
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = None
    certificate: Path | None = None

    @property
    def configured(self) -> bool:
        """Whether the project configures a credential for it, which takes precedence over a caller's."""
        return bool(configured_credential(self.config.headers))

    def headers(self, bearer: str | None) -> dict[str, str]:
        """Return the headers of each request: the configured ones, and ``bearer`` if the server opted in.

        Raises Fault (PROTOCOL) if it is no token.
        """
        headers = dict(self.config.headers)
        if bearer and self.config.forward_inbound_auth and not self.configured:
            if not bearer.isascii() or not bearer.isprintable() or " " in bearer:
                raise Fault(
                    FaultType.PROTOCOL,
                    "the bearer token holds spaces or characters that no header takes; paste only the token",
                )
            headers["Authorization"] = f"Bearer {bearer}"
        return headers


def downstream_endpoint(project: Project, name: str) -> ServerEndpoint | None:
    """Return the downstream of that name with the project's settings; None if the project has none."""
    config = project.downstreams.get(name)
    if config is None:
        return None
    entry = _entry(project.settings, name)
    env, cwd = entry.get("env"), entry.get("cwd")
    return ServerEndpoint(
        config,
        _MODES.get(str(entry.get("protocol_mode")), "auto"),
        {str(key): str(value) for key, value in env.items()} if isinstance(env, Mapping) else {},
        project.root / str(cwd) if cwd else project.root,
    )


def own_endpoint(name: str, url: str, certificate: Path | None = None) -> ServerEndpoint:
    """Return an agent's own port, which accepts a caller's bearer; over TLS it shows ``certificate``."""
    config = DownstreamConfig(name, "http", url, forward_inbound_auth=True)
    return ServerEndpoint(config, certificate=certificate)


def _entry(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Any = settings
    for key in ("mcp", "servers", name):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}
