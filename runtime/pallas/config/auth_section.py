"""``auth:`` of the project and of its agents."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from time import time
from typing import Annotated, Any, ClassVar, Final

from pydantic import ConfigDict, Discriminator, Field, Tag, WithJsonSchema

from .auth import AuthConfig, IssuerConfig, TokenConfig
from .field_types import VARIABLE, Loose, Maybe, Secret, TextRule, at_most, split
from .file_model import FileModel
from .issuer_keys import ASYMMETRIC, SYMMETRIC, read_public_key, read_secret
from .network import local_port, url_problem
from .notes import Notes, allowed, did_you_mean
from .section import Section
from .tree import Items, Leaf
from .where import Where

DEFAULT_ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
_KEYS: Final = ("jwks_url", "public_key", "secret_env")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
# RFC 6749: what a scope may hold. The challenge repeats it between quotes.
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,100}")
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")
_MAKE: Final = "make one with `pallas token new NAME`; `pallas token hash` hashes one that you have"
# What people call the key under which the token itself would stand.
_PLAIN_KEYS: Final = ("token", "value", "secret", "plain", "bearer", "key", "password")
_WEAK: Final = frozenset(
    hashlib.sha256(word.encode()).hexdigest()
    for word in (
        "", "token", "secret", "password", "passwort", "changeme", "change-me", "admin", "root", "test",
        "test-token", "demo", "dev", "example", "pallas", "bearer", "letmein", "123", "1234", "12345",
        "123456", "12345678", "123456789", "1234567890", "qwerty", "abc123", "foo", "bar", "ci", "TOKEN",
        "your-token", "my-token", "\n",
    )
)  # fmt: skip


def _digest_problem(text: str) -> str | None:
    if not _SHA256.fullmatch(text):
        return (
            "is not a SHA-256, which has 64 hex digits; "
            f"if this is the token itself, remove it: anyone who reads the file can use it; {_MAKE}"
        )
    digest = text.lower()
    if digest in _WEAK or len(set(digest)) < 4:
        return f"is the hash of a token that is easy to guess; {_MAKE}"
    return None


def _jwks_problem(text: str) -> str | None:
    if problem := url_problem(text):
        return problem
    if "@" in text.split("://", 1)[1].split("/", 1)[0]:
        return "holds a user name; keys are public, leave it out"
    if text.startswith("http://") and local_port(text) is None:
        return "is not encrypted, so an attacker on the network could send other keys; write https://"
    return None


def _variable_problem(text: str) -> str | None:
    # It may be the secret itself: it is not repeated.
    return None if VARIABLE.fullmatch(text) else "is not the name of a variable; write secret_env: JWT_SECRET"


Scopes = Annotated[tuple[Loose, ...] | None, Field(examples=[["run"]])]
Expires = Annotated[Any, WithJsonSchema({"type": "string"})]
_Listed = Annotated[tuple[Loose, ...], Tag("list")]
TextOrList = Annotated[Annotated[str, TextRule(most=500), Tag("text")] | _Listed, Discriminator(split)]


class TokenEntry(FileModel):
    """A token of a caller; only its hash is stored."""

    model_config = ConfigDict(json_schema_extra={"required": ["sha256"]})
    not_a_mapping: ClassVar = ("write {sha256: …}, never the token itself", _MAKE)

    sha256: Maybe[Annotated[str, TextRule(_digest_problem, pattern=r"^[0-9a-fA-F]{64}$"), Secret()]] = None
    """The token's SHA-256, 64 hex digits; ``pallas token new`` makes both. Never the token itself."""
    scopes: Scopes = None
    """What its holder may do."""
    expires: Expires = None
    """The last day (UTC) on which it is accepted, such as 2027-01-31, or a moment."""

    @classmethod
    def unknown_key(cls, key: str, section: Section) -> tuple[str, ...] | None:
        """As in ``FileModel``: the token itself is never repeated."""
        if key in _PLAIN_KEYS:
            return "the token itself is never in a file", "write its sha256: instead", _MAKE
        return None


