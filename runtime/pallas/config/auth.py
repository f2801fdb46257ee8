"""Who may call, as the user wrote it: the values of ``auth:``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .where import Where


@dataclass(frozen=True, slots=True)
class TokenConfig:
    """A token that a caller may show, known by its SHA-256 alone (64 hex digits).

    ``expires`` is Unix seconds, None for never.
    """

    name: str
    sha256: str = field(repr=False)
    scopes: tuple[str, ...] = ()
    expires: float | None = None
    where: Where = Where("agents.yaml")


@dataclass(frozen=True, slots=True)
class IssuerConfig:
    """Who signs JWTs that are taken: by ``jwks_url``, by ``public_key`` (a PEM file), or by ``secret``.

    Exactly one of them is set. ``pem`` is what that file held when the project was read, ``secret`` the value
    of the variable that the project names. ``algorithms`` are of the HS family with a secret, and never else.
    """

    name: str
    issuer: str
    audience: tuple[str, ...]
    jwks_url: str = ""
    public_key: Path | None = None
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    pem: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    where: Where = Where("agents.yaml")


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """``auth:`` of the project, and of an agent with the project's laid under it.

    ``scopes`` are those a caller needs, all of them. ``public_health``: ``get_health`` needs no token.
    ``dev``: asked for in ``pallas dev`` on loopback as well, where it is not otherwise. ``off`` opens one
    agent.
    """

    tokens: Mapping[str, TokenConfig] = field(default_factory=dict)
    issuers: Mapping[str, IssuerConfig] = field(default_factory=dict)
    scopes: tuple[str, ...] = ()
    public_health: bool = True
    dev: bool = False
    off: bool = False
    where: Where = Where("agents.yaml")


def in_force(auth: AuthConfig | None, *, dev: bool, loopback: bool) -> AuthConfig | None:
    """What is asked of callers; None where no caller is asked.

    On loopback ``pallas dev`` asks only where the project says so; a headless fleet always does, since a
    proxy may be before it.
    """
    if auth is None or auth.off or (dev and loopback and not auth.dev):
        return None
    return auth
