"""Grants: what one covers, who has which, and where anything is asked at all."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pallas.access.grants import Grants
from pallas.config.auth import AuthConfig, IssuerConfig, TokenConfig
from pallas.config.models import Project
from pallas.model import Fault, FaultType, Principal
from pallas.model.fingerprint import fingerprint, subject_id
from pallas.model.grant_rules import VERBS, VERBS_OF, Grant, RbacConfig, Rule
from pallas.model.redaction import redact_text
from pallas.model.refusals import REASON
from pallas.surfaces.auth.inbound_auth import Inbound

CORP = "https://id.example.com/"
AUTH = AuthConfig(
    issuers={"corp": IssuerConfig("corp", CORP, ("pallas",)), "other": IssuerConfig("other", "x", ())}
)
CI, OPS = Principal("token:ci"), Principal("token:ops")
NOBODY, SOMEBODY = Principal(), Principal("bearer:1f2e3d")
FULL, READ = Principal("control:full"), Principal("control:read")


def project(*rules: tuple[str, str], enabled: bool | None = None, auth: AuthConfig | None = AUTH) -> Project:
    """A project whose rules give ``allow`` to ``to``, each a text of words."""
    made = tuple(Rule(tuple(to.split()), tuple(map(grant, allow.split()))) for to, allow in rules)
    return Project(Path(), Path("agents.yaml"), "test", {}, auth=auth, rbac=RbacConfig(made, enabled=enabled))


def grant(text: str) -> Grant:
    return Grant(*text.split(":"))


def grants(*rules: tuple[str, str], **more: Any) -> Grants:
    where = {key: more.pop(key) for key in ("dev", "loopback", "admits") if key in more}
    found = Grants(**where)
    found.adopt(project(*rules, **more))
    return found


EVERY = [
    (verb, resource, name)
    for resource, verbs in VERBS_OF.items()
    for verb in verbs
    for name in ("", "x", "y")
]


@pytest.mark.parametrize(
    ("written", "covers"),
    [
        ("run:agents:x", {("run", "agents", "x")}),
        ("run:agents", {("run", "agents", name) for name in ("", "x", "y")}),
        ("run:agents:*", {("run", "agents", name) for name in ("", "x", "y")}),
        ("view:*", {each for each in EVERY if each[0] == "view"}),
        ("*:secrets", {each for each in EVERY if each[1] == "secrets"}),
        ("*:agents:y", {each for each in EVERY if each[1:] == ("agents", "y")}),
        ("admin:threads", {each for each in EVERY if each[0] == "admin"}),
        ("*", set(EVERY)),
    ],
)
def test_a_grant_covers_what_it_says_and_nothing_else(written: str, covers: set[tuple[str, ...]]) -> None:
    found = grants(("token:ci", written))
    assert {each for each in EVERY if found.allows(CI, *each)} == covers  # type: ignore[arg-type]
    assert not any(found.allows(OPS, *each) for each in EVERY)  # type: ignore[arg-type]
    assert grant(str(grant(written))) == grant(written)


@pytest.mark.parametrize(
    ("to", "who"),
    [
        ("token:ci", "ci"),
        ("token:ci token:ops", "ci ops"),
        ("jwt:corp:auth0|ada:1", "ada"),
        ("jwt:corp:ada", ""),
        ("jwt:other:auth0|ada:1", ""),
        ("jwt:corp:*", "ada"),
        ("authenticated", "ci ops ada"),
        ("anonymous", "ci ops ada nobody somebody"),
    ],
)
def test_a_rule_means_whom_it_names(to: str, who: str) -> None:
    # Only now: fingerprints are made with a salt, which a database may have brought.
    ada = Principal(subject_id("corp", CORP, "auth0|ada:1"))
    everyone = {"ci": CI, "ops": OPS, "ada": ada, "nobody": NOBODY, "somebody": SOMEBODY}
    found = grants((to, "run:agents"))
    may = [name for name, each in everyone.items() if found.allows(each, "run", "agents", "x")]
    assert may == who.split()


def test_whoever_holds_a_control_token_may_everything_or_look_whatever_the_rules_say() -> None:
    for found in (grants(("anonymous", "run:agents")), Grants(loopback=False), Grants()):
        assert all(found.allows(FULL, *each) for each in EVERY)  # type: ignore[arg-type]
        looks = {each for each in EVERY if each[0] == "view"}
        assert {each for each in EVERY if found.allows(READ, *each)} == looks  # type: ignore[arg-type]
        assert (found.describe(FULL), found.describe(READ)) == (["*"], ["view:*"])


def test_without_rules_all_is_open_on_loopback_but_what_is_anothers() -> None:
    found = Grants()
    assert not found.enforced
    assert {each[0] for each in EVERY if found.allows(NOBODY, *each)} == set(VERBS) - {"admin", "approve"}  # type: ignore[arg-type]
    assert found.describe(NOBODY) == ["create:*", "delete:*", "edit:*", "run:*", "view:*"]


def test_without_rules_beyond_loopback_only_control_tokens_pass_and_mcp_is_as_before() -> None:
    found = Grants(loopback=False)
    assert found.enforced and not found.ruled
    assert not any(found.allows(CI, *each) for each in EVERY)  # type: ignore[arg-type]
    assert found.may_run(NOBODY, "x")
    with pytest.raises(Fault, match="PALLAS_CONTROL_TOKEN"):
        found.require(CI, "view", "agents")


@pytest.mark.parametrize(
    ("enabled", "auth", "where", "ruled"),
    [
        (None, AUTH, {}, True),
        (None, AUTH, {"loopback": False}, True),
        # Where `pallas dev` asks nobody who they are it asks for no grants either ...
        (None, AUTH, {"dev": True}, False),
        # ... unless one of the two says so.
        (True, AUTH, {"dev": True}, True),
        (None, replace(AUTH, dev=True), {"dev": True}, True),
        (None, AUTH, {"dev": True, "loopback": False}, True),
        (None, None, {"dev": True}, True),
        (False, AUTH, {}, False),
        (False, AUTH, {"loopback": False}, False),
    ],
)
def test_rules_hold_where_callers_are_asked_who_they_are(
    enabled: bool | None, auth: AuthConfig | None, where: dict[str, bool], ruled: bool
) -> None:
    found = grants(("authenticated", "run:agents"), enabled=enabled, auth=auth, **where)
    assert found.ruled is ruled
    assert found.enforced is (ruled or not where.get("loopback", True))


def test_rules_are_those_that_were_read_last() -> None:
    found = grants(("token:ci", "run:agents:x"))
    found.adopt(project(("token:ci", "run:agents:y")))
    assert (found.allows(CI, "run", "agents", "x"), found.allows(CI, "run", "agents", "y")) == (False, True)


def test_an_agents_own_auth_holds_whatever_is_granted() -> None:
    found = grants(("authenticated", "*"), admits=lambda agent, who: (agent, who) != ("x", CI))
    assert not found.allows(CI, "run", "agents", "x") and not found.may_run(CI, "x")
    assert found.allows(CI, "run", "agents", "y") and found.allows(CI, "edit", "agents", "x")
    with pytest.raises(Fault, match="auth: of that agent does not accept"):
        found.require(CI, "run", "agents", "x")


def test_a_refusal_names_the_missing_grant_and_is_written_down_without_a_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = grants(("token:ci", "run:agents:x"))
    caplog.set_level(logging.INFO, "pallas.audit")
    known = Principal("token:ci", fingerprint("a-secret-token"))
    with pytest.raises(Fault) as refused:
        found.require(known, "run", "agents", "y")
    with pytest.raises(Fault) as unknown:
        found.require(NOBODY, "create", "secrets")
    found.require(known, "run", "agents", "x")
    assert refused.value.type is FaultType.AUTH
    assert (refused.value.data[REASON], refused.value.data["grant"]) == ("forbidden", "run:agents:y")
    assert "run:agents:y" in refused.value.message
    assert (unknown.value.data[REASON], unknown.value.data["grant"]) == ("unauthenticated", "create:secrets")
    said = [
        tuple(vars(each)[key] for key in ("audit", "principal", "verb", "resource", "target"))
        for each in caplog.records
    ]
    assert said == [
        ("denied", "token:ci", "run", "agents", "y"),
        ("denied", "anonymous", "create", "secrets", ""),
    ]


def test_lists_of_ones_own_need_somebody_where_anything_is_asked() -> None:
    for found in (grants(("anonymous", "*")), Grants(loopback=False)):
        found.require_known(CI)
        found.require_known(READ)
        for nobody in (NOBODY, SOMEBODY):
            with pytest.raises(Fault, match="caller is not known"):
                found.require_known(nobody)
    Grants().require_known(NOBODY)


def test_who_a_caller_is_stays_readable_in_the_log_and_a_token_does_not(tmp_path: Path) -> None:
    tokens = {"ci-of-grants": TokenConfig("ci-of-grants", "0" * 64)}
    inbound = Inbound(dev=False, loopback=True)
    inbound.adopt(replace(project(auth=AuthConfig(tokens=tokens)), root=tmp_path))
    inbound.close()
    assert redact_text("denied by token:ci-of-grants, who") == "denied by token:ci-of-grants, who"
    for masked in ("token:ci-of-grants-and-more", "token=ci-of-grants", "token: ci-of-grants", "token:abc"):
        assert "[redacted]" in redact_text(masked), masked
