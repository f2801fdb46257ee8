"""``rbac:`` in agents.yaml: what arrives, and what each mistake says."""

from pathlib import Path

import pytest
from support.config_folder import Folder

from pallas.model.grant_rules import Grant, RbacConfig, Rule

AUTH = f"""\
auth:
  tokens:
    ci: {{sha256: "{"3b1f" * 16}"}}
    ops: {{sha256: "{"4c2e" * 16}"}}
  jwt:
    corp: {{issuer: https://id.example.com/, audience: pallas, jwks_url: https://id.example.com/jwks.json}}
"""
AGENTS = "agents: {reviewer: {module: agents.jarvis, port: 24201}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def text(rbac: str, auth: str = AUTH) -> str:
    return f"name: x\n{auth}{AGENTS}{rbac}"


def test_rules_arrive_with_lists_and_without(folder: Folder) -> None:
    assert folder.agents(text("")).load().rbac is None
    rbac = """\
rbac:
  enabled: true
  grants:
    - {to: [token:ci, "jwt:corp:auth0|ada:1"], allow: [view:agents, run:agents:reviewer, "view:*"]}
    - {to: authenticated, allow: "*"}
    - to: [jwt:corp:*, anonymous]
      allow: [run:agents:*, admin:threads, view:projects:made-later]
"""
    assert folder.agents(text(rbac)).load().rbac == RbacConfig(
        (
            Rule(
                ("token:ci", "jwt:corp:auth0|ada:1"),
                (Grant("view", "agents"), Grant("run", "agents", "reviewer"), Grant("view")),
            ),
            Rule(("authenticated",), (Grant("*"),)),
            Rule(
                ("jwt:corp:*", "anonymous"),
                (Grant("run", "agents"), Grant("admin", "threads"), Grant("view", "projects", "made-later")),
            ),
        ),
        enabled=True,
    )


def test_rules_may_be_none_and_may_be_off(folder: Folder) -> None:
    assert folder.agents(text("rbac: {enabled: false}\n")).load().rbac == RbacConfig(enabled=False)
    assert folder.agents(text("rbac: {grants: []}\n", auth="")).load().rbac == RbacConfig()


ALLOW, TO = "allow: [run:agents]", "to: [token:ci]"
VERBS = "allowed: view, create, edit, delete, run, approve, admin; did you mean run"
KINDS = "allowed: agents, llms, secrets, projects, threads; did you mean agents"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (f"to: [token:cli], {ALLOW}", "].to: there is no token:cli; allowed: ci, ops; did you mean ci"),
        (f"to: [jwt:crop:ada], {ALLOW}", "].to: there is no jwt:crop; allowed: corp; did you mean corp"),
        (f"to: [jwt:corp], {ALLOW}", "].to: jwt:corp names no subject; write jwt:corp:SUBJECT"),
        (f"to: [ci], {ALLOW}", "].to: ci is not a caller; allowed: token:NAME,"),
        (f"to: [ci], {ALLOW}", "did you mean token:ci"),
        (f"to: [authentcated], {ALLOW}", "did you mean authenticated"),
        (TO, "].allow: is missing"),
        (f"to: [], {ALLOW}", "].to: is empty"),
        (f"{TO}, allw: [run:agents]", "].allw: unknown key; allowed: to, allow; did you mean allow"),
        (f"{TO}, allow: [runs:agents]", f"].allow: runs:agents: there is no verb runs; {VERBS}"),
        (f"{TO}, allow: [run:agent:reviewer]", f"there is no kind agent; {KINDS}"),
        (f"{TO}, allow: [run:llms]", "no request needs that verb; with llms allowed: view, create,"),
        (f"{TO}, allow: [run]", "run is not a whole grant; write VERB:KIND or VERB:KIND:NAME"),
        (f"{TO}, allow: ['run:agents:']", "run:agents: is not a whole grant"),
        (f"{TO}, allow: ['run:agents:rev*']", "* stands for a whole name"),
        (f"{TO}, allow: ['view:*:reviewer']", "names a thing without its kind"),
        ("", "].to: is missing"),
    ],
)
def test_a_mistake_names_its_line_and_the_nearest_word(folder: Folder, rule: str, said: str) -> None:
    found = folder.agents(text(f"rbac:\n  grants:\n    - {{{rule}}}\n")).found()
    line = len(text("").splitlines()) + 3
    assert all(str(each).startswith(f"agents.yaml:{line}: rbac.") for each in found), found
    assert any(said in str(each) for each in found), [str(each) for each in found]


def test_a_mistake_beside_the_rules_is_told_as_well(folder: Folder) -> None:
    for rbac, said in (
        ("rbac:\n", "rbac: has no value"),
        ("rbac: on\n", "rbac: is true to YAML, where a mapping is needed"),
        ("rbac: {rules: []}\n", "rbac.rules: unknown key; allowed: enabled, grants"),
        ("rbac: {enabled: maybe}\n", "rbac.enabled: is text, where true or false is needed"),
        (
            "rbac: {grants: [token:ci]}\n",
            "rbac.grants[0]: is text, where a mapping is needed; write {to: [token:ci], allow:",
        ),
        ("rbac: {grants: {}}\n", "rbac.grants: is a mapping, where a list is needed"),
        ("rabc: {}\n", "rabc: unknown key"),
    ):
        assert any(said in str(each) for each in folder.agents(text(rbac)).found()), said
    none = folder.agents(text("rbac: {grants: [{to: token:ci, allow: run:agents}]}\n", auth="")).found()
    assert "there are no tokens under auth: at the top" in str(none[0])


def test_a_name_that_is_nearly_an_agents_is_warned_of_and_taken(folder: Folder) -> None:
    project = folder.agents(text("rbac: {grants: [{to: token:ci, allow: run:agents:reviwer}]}\n")).load()
    assert [str(each).partition(": ")[2] for each in project.warnings] == [
        "rbac.grants[0].allow: run:agents:reviwer: no agent of this file is called reviwer; "
        "did you mean reviewer"
    ]
    assert project.rbac is not None and project.rbac.rules[0].allow == (Grant("run", "agents", "reviwer"),)
