"""Which calls are made, which ones a person is asked about, and which ones never."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pallas.config import ConfigError, load_project
from pallas.model import argument_conditions
from pallas.model.argument_conditions import condition_of
from pallas.model.tool_rules import ToolHint, ToolPattern, ToolRules, ToolRuleSet, hints_of


def project_of(root: Path, tools: Any, agent: Any = None, **top: Any) -> Any:
    """A project with these rules."""
    root.mkdir(exist_ok=True)
    (root / "clerk.py").write_text("")
    entry = {"kind": "llm", "module": "clerk", "port": 24301, **({"tools": agent} if agent else {})}
    whole = {"name": "p", "tools": tools, "agents": {"clerk": entry}, **top}
    (root / "agents.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    return load_project(root, {})


def rules_of(root: Path, tools: Any, agent: Any = None, **top: Any) -> ToolRules:
    """The rules of the project's agent."""
    project = project_of(root, tools, agent, **top)
    sets = tuple(each for each in (project.tools, project.agents["clerk"].tools) if each)
    return ToolRules(sets, project.trusted_servers)


@pytest.mark.parametrize(
    ("name", "arguments", "action"),
    [
        ("crm__get", {}, "allow"),
        ("CRM__Get", {}, "allow"),
        ("crm__delete_all", {}, "ask"),
        ("crm__drop", {}, "deny"),
        ("shop__look", {}, "deny"),
        ("agent:research", {}, "allow"),
        ("agent:other", {}, "deny"),
        ("bank__pay", {"amount": 100}, "deny"),  # allowed above 100 only: as odd as it is written
        ("bank__pay", {"amount": 101}, "allow"),
        ("bank__pay", {}, "deny"),
        ("bank__move", {"amount": 100}, "allow"),
        ("bank__move", {"amount": 100.5}, "ask"),
        ("bank__move", {"amount": "100"}, "ask"),
        ("bank__move", {}, "ask"),
    ],
)
def test_deny_is_before_ask_and_ask_before_allow(
    tmp_path: Path, name: str, arguments: dict[str, Any], action: str
) -> None:
    pay = {"tool": "bank__pay", "when": {"amount": "> 100"}}
    rules = rules_of(
        tmp_path / "p",
        {
            "allow": ["crm__*", "agent:research", pay, "bank__move"],
            "ask": ["crm__d*", {"tool": "bank__move", "when": {"amount": "> 100"}}],
            "deny": ["*__drop"],
        },
    )
    assert rules.decide(name, arguments).action == action


def test_of_the_project_and_the_agent_the_stricter_decides(tmp_path: Path) -> None:
    rules = rules_of(tmp_path / "p", {"ask": ["a__*"]}, {"allow": ["a__*", "b__*"], "deny": ["a__no"]})
    found = {name: rules.decide(name).action for name in ("a__x", "a__no", "b__x", "c__x")}
    assert found == {"a__x": "ask", "a__no": "deny", "b__x": "allow", "c__x": "deny"}
    assert "agents.yaml:" in rules.decide("a__x").rule


def test_a_tool_with_conditions_is_shown(tmp_path: Path) -> None:
    when = {"when": {"x": "> 1"}}
    rules = rules_of(
        tmp_path / "p",
        {"deny": [{"tool": "a__x", **when}, "a__y"], "allow": [{"tool": "a__*", **when}, "a__z"]},
    )
    shown = {name: rules.decide(name).action for name in ("a__x", "a__y", "a__z", "b__x")}
    assert shown == {"a__x": "allow", "a__y": "deny", "a__z": "allow", "b__x": "deny"}


@pytest.mark.parametrize(
    ("condition", "value", "held"),
    [
        ("> 100", 101, True),
        ("> 100", True, None),
        (">= 1", 1, True),
        ("< 5", 5.0, False),
        ("<= 5", 5, True),
        ('== "EUR"', "EUR", True),
        ("== EUR", "USD", False),
        ("== 1", True, False),
        ("!= x", "y", True),
        ("in [a, 2, 'c d']", "c d", True),
        ("in [a, 2]", 2, True),
        ('in ["a"]', "b", False),
        ("matches ^a+$", "aaa", True),
        ("matches ^a+$", "b", False),
        ("matches ^a+$", 1, None),
        ("> 100", float("nan"), None),
        ("<= 100", float("nan"), None),
        ("matches (a+)+$", "a" * 100_000 + "b", None),
    ],
)
def test_a_condition_holds_or_not_or_cannot_be_decided(condition: str, value: Any, held: Any) -> None:
    found = condition_of("v", condition).holds({"v": value}, for_all=False)
    assert found is held or (held is None and "(a+)+" in condition and found is not True)


