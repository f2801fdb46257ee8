"""What a change concerns, worked out from values alone."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pallas.config import AgentConfig, Capabilities, DownstreamConfig, Project, ScriptedConfig, ServerConfig
from pallas.config.models import Need
from pallas.fleet.reload.affected_agents import AgentFacts, ChangeSet, ReloadPlan, plan_reload

ROOT = Path("/project")


def config(name: str, port: int, **more: Any) -> AgentConfig:
    return AgentConfig(name, port, name.title(), f"about {name}", module=f"agents.{name}", **more)


def file(name: str) -> Path:
    return ROOT / name


DOWNSTREAMS = {
    "base": DownstreamConfig("base", "http", url="http://127.0.0.1:1/mcp"),
    "docs": DownstreamConfig("docs", "http", url="http://localhost:9/mcp"),
    "echo": DownstreamConfig("echo", "stdio", command=("python", "echo.py")),
}
SETTINGS: Mapping[str, Any] = {
    "default_model": "openai.big",
    "openai": {"api_key": "one"},
    "generic": {"api_key": "two"},
    "shell_execution": {"timeout": 1},
    "mcp": {"servers": {name: {"url": each.url} for name, each in DOWNSTREAMS.items()}},
}
PROJECT = Project(
    root=ROOT,
    agents_file=ROOT / "agents.yaml",
    name="test",
    agents={
        "base": config("base", 1),
        "middle": config("middle", 2, needs=(Need("base"),)),
        "top": config("top", 3, needs=(Need("middle"),)),
        "other": config("other", 4),
    },
    servers={"docs": ServerConfig("docs", ("python", "docs.py"), "http://127.0.0.1:9/mcp", ROOT)},
    scripted=ScriptedConfig(ROOT / "model.yaml", 8),
    config_file=ROOT / "fastagent.config.yaml",
    provider="openai",
    model="big",
    downstreams=DOWNSTREAMS,
    settings=SETTINGS,
)
USES = {"base": ("echo",), "middle": ("base",), "top": (), "other": ("docs",)}
PROGRAMS = {"docs": frozenset({file("docs.py")})}


def known(name: str, project: Project = PROJECT, **more: Any) -> AgentFacts:
    return AgentFacts(
        name=name,
        project=project,
        config=project.agents[name],
        url=f"http://127.0.0.1:{project.agents[name].port}/mcp",
        files=frozenset({file(f"agents/{name}.py"), file("agents/shared.py")})
        if name != "other"
        else frozenset({file("agents/other.py")}),
        scripts={"echo": frozenset({file("echo.py")})} if name == "base" else {},
        servers=USES[name],
        **{
            "providers": ("generic",) if name == "other" else ("openai",),
            "names_models": name == "other",
            **more,
        },
    )


EVERYONE = tuple(known(name) for name in USES)


def wanted(changed: ChangeSet, new: Project = PROJECT, agents: Any = EVERYONE, **more: Any) -> ReloadPlan:
    return plan_reload(changed, PROJECT, new, agents, PROGRAMS, **more)


def saved(*names: str) -> ChangeSet:
    return ChangeSet(files=frozenset(map(file, names)))


def with_settings(**settings: Any) -> Project:
    return replace(PROJECT, settings={**SETTINGS, **settings})


def with_agent(name: str, **keys: Any) -> Project:
    agents = {**PROJECT.agents, name: replace(PROJECT.agents[name], **keys)}
    return replace(PROJECT, agents=agents)


REREAD = ChangeSet(reread=True)


@pytest.mark.parametrize(
    ("changed", "concerned"),
    [
        (saved("agents/base.py"), {"base"}),
        (saved("agents/shared.py"), {"base", "middle", "top"}),
        (saved("echo.py"), {"base"}),
        (saved("nothing.py"), set()),
        (REREAD, set()),
    ],
)
def test_files_concern_the_agents_that_are_made_of_them(changed: ChangeSet, concerned: set[str]) -> None:
    found = wanted(changed)
    assert set(found.reload) == concerned
    assert not found.restart
    assert not found.at_start


def test_what_depends_on_another_comes_after_it() -> None:
    assert wanted(saved("agents/shared.py")).layers == (("base",), ("middle",), ("top",))
    assert wanted(saved("agents/shared.py", "agents/other.py")).layers[0] == ("base", "other")


def test_an_agent_that_calls_another_without_waiting_for_it_comes_after_it_too() -> None:
    calls = replace(known("other"), servers=("base",))
    agents = (*EVERYONE[:3], calls)
    assert wanted(saved("agents/base.py", "agents/other.py"), agents=agents).layers == (("base",), ("other",))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_instances", 2),
        ("instance_scope", "request"),
        ("capabilities", Capabilities(vision=True)),
        ("isolation", "process"),
        ("module", "agents.another"),
    ],
)
def test_keys_that_an_executor_is_made_with_need_another_one(key: str, value: Any) -> None:
    assert wanted(REREAD, with_agent("other", **{key: value})).reload == {"other": ("agents.yaml",)}


@pytest.mark.parametrize(
    ("key", "value"), [("title", "Another"), ("run_timeout", 5), ("needs", (Need("base"),))]
)
def test_other_keys_are_taken_over(key: str, value: Any) -> None:
    found = wanted(REREAD, with_agent("other", **{key: value}))
    assert found.is_empty


def test_the_first_peers_of_a_model_need_another_version_and_further_ones_do_not() -> None:
    first = with_agent("other", peers=("base",))
    assert set(wanted(REREAD, first).reload) == {"other"}
    with_one = known("other", replace(PROJECT, agents=first.agents))
    further = with_agent("other", peers=("base", "middle"))
    assert not wanted(REREAD, further, [with_one]).reload


def test_a_description_concerns_who_calls_the_agent() -> None:
    assert set(wanted(REREAD, with_agent("base", description="new")).reload) == {"middle"}
    assert not wanted(REREAD, with_agent("other", description="new")).reload


@pytest.mark.parametrize(
    ("settings", "concerned"),
    [
        ({"default_model": "openai.huge"}, {"base", "middle", "top"}),
        ({"openai": {"api_key": "new"}}, {"base", "middle", "top"}),
        ({"generic": {"api_key": "new"}}, {"other"}),
        ({"groq": {"api_key": "new"}}, set()),
        ({"shell_execution": {"timeout": 2}}, set(USES)),
        ({"logger": {"level": "debug"}}, set()),
        ({"mcp": {"servers": {**SETTINGS["mcp"]["servers"], "echo": {"url": "x"}}}}, {"base"}),
        ({"mcp": {"servers": {**SETTINGS["mcp"]["servers"], "new": {"url": "x"}}}}, set()),
        ({"mcp": {**SETTINGS["mcp"], "defaults": {}}}, set(USES)),
    ],
)
def test_settings_concern_those_that_use_them(settings: dict[str, Any], concerned: set[str]) -> None:
    assert set(wanted(REREAD, with_settings(**settings)).reload) == concerned


@pytest.mark.parametrize(
    ("providers", "key", "concerned"),
    [
        (("generic", "openai"), "openai", True),
        (("responses",), "openai", True),  # it looks there for what its own block does not say
        (("responses",), "generic", False),
        ((), "openai", False),
        (None, "groq", True),
    ],
)
def test_a_providers_block_concerns_the_agents_that_ask_it(
    providers: tuple[str, ...] | None, key: str, concerned: bool
) -> None:
    one = known("other", providers=providers)
    assert bool(wanted(REREAD, with_settings(**{key: {"api_key": "new"}}), [one]).reload) is concerned


def test_the_level_of_the_log_is_taken_over_and_concerns_processes_of_agents() -> None:
    new = replace(with_agent("base", isolation="process"), log_level="debug")
    isolated = replace(known("base"), config=new.agents["base"])
    found = wanted(REREAD, new, [isolated, known("other")])
    assert (found.keys, found.at_start, set(found.reload)) == (("log_level",), (), {"base"})


def test_a_variable_concerns_those_that_name_it_and_everybody_where_nothing_does() -> None:
    changed = ChangeSet(
        variables=frozenset({"GREETING"}), reread=True, mentions=lambda path, word: path == file("echo.py")
    )
    assert wanted(changed).reload == {"base": (".env",)}
    assert set(wanted(replace(changed, mentions=lambda *_: False)).reload) == set(USES)
    only_there = replace(changed, mentions=lambda path, _: path == file("fastagent.config.yaml"))
    assert not wanted(only_there).reload


def test_agents_come_and_go_with_the_file_that_names_them() -> None:
    agents = {name: each for name, each in PROJECT.agents.items() if name != "other"}
    new = replace(PROJECT, agents={**agents, "late": config("late", 5, needs=(Need("top"),))})
    found = wanted(REREAD, new)
    assert (found.add, found.remove, found.reload) == (("late",), ("other",), {})
    assert found.layers == (("late",),)
    assert wanted(ChangeSet(), new).is_empty  # the file was not read again
    assert wanted(REREAD, new, only="other", agents=EVERYONE[3:]).remove == ("other",)
    assert wanted(REREAD, new, only="base", agents=EVERYONE[:1]).is_empty


def test_a_port_that_moves_needs_no_other_version() -> None:
    found = wanted(REREAD, with_agent("base", port=11))
    assert (found.move, found.reload) == (("base",), {})


def test_a_program_takes_the_agents_along_that_use_it() -> None:
    found = wanted(saved("docs.py"))
    assert (found.restart, set(found.reload)) == ({"docs": ("docs.py",)}, {"other"})
    new = replace(PROJECT, servers={"docs": replace(PROJECT.servers["docs"], command=("python", "new.py"))})
    found = wanted(REREAD, new)
    assert (set(found.restart), set(found.reload)) == ({"docs"}, {"other"})
    found = wanted(REREAD, replace(PROJECT, servers={}))
    assert (found.stop, found.restart, set(found.reload)) == (("docs",), {}, {"other"})
    assert set(wanted(REREAD, down=["docs"]).restart) == {"docs"}
    assert wanted(saved("docs.py"), only="other", agents=EVERYONE[3:]).is_empty


def test_where_a_program_stands_in_its_file_makes_no_difference() -> None:
    from pallas.config import Where

    new = replace(PROJECT, servers={"docs": replace(PROJECT.servers["docs"], where=Where("agents.yaml", 7))})
    assert wanted(REREAD, new).is_empty


def test_the_models_script_is_read_in_place_and_concerns_no_agent() -> None:
    found = wanted(saved("model.yaml"))
    assert (found.script, found.reload) == (True, {})
    moved = replace(PROJECT, scripted=ScriptedConfig(ROOT / "model.yaml", 88))
    found = wanted(replace(saved("model.yaml"), reread=True), moved)
    assert (found.script, found.at_start) == (False, ("scripted",))


@pytest.mark.parametrize(
    ("key", "value"),
    [("bind", "127.0.0.1"), ("registry_port", 7), ("port", 7), ("loop_lag", 9.0), ("database_url", "memory")],
)
def test_what_only_a_start_looks_at_is_named_and_holds_up_nothing(key: str, value: Any) -> None:
    new = replace(with_agent("other", max_instances=2), **{key: value})
    found = wanted(REREAD, new)
    assert key in found.at_start
    assert set(found.reload) == {"other"}


def test_a_stopped_agent_is_left_alone_and_one_that_is_owed_a_version_is_not() -> None:
    agents = (
        replace(known("base"), idle=True),
        *EVERYONE[1:3],
        replace(known("other"), owed=frozenset({"agents/other.py"})),
    )
    found = wanted(saved("agents/base.py", "echo.py"), agents=agents)
    assert found.reload == {"other": ("agents/other.py",)}


def test_a_failed_agent_is_tried_again_when_the_configuration_is_saved() -> None:
    agents = (*EVERYONE[:3], replace(known("other"), failed=True))
    changed = ChangeSet(files=frozenset({PROJECT.agents_file}), reread=True)
    assert wanted(changed, agents=agents).reload == {"other": ("agents.yaml",)}


def test_an_agent_is_compared_with_what_it_was_made_of_and_not_with_the_fleet() -> None:
    old = replace(
        with_settings(shell_execution={"timeout": 9}), agents=with_agent("other", max_instances=3).agents
    )
    agents = (*EVERYONE[:3], known("other", old))
    assert set(wanted(REREAD, agents=agents).reload) == {"other"}
