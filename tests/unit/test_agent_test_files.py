"""The files of a project's tests: what they say, and what is said of mistakes in them."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.live import write_project
from support.pictures import picture

from pallas.agent_tests.agent_test import AgentTest
from pallas.agent_tests.agent_test_file import find_tests
from pallas.config import ConfigError, load_project
from pallas.model import RecordedRun, Recording
from pallas.model.fault_rules import FaultPlan, FaultRule
from pallas.recordings.recording_folder import write

WHOLE = """
agent: clerk
ask: |
  How many ${LAMPS}?
images: lamp.png
recording: lamps.recording
expect:
  answer: {contains: lamps, lacks: [sorry], matches: "\\\\d+", schema: {type: object, required: [a]}}
  calls:
    order: [shelf__find, shelf__look]
    any_order: shelf__find
    never: [shelf__burn]
    arguments: {shelf__find: {$.what: lamps, "$.most[0]": 3, $.day: 2030-12-25}}
  agents: [keeper]
  most: {steps: 5, tokens: 900, seconds: 1.5}
scorers: checks:polite
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = write_project(tmp_path, {"clerk": None, "keeper": None})
    folder = root / "tests" / "agents"
    folder.mkdir(parents=True)
    (folder / "lamp.png").write_bytes(picture())
    write(Recording("test", (RecordedRun("r1", "clerk", "How many?", "7"),)), folder / "lamps.recording")
    monkeypatch.chdir(root)
    return root


def found(root: Path, *patterns: str, **files: Any) -> list[AgentTest]:
    for name, text in files.items():
        (root / "tests" / "agents" / f"{name}.yaml").write_text(
            text if isinstance(text, str) else yaml.safe_dump(text)
        )
    return find_tests(load_project(root), patterns)