class IssuerEntry(FileModel):
    """An issuer whose JWTs are accepted. One of ``jwks_url``, ``public_key`` and ``secret_env`` is needed."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [key]} for key in _KEYS]})
    not_a_mapping: ClassVar = ("write {issuer: …, audience: …, …}",)

    issuer: Annotated[str, TextRule(most=500), Field(examples=["https://id.example.com/"])]
    """The value of ``iss`` in its tokens."""
    audience: Annotated[TextOrList | None, Field(examples=["pallas"])]
    """The accepted audiences: one of these must be in ``aud``."""
    jwks_url: Maybe[Annotated[str, TextRule(_jwks_problem)]] = None
    """The URL of its keys: ``https://``, or ``http://`` on this machine."""
    public_key: Maybe[Annotated[str, TextRule()]] = None
    """A PEM file with its key: RSA of 2048 bits or more, P-256, P-384, P-521 or Ed25519."""
    secret_env: Maybe[Annotated[str, TextRule(_variable_problem)]] = None
    """The variable with a secret that it shares with this fleet."""
    algorithms: Annotated[tuple[Loose, ...] | None, Field(examples=[["RS256"]])] = None
    """Accepted algorithms; without it those that fit the key."""


Tokens = Annotated[dict[str, TokenEntry] | None, at_most(1_000), Secret()]
Issuers = Annotated[dict[str, IssuerEntry] | None, at_most(20), Secret()]


class AuthSection(FileModel):
    """Who may call: static tokens, issuers of JWTs, and the scopes that a caller needs."""

    not_a_mapping: ClassVar = ("write tokens or jwt under it, or auth: off", "docs/auth.md has examples")

    tokens: Tokens = None
    """Static tokens by name."""
    jwt: Issuers = None
    """Issuers of JWTs by name."""
    scopes: Scopes = None
    """The scopes that a caller needs, all of them."""
    public_health: bool = True
    """Health checks need no token."""
    dev: bool = False
    """Callers need a token in ``pallas dev`` on loopback as well."""


class AgentAuthSection(FileModel):
    """Who may call this agent: the project's rules, narrowed."""

    not_a_mapping: ClassVar = ("allowed: off, or a mapping with tokens, jwt, scopes, public_health",)

    tokens: Annotated[tuple[Loose, ...] | None, Field(examples=[["ci"]])] = None
    """Names of the project's tokens that are accepted; all others are refused."""
    jwt: Annotated[tuple[Loose, ...] | None, Field(examples=[["corp"]])] = None
    """Names of the project's issuers that are accepted; all others are refused."""
    scopes: Scopes = None
    """The scopes that a caller needs, instead of the project's."""
    public_health: Maybe[bool] = None
    """Health checks of this agent need no token."""


def _off(value: Any) -> str:
    """The tag of ``off``, which YAML takes for false, or of a mapping."""
    return "off" if value is False or str(value).lower() == "off" else "mapping"


_Off = Annotated[Any, WithJsonSchema({"enum": [False, "off"]}), Tag("off")]
ProjectAuth = Annotated[_Off | Annotated[AuthSection, Tag("mapping")], Discriminator(_off)]
AgentAuthValue = Annotated[_Off | Annotated[AgentAuthSection, Tag("mapping")], Discriminator(_off)]


@dataclass(frozen=True, slots=True)
class AgentAuth:
    """``auth:`` of one agent alone, before the project's is laid under it; None is what was not given.

    With ``tokens`` or ``issuers`` what is named there is all that is taken.
    """

    where: Where
    off: bool = False
    tokens: tuple[tuple[str, Where], ...] | None = None
    issuers: tuple[tuple[str, Where], ...] | None = None
    scopes: tuple[str, ...] | None = None
    public_health: bool | None = None


def auth_config(given: Any, top: Section, root: Path, variables: Mapping[str, str]) -> AuthConfig | None:
    """``auth:`` at the top; None where there is none, and for ``off``. ``variables`` hold shared secrets."""
    if not isinstance(given, AuthSection):
        return None
    tokens, issuers = _tokens(given.tokens), _issuers(given.jwt, root, variables)
    if not tokens and not issuers:
        top.error(
            "auth",
            "allows no caller",
            "write tokens or jwt under it, or auth: off",
            "docs/auth.md has examples",
        )
    return AuthConfig(
        tokens=tokens,
        issuers=issuers,
        scopes=_scopes(given) or (),
        public_health=given.public_health,
        dev=given.dev,
        where=top.place("auth"),
    )


