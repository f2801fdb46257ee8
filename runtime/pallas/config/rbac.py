"""``rbac:``, who may do what of those who may call."""

from collections.abc import Collection, Sequence
from typing import Annotated, Any, ClassVar, Final

from pydantic import Discriminator, Field, Tag

from pallas.model.grant_rules import (
    ANONYMOUS,
    ANY,
    AUTHENTICATED,
    VERBS,
    VERBS_OF,
    Grant,
    RbacConfig,
    Rule,
)

from .auth import AuthConfig
from .field_types import Loose, Maybe, TextRule
from .file_model import FileModel
from .notes import allowed, did_you_mean
from .section import Section
from .tree import Items
from .where import Where

_EXAMPLES: Final = {"to": "[token:ci]", "allow": "[run:agents]"}
_GRANTS: Final = "write VERB:KIND or VERB:KIND:NAME, for example run:agents:reviewer"
_TO: Final = "allowed: token:NAME, jwt:ISSUER:SUBJECT, jwt:ISSUER:*, authenticated, anonymous"


def _shape(value: Any) -> str:
    return "text" if isinstance(value, str) else "list"


_Listed = Annotated[tuple[Loose, ...], Field(max_length=1_000), Tag("list")]
_Names = Annotated[Annotated[str, TextRule(), Tag("text")] | _Listed, Discriminator(_shape)]


class RuleEntry(FileModel):
    """Those named in ``to`` may do what is in ``allow``."""

    not_a_mapping: ClassVar = ("write {to: [token:ci], allow: [run:agents]}",)

    to: Annotated[_Names | None, Field(examples=[["token:ci"]])]
    """Who: ``token:NAME``, ``jwt:ISSUER:SUBJECT``, ``jwt:ISSUER:*``, ``authenticated``, ``anonymous``."""
    allow: Annotated[_Names | None, Field(examples=[["run:agents"]])]
    """What: ``VERB:KIND`` or ``VERB:KIND:NAME``, such as ``run:agents:reviewer``; ``*`` is any."""


class RbacSection(FileModel):
    """Who may do what of those who may call."""

    not_a_mapping: ClassVar = ("write grants under it, or leave the key out",)

    enabled: Maybe[bool] = None
    """Whether the rules apply; without it they apply if there are any."""
    grants: Annotated[
        tuple[RuleEntry, ...] | None,
        Field(max_length=1_000, examples=[[{"to": ["token:ci"], "allow": ["run:agents"]}]]),
    ] = None
    """The rules."""


def rbac_config(
    section: RbacSection | None, auth: AuthConfig | None, agents: Collection[str]
) -> RbacConfig | None:
    """``rbac:`` at the top; None where there is none. Whom it names is looked for in ``auth``.

    ``agents`` are the names of those that the file declares.
    """
    if section is None:
        return None
    rules = tuple(_rule(entry, auth, agents) for entry in section.grants or ())
    return RbacConfig(rules=rules, enabled=section.enabled)


def _rule(entry: RuleEntry, auth: AuthConfig | None, agents: Collection[str]) -> Rule:
    rule = entry.at
    for key in ("to", "allow"):
        node = rule.table.get(key)
        if isinstance(node, Items) and not node.items and getattr(entry, key) == ():
            rule.error(key, "is empty", f"for example `{key}: {_EXAMPLES[key]}`")
    to = dict.fromkeys(name for name, where in entry.listed("to") if _is_to(rule, name, where, auth))
    given = (_read_grant(rule, text, where, agents) for text, where in entry.listed("allow"))
    return Rule(tuple(to), tuple(dict.fromkeys(each for each in given if each is not None)))


def _is_to(rule: Section, name: str, where: Where, auth: AuthConfig | None) -> bool:
    """Whether a caller can be ``name``; noted when none can."""
    if name in (ANONYMOUS, AUTHENTICATED):
        return True
    kind, _, rest = name.partition(":")
    if kind == "token" and rest:
        return _known(rule, "token", rest, tuple(auth.tokens) if auth else (), where)
    if kind == "jwt" and rest:
        issuer, _, subject = rest.partition(":")
        if not _known(rule, "jwt", issuer, tuple(auth.issuers) if auth else (), where):
            return False
        if subject:
            return True
        rule.error(
            "to",
            f"{name} names no subject",
            f"write jwt:{issuer}:SUBJECT, or jwt:{issuer}:* for all",
            where=where,
        )
        return False
    shape = did_you_mean(name, (ANONYMOUS, AUTHENTICATED)) or _as_token(name, auth)
    rule.error("to", f"{name} is not a caller", _TO, shape, where=where)
    return False


def _known(rule: Section, kind: str, name: str, known: Sequence[str], where: Where) -> bool:
    if name in known:
        return True
    key = "tokens" if kind == "token" else "jwt"
    none = "" if known else f"there are no {key} under auth: at the top"
    near = did_you_mean(name, known)
    rule.error("to", f"there is no {kind}:{name}", none, allowed(known), near, where=where)
    return False


def _as_token(name: str, auth: AuthConfig | None) -> str:
    return f"did you mean token:{name}" if auth is not None and name in auth.tokens else ""


def _read_grant(rule: Section, text: str, where: Where, agents: Collection[str]) -> Grant | None:
    """``verb:resource:name`` as a grant, None after noting what is wrong with it."""
    if text == ANY:
        return Grant(ANY)
    verb, _, rest = text.partition(":")
    resource, _, name = rest.partition(":")
    if wrong := _wrong(text, verb, resource, name):
        rule.error("allow", *wrong, where=where)
        return None
    if resource == "agents" and name not in ("", ANY, *agents) and (near := did_you_mean(name, agents)):
        # It may be made over the API: no mistake, but most likely one.
        rule.notes.warn(where, rule.key("allow"), f"{text}: no agent of this file is called {name}", near)
    return Grant(verb, resource, name or ANY)


def _wrong(text: str, verb: str, resource: str, name: str) -> tuple[str, ...]:
    """What is wrong with a grant, and hints; empty when nothing is."""
    if verb not in (ANY, *VERBS):
        return f"{text}: there is no verb {verb}", allowed(VERBS), did_you_mean(verb, VERBS)
    if not resource or text.endswith(":"):
        return f"{text} is not a whole grant", _GRANTS, f"{verb}:* is for everything"
    if resource != ANY and resource not in VERBS_OF:
        return f"{text}: there is no kind {resource}", allowed(VERBS_OF), did_you_mean(resource, VERBS_OF)
    if resource != ANY and verb not in (ANY, *VERBS_OF[resource]):
        return f"{text}: no request needs that verb", f"with {resource} {allowed(VERBS_OF[resource])}"
    if ANY in name and name != ANY:
        return f"{text}: * stands for a whole name, not for a part of one", _GRANTS
    if resource == ANY and name not in ("", ANY):
        return f"{text} names a thing without its kind", _GRANTS
    return ()
