"""What the files say of failures and of who waits for whom: ``restart``, ``depends_on``."""

from pathlib import Path

import pytest
from support.config_folder import AGENTS, Folder

from pallas.config.models import Need, RestartConfig

DEFAULT = RestartConfig()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def agent(lines: str) -> str:
    return AGENTS + "".join(f"    {line}\n" for line in lines.splitlines())


def two(lines: str) -> str:
    """The agent ``jarvis``, and ``research`` with these lines."""
    return (
        AGENTS
        + "  research:\n    module: agents.research\n    port: 24202\n"
        + "".join(f"    {line}\n" for line in lines.splitlines())
    )


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", DEFAULT),
        ("restart: always", RestartConfig(policy="always")),
        ("restart: never", RestartConfig(policy="never")),
        ("restart: {}", DEFAULT),
        ("restart: {policy: never}", RestartConfig(policy="never")),
        ("restart: {backoff: 0.05}", RestartConfig(backoff=0.05)),
        ("restart: {backoff: 600}", RestartConfig(backoff=600, backoff_max=600)),
        ("restart: {backoff: 2, backoff_max: 2}", RestartConfig(backoff=2, backoff_max=2)),
        ("restart: {crashes: 1, within: 1}", RestartConfig(crashes=1, within=1)),
    ],
)
def test_a_policy_is_a_word_or_a_mapping(folder: Folder, lines: str, expected: RestartConfig) -> None:
    assert folder.agents(agent(lines)).load().agents["jarvis"].restart == expected


def test_the_defaults_are_those_of_the_document() -> None:
    text = (Path(__file__).parents[2] / "docs" / "health.md").read_text("utf-8")
    rows = dict(
        line.split("|")[1:3]  # type: ignore[misc]
        for line in text.splitlines()
        if line.startswith("| `") and line.count("|") == 4
    )
    listed = {key.strip(" `"): value.strip(" `") for key, value in rows.items()}
    for key in RestartConfig.__slots__:
        value = getattr(DEFAULT, key)
        assert listed[key] == (value if isinstance(value, str) else f"{value:g}")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            "restart: on-fail",
            "agents.jarvis.restart: unknown value on-fail; allowed: on-failure, always, never",
        ),
        ("restart: on-fail", "did you mean on-failure"),
        (
            "restart: {policy: 3}",
            "agents.jarvis.restart.policy: is a number (3); allowed: on-failure, always",
        ),
        ("restart: {retries: 3}", "agents.jarvis.restart.retries: unknown key"),
        ("restart: {backoff: 0}", "agents.jarvis.restart.backoff: 0 is out of range; allowed: 0.05 to 86400"),
        ("restart: {crashes: 0}", "agents.jarvis.restart.crashes: 0 is out of range; allowed: 1 to 1000"),
        ("restart: {within: 0.5}", "agents.jarvis.restart.within: 0.5 is out of range; allowed: 1 to 86400"),
        (
            "restart: {backoff: 10, backoff_max: 5}",
            "agents.jarvis.restart.backoff_max: is below backoff (10); allowed: backoff or more",
        ),
        ("restart: [never]", "agents.jarvis.restart: is a list"),
        ("start_timeout: 0", "agents.jarvis.start_timeout: 0 is out of range; allowed: 0.1 to 3600"),
    ],
)
def test_a_mistake_says_where_it_is_and_what_is_allowed(folder: Folder, lines: str, told: str) -> None:
    found = folder.agents(agent(lines)).lines()
    assert any(line.startswith("agents.yaml:6: ") and told in line for line in found), found


def test_a_program_has_a_policy_too(folder: Folder) -> None:
    server = "servers: {docs: {command: x, url: 'http://127.0.0.1:1/mcp', restart: {crashes: 2}}}\n"
    assert folder.agents(AGENTS + server).load().servers["docs"].restart == RestartConfig(crashes=2)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("depends_on: [jarvis]", Need("jarvis", "ready")),
        ("depends_on: {jarvis: started}", Need("jarvis", "started")),
        ("depends_on: {jarvis: ready}", Need("jarvis", "ready")),
        ("depends_on: {jarvis: healthy}", Need("jarvis", "healthy")),
        ("depends_on: {jarvis: }", Need("jarvis", "ready")),
        ("depends_on: {jarvis: {}}", Need("jarvis", "ready")),
        ("depends_on: {jarvis: {condition: healthy}}", Need("jarvis", "healthy")),
    ],
)
def test_who_is_waited_for_and_for_what(folder: Folder, lines: str, expected: Need) -> None:
    # PR-5
    research = folder.agents(two(lines)).load().agents["research"]
    assert research.needs == (expected,)
    assert research.depends_on == ("jarvis",)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        # PR-6
        ("depends_on: {jarvs: ready}", "agents.research.depends_on: there is no agent jarvs"),
        ("depends_on: {jarvs: ready}", "did you mean jarvis"),
        ("depends_on: {research: started}", "agents.research.depends_on: is circular: research -> research"),
        (
            "depends_on: {jarvis: helthy}",
            "agents.research.depends_on.jarvis: unknown value helthy; allowed: started, ready, healthy; "
            "did you mean healthy",
        ),
        ("depends_on: {jarvis: {state: ready}}", "agents.research.depends_on.jarvis.state: unknown key"),
        ("depends_on: {jarvis: {condition: up}}", "depends_on.jarvis.condition: unknown value up"),
        ("depends_on: {jarvis: [ready]}", "agents.research.depends_on.jarvis: is a list"),
    ],
)
def test_a_need_that_makes_no_sense_is_told_with_its_line(folder: Folder, lines: str, told: str) -> None:
    found = folder.agents(two(lines)).lines()
    assert any(line.startswith("agents.yaml:9: ") and told in line for line in found), found