def agent_auth(given: Any, section: Section) -> AgentAuth | None:
    """``auth:`` of an agent; None where there is none."""
    where = section.place("auth")
    if isinstance(given, AgentAuthSection):
        return AgentAuth(
            where,
            tokens=None if given.tokens is None and "tokens" not in given.at else given.listed("tokens"),
            issuers=None if given.jwt is None and "jwt" not in given.at else given.listed("jwt"),
            scopes=_scopes(given) if "scopes" in given.at else None,
            public_health=given.public_health,
        )
    node = section.table.get("auth")
    is_off = isinstance(node, Leaf) and given is not None
    return AgentAuth(where, off=True) if is_off else None


def check_agent_auth(
    project: AuthConfig | None, agents: Mapping[str, AgentAuth | None], notes: Notes
) -> None:
    """Note what an agent names that the project does not have."""
    for name, agent in agents.items():
        if agent is None or agent.off:
            continue
        key = f"agents.{name}.auth"
        if project is None:
            notes.error(
                agent.where,
                key,
                "narrows auth: of the project, and there is none",
                "write tokens or jwt under auth: at the top",
            )
            continue
        for listed, given, known in (
            ("tokens", agent.tokens, tuple(project.tokens)),
            ("jwt", agent.issuers, tuple(project.issuers)),
        ):
            for each, where in given or ():
                if each not in known:
                    none = "" if known else f"there are no {listed} under auth: at the top"
                    notes.error(
                        where,
                        f"{key}.{listed}",
                        f"there is no {each}",
                        none,
                        allowed(known),
                        did_you_mean(each, known),
                    )
        if (agent.tokens, agent.issuers) in (((), ()), ((), None), (None, ())):
            notes.error(agent.where, key, "allows no caller", "name a token or an issuer, or write auth: off")


def auth_of(project: AuthConfig | None, agent: AgentAuth | None) -> AuthConfig | None:
    """What holds for an agent: the project's with the agent's own keys laid over it."""
    if agent is None or project is None:
        return project
    if agent.off:
        return replace(project, off=True, where=agent.where)
    tokens, issuers = project.tokens, project.issuers
    if agent.tokens is not None or agent.issuers is not None:
        tokens = {name: tokens[name] for name, _ in agent.tokens or () if name in tokens}
        issuers = {name: issuers[name] for name, _ in agent.issuers or () if name in issuers}
    return replace(
        project,
        tokens=tokens,
        issuers=issuers,
        scopes=project.scopes if agent.scopes is None else agent.scopes,
        public_health=_or(agent.public_health, project.public_health),
        where=agent.where,
    )


def _or(value: bool | None, default: bool) -> bool:
    return default if value is None else value


def _scopes(entry: TokenEntry | AuthSection | AgentAuthSection) -> tuple[str, ...]:
    found = []
    for scope, where in entry.listed("scopes"):
        if _SCOPE.fullmatch(scope):
            found.append(scope)
        else:
            entry.at.error(
                "scopes",
                "has an invalid scope",
                "allowed: 1 to 100 visible ASCII characters without blanks, quotes and backslashes",
                where=where,
            )
    return tuple(dict.fromkeys(found))


def _named[E: FileModel](entries: Mapping[str, E] | None) -> dict[str, E]:
    """The entries whose names are names; of others it is noted that they are not."""
    found: dict[str, E] = {}
    for name, entry in (entries or {}).items():
        if _NAME.fullmatch(name):
            found[name] = entry
        else:
            hint = "allowed: a-z, 0-9 and . _ - after the first, at most 64"
            entry.at.notes.error(entry.at.where, entry.at.path, "is not a name", hint)
    return found


def _tokens(entries: Mapping[str, TokenEntry] | None) -> dict[str, TokenConfig]:
    found: dict[str, TokenConfig] = {}
    known: dict[str, str] = {}
    for name, entry in _named(entries).items():
        digest = (entry.sha256 or "").lower()
        if "sha256" not in entry.at and not any(key in entry.at for key in _PLAIN_KEYS):
            entry.at.error("sha256", "is missing", _MAKE)
        if digest and (first := known.setdefault(digest, name)) != name:
            entry.at.error("sha256", f"is the same as that of {first}", "give each caller a token of its own")
        found[name] = TokenConfig(
            name=name,
            sha256=digest,
            scopes=_scopes(entry),
            expires=_expires(entry.at),
            where=entry.at.where,
        )
    return found


