"""``rbac:``, who may do what: read, and every mistake told with its line."""

from collections.abc import Collection, Sequence
from typing import Final

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
from .notes import allowed, did_you_mean
from .section import Section
from .tree import Items, Leaf, Table
from .where import Where

RBAC_KEYS: Final = ("enabled", "grants")
RULE_KEYS: Final = ("to", "allow")
MAX_RULES: Final = 1_000
MAX_IN_RULE: Final = 1_000
_EXAMPLE: Final = "[{to: [token:ci], allow: [run:agents]}]"
_GRANTS: Final = "write VERB:KIND or VERB:KIND:NAME, for example run:agents:reviewer"
_TO: Final = "allowed: token:NAME, jwt:ISSUER:SUBJECT, jwt:ISSUER:*, authenticated, anonymous"


def read_rbac(top: Section, auth: AuthConfig | None, agents: Collection[str]) -> RbacConfig | None:
    """``rbac:`` at the top; None where there is none. Whom it names is looked for in ``auth``.

    ``agents`` are the names of those that the file declares.
    """
    node = top.table.get("rbac")
    if node is None:
        return None
    if isinstance(node, Leaf) and node.value is None:  # its lines are commented out
        top.error("rbac", "has no value", "write grants under it, or leave the key out")
        return None
    section = top.section("rbac")
    if section is None:
        return None
    section.only(RBAC_KEYS)
    return RbacConfig(rules=_rules(section, auth, agents), enabled=section.flag("enabled"))


def _rules(section: Section, auth: AuthConfig | None, agents: Collection[str]) -> tuple[Rule, ...]:
    node = section.table.get("grants")
    if node is None or (isinstance(node, Leaf) and node.value is None):
        return ()
    if not isinstance(node, Items):
        section.error("grants", "is not a list", f"write {_EXAMPLE}", where=node.where)
        return ()
    if len(node.items) > MAX_RULES:
        section.error("grants", "has too many entries", f"allowed: {MAX_RULES}")
        return ()
    found = []
    for number, item in enumerate(node.items):
        path = f"{section.key('grants')}[{number}]"
        if not isinstance(item, Table):
            section.notes.error(item.where, path, "is not a mapping", f"write {_EXAMPLE}")
            continue
        rule = Section(item, path, item.where, section.notes)
        rule.only(RULE_KEYS)
        named = _listed(rule, "to", "[token:ci]")
        to = dict.fromkeys(name for name, where in named if _is_to(rule, name, where, auth))
        given = (_grant(rule, text, where, agents) for text, where in _listed(rule, "allow", "[run:agents]"))
        allow = dict.fromkeys(each for each in given if each is not None)
        found.append(Rule(tuple(to), tuple(allow)))
    return tuple(found)


def _listed(rule: Section, key: str, example: str) -> Sequence[tuple[str, Where]]:
    """The texts under ``key``; one alone may stand there without a list."""
    if not rule.need(key, example):
        return ()
    node = rule.table.get(key)
    if isinstance(node, Leaf) and isinstance(node.value, str):
        text = rule.text(key)
        return ((text, node.where),) if text is not None else ()
    found = rule.texts(key, example)
    if not found and isinstance(node, Items) and not node.items:
        rule.error(key, "is empty", f"for example `{key}: {example}`")
    if len(found) > MAX_IN_RULE:
        rule.error(key, "has too many entries", f"allowed: {MAX_IN_RULE}")
        return ()
    return found


def _is_to(rule: Section, name: str, where: Where, auth: AuthConfig | None) -> bool:
    """Whether ``name`` is somebody; noted when nobody can be that."""
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
    rule.error("to", f"{name} is nobody", _TO, shape, where=where)
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


def _grant(rule: Section, text: str, where: Where, agents: Collection[str]) -> Grant | None:
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
        return f"{text}: nobody is asked for that", f"with {resource} {allowed(VERBS_OF[resource])}"
    if ANY in name and name != ANY:
        return f"{text}: * stands for a whole name, not for a part of one", _GRANTS
    if resource == ANY and name not in ("", ANY):
        return f"{text} names one thing of no kind", _GRANTS
    return ()