def mistakes(root: Path, text: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        found(root, mine=text)
    return [line.removeprefix("tests/agents/mine.yaml:") for line in str(caught.value).splitlines()]


def test_a_file_says_what_is_asked_and_expected(root: Path) -> None:
    (test,) = found(root, lamps=WHOLE)
    assert (test.name, test.agent, test.scorers) == ("lamps", "clerk", ("checks:polite",))
    (turn,) = test.turns
    assert turn.ask == "How many ${LAMPS}?\n"
    assert turn.images[0].data == base64.b64encode(picture()).decode()
    assert turn.recording == root / "tests" / "agents" / "lamps.recording"
    answer, calls, most = turn.expect.answer, turn.expect.calls, turn.expect.most
    assert (answer.contains, answer.lacks) == (("lamps",), ("sorry",))
    assert answer.matches is not None
    assert answer.matches.pattern == r"\d+"
    assert answer.schema == {"type": "object", "required": ["a"]}
    assert (calls.order, calls.any_order) == (("shelf__find", "shelf__look"), ("shelf__find",))
    assert (calls.never, turn.expect.agents) == (("shelf__burn",), ("keeper",))
    assert calls.arguments == {"shelf__find": [{"$.what": "lamps", "$.most[0]": 3, "$.day": "2030-12-25"}]}
    assert (most.steps, most.tokens, most.seconds) == (5, 900, 1.5)


def test_faults_are_of_a_question(root: Path) -> None:
    rule = {"to": "gpt-5", "what": 429, "at": 1}
    (test,) = found(root, lamps={"agent": "clerk", "ask": "Hi", "faults": [rule]})
    assert test.turns[0].faults == FaultPlan((FaultRule("gpt-5", "429", at=(1,)),), "tests/agents/lamps.yaml")
    turns = [{"ask": "Hello"}, {"ask": "And?", "faults": [rule]}]
    (test,) = found(root, lamps={"agent": "clerk", "turns": turns})
    assert [turn.faults is None for turn in test.turns] == [True, False]
    (root / "tests" / "agents" / "many.jsonl").write_text(json.dumps({"ask": "One?"}))
    (test,) = found(root, lamps={"agent": "clerk", "cases": "many.jsonl", "faults": [rule]})
    assert test.turns[0].faults is not None


def test_turns_of_one_conversation_have_expectations_of_their_own(root: Path) -> None:
    turns = [{"ask": "Hello"}, {"ask": "And?", "expect": {"fails": "no more"}}]
    (test,) = found(root, talk={"agent": "clerk", "turns": turns})
    assert [turn.ask for turn in test.turns] == ["Hello", "And?"]
    assert [turn.expect.fails for turn in test.turns] == [None, "no more"]


def test_each_line_of_a_dataset_is_a_test(root: Path) -> None:
    cases = [{"ask": "One?"}, {"ask": "Two?", "recording": "lamps.recording"}]
    (root / "tests" / "agents" / "many.jsonl").write_text("\n".join(map(json.dumps, cases)) + "\n\n")
    entry = {"agent": "clerk", "cases": "many.jsonl", "expect": {"answer": {"contains": "yes"}}}
    tests = found(root, many=entry)
    assert [(test.name, test.turns[0].ask) for test in tests] == [("many-1", "One?"), ("many-2", "Two?")]
    assert [test.turns[0].recording is None for test in tests] == [True, False]
    assert {test.turns[0].expect.answer.contains for test in tests} == {("yes",)}


def test_tests_are_chosen_by_name(root: Path) -> None:
    files = {name: {"agent": "clerk", "ask": "Hi"} for name in ("refund", "refund_late", "stock")}
    assert [test.name for test in found(root, **files)] == ["refund", "refund_late", "stock"]
    assert [test.name for test in found(root, "refund")] == ["refund", "refund_late"]
    assert [test.name for test in found(root, "*_late", "st?ck")] == ["refund_late", "stock"]
    whole = find_tests(load_project(root), ("refund", "st?ck"), exact=True)
    assert [test.name for test in whole] == ["refund"]


def test_a_project_without_tests_has_none(root: Path) -> None:
    assert found(root) == []


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"agent": "clerk"}, " asks nothing; add ask, turns or cases"),
        ({"ask": "Hi"}, " agent: is missing; required, for example `agent: concierge`"),
        ({"agent": "x", "ask": "Hi"}, "1: agent: x is not an agent of this project; allowed: clerk, keeper"),
        ({"agent": "clerk", "ask": "Hi", "expekt": {}}, "3: expekt: unknown key; allowed: agent, ask,"),
        ({"agent": "clerk", "ask": "Hi", "turns": [{"ask": "Ho"}]}, "2: ask: is given beside turns; move it"),
        (
            {"agent": "clerk", "ask": "Hi", "recording": "none"},
            "3: recording: there is no none; make it with",
        ),
        ({"agent": "clerk", "ask": "Hi", "images": ["no.png"]}, "4: images: no.png cannot be read: No such"),
        ({"agent": "clerk", "ask": "Hi", "images": "notes.txt"}, "3: images: notes.txt is not a picture"),
        (
            {"agent": "clerk", "ask": "Hi", "faults": [{"to": "x", "what": "cut"}]},
            "4: faults[0]: does not name the calls; add at: 1, or rate: 0.1",
        ),
        (
            {"agent": "clerk", "turns": [{"ask": "Hi"}], "faults": [{"to": "x", "what": "cut", "at": 1}]},
            "4: faults: is given beside turns; move it into a turn",
        ),
        ({"agent": "clerk", "ask": "Hi", "scorers": ["polite"]}, "4: scorers: polite names no function"),
        ({"agent": "clerk", "cases": "none.jsonl"}, "2: cases: none.jsonl cannot be read: No such file"),
        ({"agent": "clerk", "turns": []}, "2: turns: has no turn; add `- ask: ...`"),
        (
            {"agent": "clerk", "ask": "Hi", "cases": "many.jsonl"},
            "2: ask: is given beside cases; move it into the lines of that file",
        ),
        ({"agent": "clerk", "ask": "Hi", "recording": "x" * 300}, "3: recording: there is no xxx"),
    ],
)
def test_a_mistake_is_said_with_its_line(root: Path, entry: Any, said: str) -> None:
    (root / "tests" / "agents" / "notes.txt").write_text("mine")
    (root / "tests" / "agents" / "many.jsonl").write_text('{"ask": "Hi"}')
    (line,) = mistakes(root, yaml.safe_dump(entry, sort_keys=False))
    assert line.startswith(said)


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ("answer: {matches: '('}", "expect.answer.matches: is not a regular expression"),
        ("answer: {schema: {type: 3}}", "expect.answer.schema: is not a JSON Schema: 3 is not valid"),
        (
            "answer: {schema: {$schema: 3}}",
            "expect.answer.schema: $schema is not text; leave it out, or name",
        ),
        (
            "calls: {arguments: {shelf__find: {'what[': 1}}}",
            "expect.calls.arguments: shelf__find: what[ is no",
        ),
        (
            "calls: {arguments: {shelf__find: [{$.what: 1}, {'what[': 1}]}}",
            "expect.calls.arguments: shelf__find: what[ is no",
        ),
        ("calls: {arguments: {shelf__find: 3}}", "expect.calls.arguments.shelf__find: "),
        ("calls: {arguments: {shelf__find: [3]}}", "expect.calls.arguments.shelf__find: is a number"),
        ("most: {steps: -1}", "expect.most.steps: "),
        ("answer: hello", "expect.answer: "),
    ],
)
def test_a_mistake_in_what_is_expected_is_said_with_its_line(root: Path, expect: str, said: str) -> None:
    (line,) = mistakes(root, f"agent: clerk\nask: Hi\nexpect:\n  {expect}\n")
    assert line.startswith(f"4: {said}")


def test_a_line_of_a_dataset_that_is_no_case_is_said_with_its_line(root: Path) -> None:
    (root / "tests" / "agents" / "many.jsonl").write_text('{"ask": "One?"}\n["Two?"]\n{"ask": 3}\n{')
    with pytest.raises(ConfigError) as caught:
        found(root, many={"agent": "clerk", "cases": "many.jsonl"})
    assert str(caught.value).splitlines() == [
        f'tests/agents/many.jsonl:{line}: is not a case; write {{"ask": "..."}}' for line in (2, 3, 4)
    ]
