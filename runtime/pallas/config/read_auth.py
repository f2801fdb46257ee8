"""``auth:`` of the project and of its agents."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from time import time
from typing import Any, Final

from .auth import AuthConfig, IssuerConfig, TokenConfig
from .network import local_port, url_problem
from .notes import Notes, allowed, did_you_mean
from .read_keys import ASYMMETRIC, SYMMETRIC, read_public_key
from .read_secret import read_secret
from .section import Section
from .tree import Items, Leaf, Table
from .where import Where

AUTH_KEYS: Final = ("tokens", "jwt", "scopes", "public_health", "dev")
AGENT_AUTH_KEYS: Final = ("tokens", "jwt", "scopes", "public_health")
TOKEN_KEYS: Final = ("sha256", "scopes", "expires")
ISSUER_KEYS: Final = ("issuer", "audience", "jwks_url", "public_key", "secret_env", "algorithms")
DEFAULT_ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
MAX_TOKENS: Final = 1_000
MAX_ISSUERS: Final = 20
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


def read_auth(top: Section, root: Path, variables: Mapping[str, str]) -> AuthConfig | None:
    """``auth:`` at the top; None where there is none, and for ``off``. ``variables`` hold shared secrets."""
    if "auth" not in top or _is_off(top):
        return None
    section = top.section("auth")
    if section is None:
        if isinstance(top.table.get("auth"), Leaf) and not _said(top, "auth"):
            _nobody(top, "auth")
        return None
    section.only(AUTH_KEYS)
    tokens = _tokens(section)
    issuers = _issuers(section, root, variables)
    if not tokens and not issuers:
        _nobody(top, "auth")
    return AuthConfig(
        tokens=tokens,
        issuers=issuers,
        scopes=_scopes(section) or (),
        public_health=_or(section.flag("public_health"), True),
        dev=section.flag("dev") or False,
        where=top.place("auth"),
    )


def read_agent_auth(section: Section) -> AgentAuth | None:
    """``auth:`` of an agent; None where there is none."""
    if "auth" not in section:
        return None
    where = section.place("auth")
    if _is_off(section):
        return AgentAuth(where, off=True)
    node = section.table.get("auth")
    if not isinstance(node, Table):
        problem = "has no value" if isinstance(node, Leaf) and node.value is None else "is neither"
        section.error("auth", problem, "allowed: off, or a mapping with " + ", ".join(AGENT_AUTH_KEYS))
        return None
    inner = section.section("auth")
    assert inner is not None
    inner.only(AGENT_AUTH_KEYS)
    return AgentAuth(
        where,
        tokens=_names(inner, "tokens", "[ci]"),
        issuers=_names(inner, "jwt", "[corp]"),
        scopes=_scopes(inner) if "scopes" in inner else None,
        public_health=inner.flag("public_health"),
    )


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
            notes.error(agent.where, key, "lets nobody call", "name a token or an issuer, or write auth: off")


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


def _is_off(section: Section) -> bool:
    """``off``, which YAML takes for false."""
    node = section.table.get("auth")
    return isinstance(node, Leaf) and (node.value is False or str(node.value).lower() == "off")


def _said(section: Section, key: str) -> bool:
    node = section.table.get(key)
    return not (isinstance(node, Leaf) and node.value is None)


def _nobody(top: Section, key: str) -> None:
    top.error(
        key, "lets nobody call", "write tokens or jwt under it, or auth: off", "docs/auth.md has examples"
    )


def _or(value: bool | None, default: bool) -> bool:
    return default if value is None else value


def _names(section: Section, key: str, example: str) -> tuple[tuple[str, Where], ...] | None:
    if key not in section:
        return None
    return section.texts(key, example)


def _scopes(section: Section) -> tuple[str, ...] | None:
    if "scopes" not in section:
        return None
    found = []
    for scope, where in section.texts("scopes", "[run]"):
        if _SCOPE.fullmatch(scope):
            found.append(scope)
        else:
            section.error(
                "scopes",
                "holds one that is no scope",
                "allowed: 1 to 100 visible ASCII characters without blanks, quotes and backslashes",
                where=where,
            )
    return tuple(dict.fromkeys(found))


def _entries(section: Section, key: str, most: int) -> Iterable[tuple[str, Section]]:
    """The named mappings under ``key``; nothing in them is repeated in a note."""
    outer = section.section(key)
    if outer is None:
        return
    if len(outer.table.entries) > most:
        outer.notes.error(section.place(key), section.key(key), "has too many entries", f"allowed: {most}")
        return
    for name, entry in outer.table.entries.items():
        path = outer.key(name)
        if not _NAME.fullmatch(name):
            outer.notes.error(
                entry.where, path, "is not a name", "allowed: a-z, 0-9 and . _ - after the first, at most 64"
            )
        elif isinstance(entry.node, Table):
            yield name, Section(entry.node, path, entry.where, outer.notes, echo=False)
        elif key == "tokens":
            outer.notes.error(
                entry.where, path, "is not a mapping", "write {sha256: …}, never the token itself", _MAKE
            )
        else:
            outer.notes.error(entry.where, path, "is not a mapping", "write {issuer: …, audience: …, …}")


def _tokens(section: Section) -> dict[str, TokenConfig]:
    found: dict[str, TokenConfig] = {}
    known: dict[str, str] = {}
    for name, each in _entries(section, "tokens", MAX_TOKENS):
        plain = [key for key in each.table.entries if key in _PLAIN_KEYS]
        for key in plain:
            each.error(key, "the token itself never stands in a file", "write its sha256: instead", _MAKE)
        if not plain:
            each.only(TOKEN_KEYS)
        digest = _digest(each) if "sha256" in each or not plain else None
        if digest and (first := known.setdefault(digest, name)) != name:
            each.error("sha256", f"is the same as that of {first}", "give each caller a token of its own")
        found[name] = TokenConfig(
            name=name,
            sha256=digest or "",
            scopes=_scopes(each) or (),
            expires=_expires(each),
            where=each.where,
        )
    return found


def _digest(section: Section) -> str | None:
    if "sha256" not in section:
        section.error("sha256", "is missing", _MAKE)
        return None
    text = section.text("sha256")
    if text is None:
        return None
    if not _SHA256.fullmatch(text):
        section.error(
            "sha256",
            "is no SHA-256, which has 64 hex digits",
            "if this is the token itself, take it out: whoever reads the file could use it",
            _MAKE,
        )
        return None
    digest = text.lower()
    if digest in _WEAK or len(set(digest)) < 4:
        section.error("sha256", "is the hash of a token that anyone would guess", _MAKE)
        return None
    return digest


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
            "expires", "is not a date", "write a day such as 2027-01-31, the last on which it is taken"
        )
        return None
    if moment.timestamp() <= time():
        section.warn("expires", "is over: this token is refused", "make another one, or remove it")
    return moment.timestamp()


def _issuers(section: Section, root: Path, variables: Mapping[str, str]) -> dict[str, IssuerConfig]:
    found: dict[str, IssuerConfig] = {}
    known: dict[str, str] = {}
    for name, each in _entries(section, "jwt", MAX_ISSUERS):
        each.only(ISSUER_KEYS)
        issuer = each.text("issuer", most=500) if each.need("issuer", "https://id.example.com/") else None
        if issuer and (first := known.setdefault(issuer, name)) != name:
            each.error("issuer", f"is the same as that of {first}", "one entry for each issuer")
        given = [key for key in _KEYS if key in each]
        if len(given) != 1:
            problem = f"{' and '.join(given)} are both given" if given else f"{', '.join(_KEYS)} are missing"
            each.error(
                "jwks_url",
                problem,
                "needed: exactly one of them" if not given else "needed: exactly one of " + ", ".join(_KEYS),
            )
        pem, fitting = read_public_key(each, root)
        shared = "secret_env" in each
        algorithms = _algorithms(each, SYMMETRIC if shared else fitting, shared=shared)
        found[name] = IssuerConfig(
            name=name,
            issuer=issuer or "",
            audience=_audience(each),
            jwks_url=each.text("jwks_url", check=_jwks_problem) or "",
            public_key=root / str(each.text("public_key")) if pem else None,
            algorithms=algorithms,
            pem=pem,
            secret=read_secret(each, variables, algorithms) if shared else "",
            where=each.where,
        )
    return found


def _audience(section: Section) -> tuple[str, ...]:
    """For whom tokens must be meant; without one, tokens for any other service would be taken here."""
    if not section.need("audience", "pallas"):
        return ()
    if isinstance(section.table.get("audience"), Items):
        given = tuple(text for text, _ in section.texts("audience", "[pallas]") if text.strip())
    else:
        one = section.text("audience", most=500)
        if one is None:
            return ()
        given = (one,)
    if not given:
        section.error(
            "audience", "is empty", "name for whom tokens are meant, for example `audience: pallas`"
        )
    return given


def _jwks_problem(text: str) -> str | None:
    if problem := url_problem(text):
        return problem
    if "@" in text.split("://", 1)[1].split("/", 1)[0]:
        return "holds a user name; keys are public, leave it out"
    if text.startswith("http://") and local_port(text) is None:
        return "is not encrypted, so anyone on the way could give keys of their own; write https://"
    return None


def _algorithms(section: Section, fitting: tuple[str, ...], *, shared: bool) -> tuple[str, ...]:
    """Those that are taken; without any those that fit the key, with a ``shared`` secret HS256.

    Never one of both families: a public key must not be taken for a secret.
    """
    default = SYMMETRIC[:1] if shared else fitting or DEFAULT_ALGORITHMS
    if "algorithms" not in section:
        return default
    found = []
    known = SYMMETRIC if shared else ASYMMETRIC
    for text, where in section.texts("algorithms", "[HS256]" if shared else "[RS256]"):
        if text.lower() == "none":
            problem, hint = "none is no signature", allowed(known)
        elif shared and text in ASYMMETRIC:
            problem, hint = f"{text} takes no secret", allowed(known)
        elif not shared and text.upper().startswith("HS"):
            problem = f"{text[:10]} takes the public key for a shared secret, which everyone has"
            hint = f"{allowed(known)}; a shared secret is named by secret_env"
        elif text not in known:
            problem, hint = "holds one that is not known", allowed(known)
        elif fitting and text not in fitting:
            problem, hint = f"{text} does not fit the public key", allowed(fitting)
        else:
            found.append(text)
            continue
        section.error("algorithms", problem, hint, where=where)
    if not found and not section.texts("algorithms", "[RS256]"):
        section.error("algorithms", "is empty", "leave it out for " + ", ".join(default))
    return tuple(dict.fromkeys(found)) or default