@pytest.mark.parametrize(
    ("path", "arguments", "any_", "all_"),
    [
        ("order.total", {"order": {"total": 7}}, True, True),
        ("$.order.total", {"order": {}}, None, None),
        ("items[*].price", {"items": [{"price": 1}, {"price": 7}]}, True, False),
        ("items[1].price", {"items": [{"price": 1}, {"price": 7}]}, True, True),
        ("items[*].price", {"items": []}, None, None),
        ("items[*].price", {"items": [{"price": 7}, {}]}, None, None),
    ],
)
def test_a_path_leads_to_values(path: str, arguments: Any, any_: Any, all_: Any) -> None:
    condition = condition_of(path, "> 5")
    assert condition.holds(arguments, for_all=False) is any_
    assert condition.holds(arguments, for_all=True) is all_


def test_the_rule_that_decides_is_told_in_words(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path,
        {"ask": [{"tool": "bank__move", "when": {"amount": "> 100"}}], "deny": ["crm__drop"]},
        {"allow": ["bank__*"]},
    )
    told = {name: rules.words(name) for name in ("bank__move", "bank__look", "crm__drop", "crm__get")}
    (asked,), (denied,), (allowed,) = rules.sets[0].ask, rules.sets[0].deny, rules.sets[1].allow or ()
    assert all(each.where.startswith("agents.yaml:") for each in (asked, denied, allowed))
    assert told == {
        "bank__move": f"allow of clerk: {allowed}; with some arguments ask of the project: {asked}",
        "bank__look": f"allow of clerk: {allowed}",
        "crm__drop": f"deny of the project: {denied}",
        "crm__get": "deny: the allow list of clerk does not name it",
    }
    assert not ToolRules().words("crm__get")


def test_a_pattern_has_its_time_for_all_values_together(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((0.0, 0.01, 0.2, 0.3))
    monkeypatch.setattr(argument_conditions, "monotonic", lambda: next(times))
    condition = condition_of("[*]", "matches b")
    assert condition.holds(["a", "b", "b"], for_all=False) is None  # type: ignore[arg-type]


def test_mistakes_are_noted_at_their_line(tmp_path: Path) -> None:
    entry = {"tool": "a__*", "when": {"x": "= 5", "a..b": "> 1", "y": "matches ("}}
    with pytest.raises(ConfigError) as error:
        project_of(tmp_path / "p", {"ask": [entry], "asks": []}, approvals={"timeout": 0})
    said = str(error.value)
    for text in (
        "tools.ask[0].when.x: = 5 is not a condition",
        "tools.ask[0].when.a..b: a..b is not a path",
        "tools.ask[0].when.y: ( is not a regular expression",
        "tools.asks: unknown key",
        "approvals.timeout: 0 is out of range",
    ):
        assert text in said
    assert said.count("agents.yaml:") >= 5


class Notes:
    """What a server says of a tool."""

    def __init__(self, read_only: bool | None = None, destructive: bool | None = None) -> None:
        self.read_only_hint, self.destructive_hint = read_only, destructive


@pytest.mark.parametrize(
    ("notes", "trusted", "action"),
    [
        (Notes(read_only=True), True, "allow"),
        (Notes(destructive=False), True, "allow"),
        (Notes(), True, "ask"),  # MCP's default: it may destroy
        (None, True, "ask"),
        (Notes(read_only=True), False, "ask"),  # the word of a server that is not trusted
        (Notes(destructive=False), False, "ask"),
    ],
)
def test_hints_count_for_trusted_servers_only(notes: Any, trusted: bool, action: str) -> None:
    rules = ToolRules(
        (ToolRuleSet(ask=(ToolPattern("*", hint="destructive"),)),), ("docs",) if trusted else ()
    )
    assert rules.decide("docs__x", {}, server="docs", hints=hints_of(notes)).action == action
    only = ToolRules((ToolRuleSet(allow=(ToolPattern("*", hint="read_only"),)),), rules.trusted)
    reads = only.decide("docs__x", {}, server="docs", hints=hints_of(notes)).action
    assert reads == ("allow" if trusted and notes is not None and notes.read_only_hint else "deny")


_NAMES = st.sampled_from(["a__x", "a__y", "b__x", "agent:c"])
_PATTERNS = st.sampled_from(["*", "a__*", "*__x", "a__x", "agent:*"])
_HINTS: st.SearchStrategy[ToolHint | None] = st.sampled_from([None, "destructive", "read_only"])
_ENTRIES = st.lists(st.builds(ToolPattern, _PATTERNS, hint=_HINTS), max_size=3).map(tuple)
_SETS = st.builds(ToolRuleSet, st.none() | _ENTRIES, _ENTRIES, _ENTRIES)


@given(_NAMES, st.lists(_SETS, max_size=3), _SETS)
def test_a_further_set_of_rules_only_narrows(name: str, sets: list[ToolRuleSet], more: ToolRuleSet) -> None:
    order = ("allow", "ask", "deny")
    before = ToolRules(tuple(sets)).decide(name, {}).action
    after = ToolRules((*sets, more)).decide(name, {}).action
    assert order.index(after) >= order.index(before)
    assert ToolRules((*sets, more)).decide(name, {}).action in order
