"""Names of servers' tools that every provider takes: unique, stable, and leading back to their tool."""

import re
from collections.abc import Mapping, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from pallas.downstreams.tool_names import ToolNames

PATTERN = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # of OpenAI's and Anthropic's APIs
HASHED = re.compile(r".*_[0-9a-f]{8}")

# Few letters, so that tools collide often.
_WORDS = st.text("ab_.Bé -", max_size=6) | st.text(max_size=8)
_LONG = st.builds(
    lambda word, letter, length: word + letter * length, _WORDS, st.sampled_from("ab."), st.integers(0, 120)
)
_NAMES = _WORDS | _LONG
SERVERS = st.dictionaries(_NAMES, st.lists(_NAMES, max_size=6), max_size=5)
_TAKEN = st.lists(_NAMES, max_size=3)


def names_of(servers: Mapping[str, Sequence[str]], taken: Sequence[str] = ()) -> dict[tuple[str, str], str]:
    names = ToolNames(servers, taken)
    return {(server, tool): names.shown(server, tool) for server, tools in servers.items() for tool in tools}


def _folded(servers: Mapping[str, Sequence[str]]) -> set[str]:
    return {f"{server}__{tool}".casefold() for server, tools in servers.items() for tool in tools}


@pytest.mark.slow
@given(SERVERS, _TAKEN)
@examples(400)
def test_names_fit_are_unique_in_any_case_and_lead_back(
    servers: dict[str, list[str]], taken: list[str]
) -> None:
    names = ToolNames(servers, taken)
    shown = names_of(servers, taken)
    assert len({name.casefold() for name in (*shown.values(), *taken)}) == len(shown) + len(
        {name.casefold() for name in taken}
    )
    for pair, name in shown.items():
        assert PATTERN.fullmatch(name)
        assert names.found(name) == pair


@pytest.mark.slow
@given(SERVERS, st.randoms())
@examples(200)
def test_names_do_not_depend_on_the_order(servers: dict[str, list[str]], random: Random) -> None:
    keys = list(servers)
    random.shuffle(keys)
    other = {key: random.sample(servers[key], len(servers[key])) for key in keys}
    assert names_of(other) == names_of(servers)


@pytest.mark.slow
@given(SERVERS, SERVERS)
@examples(400)
def test_a_name_changes_only_for_another_tool_of_the_same_name(
    servers: dict[str, list[str]], more: dict[str, list[str]]
) -> None:
    both = {key: [*servers.get(key, ()), *more.get(key, ())] for key in {**more, **servers}}
    before, after = names_of(servers), names_of(both)
    new = {pair: f"{pair[0]}__{pair[1]}".casefold() for pair in after if pair not in before}
    for pair, name in before.items():
        if after[pair] != name:
            assert f"{pair[0]}__{pair[1]}".casefold() in new.values()


@pytest.mark.slow
@given(SERVERS)
@examples(200)
def test_a_name_that_fits_and_is_unambiguous_stays_and_a_changed_one_keeps_its_server(
    servers: dict[str, list[str]],
) -> None:
    shown = names_of(servers)
    plain = [f"{server}__{tool}".casefold() for server, tool in shown]
    for (server, tool), name in shown.items():
        whole = f"{server}__{tool}"
        if tool and PATTERN.fullmatch(whole) and plain.count(whole.casefold()) == 1:
            assert name == whole
        else:
            assert HASHED.fullmatch(name)
            if re.fullmatch(r"[a-zA-Z0-9_-]{1,54}", server):
                assert name.startswith(f"{server}__")


@pytest.mark.parametrize(
    ("servers", "changed"),
    [
        ({"a": ["b__c"], "a__b": ["c"]}, {("a", "b__c"), ("a__b", "c")}),
        ({"a": ["b__c"]}, set()),
        ({"a__b": ["c"]}, set()),
        ({"s": ["x" * 100 + "1", "x" * 100 + "2", "x"]}, {("s", "x" * 100 + "1"), ("s", "x" * 100 + "2")}),
        ({"s": ["a.b", "a_b"]}, {("s", "a.b")}),
        ({"s": ["a.b", "a/b", "a b"]}, {("s", "a.b"), ("s", "a/b"), ("s", "a b")}),
        ({"s": ["get", "Get", "put"]}, {("s", "get"), ("s", "Get")}),
        ({"s.t": ["a"], "s_t": ["a"]}, {("s.t", "a")}),
        ({"s t": ["a"], "é": ["a"], "k" * 100: ["a"]}, {("s t", "a"), ("é", "a"), ("k" * 100, "a")}),
        ({"s": ["", "y" * 10_000]}, {("s", ""), ("s", "y" * 10_000)}),
        ({"s": ["same", "same"]}, set()),
    ],
)
def test_what_collides_or_does_not_fit_is_changed_and_nothing_else(
    servers: dict[str, list[str]], changed: set[tuple[str, str]]
) -> None:
    shown = names_of(servers)
    assert {pair for pair, name in shown.items() if name != "__".join(pair)} == changed
    assert len(set(shown.values())) == len(shown)


def test_names_are_the_same_after_a_restart() -> None:
    # Prompts, allowlists and recorded runs have them: a change of the hash is a change for users.
    servers = {"files.local": ["read.file"], "s": ["a.b", "z" * 80], "agent-calculator.add": ["chat"]}
    shown = names_of(servers)
    assert list(shown.values()) == [
        "files_local__read_file_63edcccb",
        "s__a_b_7b689caf",
        f"s__{'z' * 52}_c0243850",
        "agent-calculator_add__chat_5220cfc2",  # docs/connect.md#agents-as-tools
    ]


def test_a_name_of_another_tool_of_the_agent_is_not_given() -> None:
    names = ToolNames({"s": ["get", "own"]}, taken=["S__get", "own"])
    assert names.shown("s", "get") != "s__get"
    assert names.found(names.shown("s", "get")) == ("s", "get")
    assert names.found("S__get") is None and names.found("own") is None
    assert names.found("s__own") == ("s", "own")


def test_a_tool_is_found_by_its_own_name_if_no_other_has_it() -> None:
    names = ToolNames({"a": ["read", "a.b", "both"], "c": ["both", "a__read"]})
    assert names.found("read") == ("a", "read")
    assert names.found("a.b") == names.found("a__a.b") == ("a", "a.b")
    assert names.found("both") is None
    assert names.found("a__both") == ("a", "both")
    # What is shown comes before what a tool is called by its server.
    assert names.found("a__read") == ("a", "read")
    assert names.found("c__a__read") == ("c", "a__read")
    assert names.found("nothing") is None
    with pytest.raises(KeyError):
        names.shown("c", "read")


def test_a_server_cannot_take_the_name_that_another_tool_gets() -> None:
    tools = ["a.b"]
    for _ in range(4):  # names its own tools as the next one would be called
        tools.append(names_of({"s": tools})["s", "a.b"].removeprefix("s__"))
    shown = names_of({"s": tools})
    assert len(set(shown.values())) == len(tools) == 5
    assert all(PATTERN.fullmatch(name) for name in shown.values())
    assert _folded({"s": tools[1:]}) == {shown["s", tool] for tool in tools[1:]}


def test_many_tools_are_named_in_one_go() -> None:
    servers = {f"server.{place}": [f"tool {tool}" for tool in range(1_000)] for place in range(10)}
    assert len(set(names_of(servers).values())) == 10_000