def _expires(section: Section) -> float | None:
    """Until when, in Unix seconds: the end of a day (UTC), or the moment that is given."""
    node = section.table.get("expires")
    if node is None:
        return None
    value: Any = node.value if isinstance(node, Leaf) else None
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value) if len(value) == 10 else datetime.fromisoformat(value)
        except ValueError:
            value = None
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    elif isinstance(value, date):
        moment = datetime(value.year, value.month, value.day, tzinfo=UTC) + timedelta(days=1)
    else:
        section.error(
            "expires", "is not a date", "write a day such as 2027-01-31, the last on which it is accepted"
        )
        return None
    if moment.timestamp() <= time():
        section.warn("expires", "is in the past: this token is refused", "make a new one, or remove it")
    return moment.timestamp()


def _issuers(
    entries: Mapping[str, IssuerEntry] | None, root: Path, variables: Mapping[str, str]
) -> dict[str, IssuerConfig]:
    found: dict[str, IssuerConfig] = {}
    known: dict[str, str] = {}
    for name, entry in _named(entries).items():
        section, issuer = entry.at, entry.issuer
        if issuer and (first := known.setdefault(issuer, name)) != name:
            section.error("issuer", f"is the same as that of {first}", "one entry for each issuer")
        given = [key for key in _KEYS if key in section]
        if len(given) != 1:
            problem = f"{' and '.join(given)} are both given" if given else f"{', '.join(_KEYS)} are missing"
            section.error(
                "jwks_url",
                problem,
                "needed: exactly one of them" if not given else "needed: exactly one of " + ", ".join(_KEYS),
            )
        pem, fitting = read_public_key(section, root, entry.public_key)
        shared = "secret_env" in section
        algorithms = _algorithms(entry, SYMMETRIC if shared else fitting, shared=shared)
        found[name] = IssuerConfig(
            name=name,
            issuer=issuer or "",
            audience=_audience(entry),
            jwks_url=entry.jwks_url or "",
            public_key=root / str(entry.public_key) if pem else None,
            algorithms=algorithms,
            pem=pem,
            secret=read_secret(section, variables, algorithms, entry.secret_env),
            where=section.where,
        )
    return found


def _audience(entry: IssuerEntry) -> tuple[str, ...]:
    """For whom tokens must be meant; without one, tokens for any other service would be taken here."""
    given = tuple(text for text, _ in entry.listed("audience") if text.strip())
    node = entry.at.table.get("audience")
    if not given and (isinstance(node, Items) or (isinstance(node, Leaf) and node.value is None)):
        entry.at.error(
            "audience", "is empty", "name for whom tokens are meant, for example `audience: pallas`"
        )
    return given


def _algorithms(entry: IssuerEntry, fitting: tuple[str, ...], *, shared: bool) -> tuple[str, ...]:
    """Those that are taken; without any those that fit the key, with a ``shared`` secret HS256.

    Never one of both families: a public key must not be taken for a secret.
    """
    default = SYMMETRIC[:1] if shared else fitting or DEFAULT_ALGORITHMS
    found = []
    known = SYMMETRIC if shared else ASYMMETRIC
    for text, where in entry.listed("algorithms"):
        if text.lower() == "none":
            problem, hint = "none means that tokens are not signed", allowed(known)
        elif shared and text in ASYMMETRIC:
            problem, hint = f"{text} does not use a shared secret", allowed(known)
        elif not shared and text.upper().startswith("HS"):
            problem = f"{text[:10]} would use the public key as a shared secret, and everyone has that key"
            hint = f"{allowed(known)}; a shared secret is named by secret_env"
        elif text not in known:
            problem, hint = "holds one that is not known", allowed(known)
        elif fitting and text not in fitting:
            problem, hint = f"{text} does not fit the public key", allowed(fitting)
        else:
            found.append(text)
            continue
        entry.at.error("algorithms", problem, hint, where=where)
    if entry.algorithms == () and "algorithms" in entry.at:
        entry.at.error("algorithms", "is empty", "leave it out for " + ", ".join(default))
    return tuple(dict.fromkeys(found)) or default
