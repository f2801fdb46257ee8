"""Cards load the cards that they name, and a missing one is reported with its file and line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from fast_agent.core.agent_card_rules import CardType
from support.live import ask, client, running
from support.offline import offline_project
from support.waiting import poll, until

from pallas.cli.app import run
from pallas.model import AgentState

SCRIPT = """
rules:
  - {when: {system: You are the helper}, say: helped}
  - {when: {system: You are the second}, say: seconded}
  - when: {system: You judge}
    say: '{"rating": "EXCELLENT", "feedback": "ok", "needs_improvement": false}'
  - when: {system: You ask the helper, last: user}
    call: [{tool: agent__helper, arguments: {message: hi}}]
  - {when: {system: You ask the helper}, say: "it said {{ result }}"}
  - when: {system: You route}
    say: '{"agent": "helper", "confidence": "high", "reasoning": "r"}'
  - when: {user: helped}
    say: '{"is_complete": true, "description": "planned", "tasks": []}'
  - say: '{"is_complete": false, "description": "s", "tasks": [{"description": "t", "agent": "helper"}]}'
"""
HELPER = "You are the helper."
SECOND = "You are the second."


def card(text: str = "", **keys: Any) -> str:
    return f"---\n{yaml.safe_dump(keys, sort_keys=False)}---\n{text}\n"


def project(
    root: Path, cards: Mapping[str, str], entries: Mapping[str, Mapping[str, Any]], **more: Any
) -> Path:
    keys = {name: {"module": None, **each} for name, each in entries.items()}
    files = {**cards, **more.pop("files", {})}
    return offline_project(root, dict.fromkeys(entries), SCRIPT, keys=keys, files=files, **more)


CARDS = {
    "cards/helper.md": card(HELPER, name="helper"),
    "cards/second one.md": card(SECOND, name="second one"),
    "cards/judge.yaml": yaml.safe_dump({"name": "judge", "instruction": "You judge."}),
    "cards/README.md": "No card.\n",
}
KINDS: dict[str, tuple[dict[str, Any], str, str]] = {
    "agent": ({"agents": ["helper"]}, "You ask the helper.", "it said"),
    "chain": ({"sequence": ["helper", "second_one"]}, "", "seconded"),
    "parallel": ({"fan_out": ["helper", "second_one"], "fan_in": "judge"}, "", "EXCELLENT"),
    "evaluator_optimizer": ({"generator": "helper", "evaluator": "judge"}, "", "helped"),
    "router": ({"agents": ["helper", "second_one"]}, "You route.", "helped"),
    "orchestrator": ({"agents": ["helper"]}, "", "planned"),
    "iterative_planner": ({"agents": ["helper"]}, "", "planned"),
    "MAKER": ({"worker": "helper", "k": 1, "max_samples": 2}, "", "helped"),
}
"""By kind of card: what names its agents, its text, and what of its answer is known."""


def test_every_kind_of_card_that_names_agents_is_tried() -> None:
    assert {*KINDS, "a2a"} == set(get_args(CardType))  # a2a is an agent elsewhere


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cards = {
        f"cards/{kind}.md": card(text, name=f"the_{kind}", type=kind, **keys)
        for kind, (keys, text, _) in KINDS.items()
    }
    entries = {kind.lower(): {"card": f"cards/{kind}.md"} for kind in KINDS}
    return project(tmp_path_factory.mktemp("kinds"), {**CARDS, **cards}, entries)


@pytest.mark.slow
async def test_each_kind_of_card_answers_with_the_cards_that_it_names(
    kinds: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", str(kinds), "--offline"]) == 0
    assert capsys.readouterr().err == ""
    said = {}
    async with running(kinds) as fleet:
        for kind, (_, _, expected) in KINDS.items():
            agent = next(each for each in fleet.agents if each.name == kind.lower())
            assert agent.state is AgentState.READY, kind
            assert agent.snapshot().serves == f"the_{kind}"
            async with client(fleet, agent.name) as caller:
                said[kind] = await ask(caller, "go")
            assert expected in said[kind], said


@pytest.mark.slow
def test_a_name_that_no_card_has_is_a_mistake_at_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cards = {
        "cards/boss.md": card("You ask.", name="boss", agents=["helper", "hepler"]),
        "cards/line.md": "---\nname: line\ntype: chain\nsequence:\n  - helper\n  - judge\n  - nobody\n---\n",
        "cards/round.md": card(name="round", type="parallel", fan_out=["boss"], fan_in="lost"),
    }
    entries = {"boss": {"card": "cards/boss.md"}, "line": {"card": "cards/line.md"}}
    entries["round"] = {"card": "cards/round.md"}
    root = project(tmp_path, {**CARDS, **cards}, entries)
    for more in ((), ("--import",)):
        assert run(["check", str(root), "--offline", *more]) == 2
        printed = capsys.readouterr().err
        hepler = "cards/boss.md:5: agents.boss.card: agents names hepler, and no card has that name"
        assert hepler in printed
        assert "did you mean helper" in printed
        assert (
            "cards/line.md:7: agents.line.card: sequence names nobody, and no card has that name" in printed
        )
        assert "cards/round.md:6: agents.round.card: fan_in names lost, and no card has that name" in printed
        assert "judge, and" not in printed
        assert printed.count("no card has that name") == 3


@pytest.mark.slow
async def test_a_missing_card_is_an_error_of_its_agent_until_it_is_there(tmp_path: Path) -> None:
    boss = card("You ask the helper.", name="boss", agents=["helper"])
    root = project(
        tmp_path,
        {"boss.md": boss},
        {"boss": {"card": "boss.md"}, "other": {"card": "other.md"}},
        files={"other.md": card(HELPER, name="other")},
    )
    async with running(root, watch=True) as fleet:
        agent = next(each for each in fleet.agents if each.name == "boss")
        assert agent.state is AgentState.ERROR
        assert "boss.md:4: agents.boss.card: agents names helper, and no card has that name" in agent.story
        (root / "helper.md").write_text(card(HELPER, name="helper"))
        await until(lambda: agent.state is AgentState.READY)
        async with client(fleet, "boss") as caller:
            assert await ask(caller, "go") == "it said helped"
        (root / "helper.md").write_text(card(HELPER.replace("helper", "second"), name="helper"))

        async def said() -> str:
            async with client(fleet, "boss") as caller:
                return await ask(caller, "go")

        await poll(said, lambda text: text == "it said seconded")


@pytest.mark.slow
async def test_an_entry_may_name_a_folder_and_its_own_name_chooses_among_its_cards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cards = {
        "team/boss.md": card("You ask the helper.", name="boss", default=True, agents=["helper"]),
        "team/tool-cards/helper.md": card(HELPER, name="helper", tool_only=True),
        "team/second.yaml": yaml.safe_dump({"instruction": SECOND}),
        "team/notes.md": "Not a card.\n",
        "agent-cards/line.md": card(name="line", type="chain", sequence=["second", "elsewhere"]),
        "tool-cards/second.md": card(SECOND, name="second"),
        "agent-cards/elsewhere.md": card(HELPER, name="elsewhere"),
    }
    entries = {
        "team": {"card": "team"},
        "second": {"card": "team"},
        "third": {"card": "team", "agent": "second"},
        "elsewhere": {"card": "agent-cards/line.md"},
    }
    root = project(tmp_path, cards, entries)
    assert run(["check", str(root), "--offline"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith(
        "team/notes.md:1: warning: is not taken as a card: it has no front matter; "
    )
    assert "team serves boss (team/boss.md:2), second serves second (team/second.yaml)" in printed.out
    assert (
        "elsewhere serves line (agent-cards/line.md:2)" in printed.out
    )  # its card is line's, not a part of it
    async with running(root) as fleet:
        said = {}
        for agent in fleet.agents:
            async with client(fleet, agent.name) as caller:
                said[agent.name] = (agent.snapshot().serves, await ask(caller, "go"))
    assert said == {
        "team": ("boss", "it said helped"),
        "second": ("second", "seconded"),
        "third": ("second", "seconded"),
        "elsewhere": ("line", "helped"),
    }


def test_a_folder_without_cards_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = project(tmp_path, {"empty/README.md": "No card.\n"}, {"one": {"card": "empty"}})
    assert run(["check", str(root), "--offline"]) == 2
    assert "agents.one.card: there is no card in the folder empty" in capsys.readouterr().err


async def test_cards_beside_the_files_of_the_project_are_an_entry_of_that_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path, {"helper.md": card(HELPER, name="helper")}, {"helper": {"card": "./"}})
    (root / "fast-agent.secrets.yaml").write_text("generic: {api_key: offline}\n")
    (root / "fast-agent.secrets.yaml").chmod(0o600)
    assert run(["check", str(root), "--offline"]) == 0
    assert "helper serves" not in capsys.readouterr().err
    async with running(root) as fleet, client(fleet, "helper") as caller:
        assert fleet.agents[0].state is AgentState.READY, fleet.agents[0].story
        assert await ask(caller, "go") == "helped"


async def test_a_card_that_fast_agent_refuses_is_told_with_the_key_and_its_line(tmp_path: Path) -> None:
    cards = {
        "one.md": card(HELPER, name="one", use_histry=True),
        "two.md": card(HELPER, name="two", type="agnt"),
        "three.md": card(HELPER, name="three", port=1),
    }
    root = project(tmp_path, cards, {name: {"card": f"{name}.md"} for name in ("one", "two", "three")})
    async with running(root) as fleet:
        told = {agent.name: agent.story for agent in fleet.agents}
    lacks = "in a card of type agent"
    assert f"one.md:3: agents.one.card: there is no key use_histry {lacks}; did you mean" in told["one"]
    assert "two.md:3: agents.two.card: type agnt is not a kind of card; did you mean agent" in told["two"]
    assert f"there is no key port {lacks}; remove it; keys of Pallas belong in" in told["three"]
