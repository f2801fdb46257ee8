"""A script is read whole: every mistake is told with its line and its cure."""

from pathlib import Path

import pytest
from support.scripted import script, write_script

from pallas.config import ConfigError
from pallas.scripted.script_file import load_script


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        script(folder, text)
    prefix = f"{folder / 'model.yaml'}:"
    return [str(each).removeprefix(prefix) for each in caught.value.mistakes]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ruels: []", "rules: is missing"),
        ("rules: {}", "rules: is not a list of rules"),
        ("rules: []", "rules: is not a list of rules"),
        ("rules: [hello]", "rules[0]: is text, where a mapping is needed"),
        ("rules: [{sya: x}]", "did you mean say"),
        ("rules: [{when: {text: x}}]", "answers nothing; add say, call or error"),
        ("rules: [{say: x, when: {lats: user}}]", "unknown key; allowed: last, tool"),
        ("rules: [{say: x, when: {last: assistant}}]", "unknown value assistant; allowed: user, tool"),
        ("rules: [{say: x, when: {last: user, tool: t}}]", "a user's message is not a tool's result"),
        ("rules: [{say: x, when: {images: 'yes'}}]", "true or false is needed"),
        ("rules: [{say: x, when: {regex: 'a('}}]", "is not a regular expression: missing )"),
        ("rules: [{say: x, delay: -1}]", "rules[0].delay: -1 is out of range; allowed: 0 to 600"),
        ("rules: [{say: x, pace: slow}]", "where a number is needed"),
        ("rules: [{say: 'a {{ lsat }}'}]", "unknown variable lsat"),
        ("rules: [{say: 'a {{ last | jsn }}'}]", "unknown filter jsn; allowed: json, number, quote"),
        ("rules: [{say: 'a {{ last'}]", "{{ is opened and not closed"),
        ("rules: [{say: '{{ a b }}'}]", "{{ a b }} is not a variable"),
        ("rules: [{say: '{{ match.x }}'}]", "match.x needs a regex"),
        (
            "rules: [{say: '{{ match.customr }}', when: {regex: '(?P<customer>.)'}}]",
            "the regex has no group customr; allowed: customer, 0, 1; did you mean customer",
        ),
        ("rules: [{call: {tool: x}}]", "call: is not a list of calls"),
        ("rules: [{call: [{arguments: {}}]}]", "call[0].tool: is missing"),
        ("rules: [{call: [{tool: x, arguments: {d: 2026-01-01}}]}]", "arguments.d: is a date to YAML"),
        ("rules: [{call: [{tool: x, arguments: {d: .inf}}]}]", "arguments.d: is not a number that JSON has"),
        ("rules: [{call: [{tool: x, arguments: {a: ['{{ z }}']}}]}]", "arguments.a[0]: unknown variable z"),
        ("rules: [{error: {status: 200, message: x}}]", "status: 200 is out of range; allowed: 400 to 599"),
        ("rules: [{error: {status: 500}}]", "error.message: is missing"),
        ("rules: [{error: {status: 500, message: x}, say: y}]", "error: is given beside say or call"),
        ("rules: [{say: 5}]", "is a number (5), where text is needed"),
        ("rules: [", "not valid YAML"),
        ("", "rules: is missing"),
    ],
)
def test_a_mistake_says_what_and_what_is_allowed(tmp_path: Path, text: str, said: str) -> None:
    found = mistakes(tmp_path, text)
    assert any(said in each for each in found), found


def test_all_mistakes_are_told_together_each_with_its_line(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        """
        rules:
          - when: {txt: a}
            say: x
          - say: "{{ nothing }}"
          - when: {}
        """,
    )
    assert [each.split(":")[0] for each in found] == ["3", "5", "6"]


def test_a_refused_regex_is_not_told_twice_as_a_missing_group(tmp_path: Path) -> None:
    found = mistakes(tmp_path, "rules: [{say: '{{ match.x }}', when: {regex: '(?P<x>'}}]")
    assert len(found) == 1
    assert "not a regular expression" in found[0]


def test_a_script_that_is_not_there_is_one_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: there is no such file"):
        load_script(tmp_path / "none.yaml")


def test_the_file_is_named_as_seen_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"^model\.yaml:1: rules: is not a list"):
        load_script(write_script(tmp_path, "rules: []"))


def test_dollar_signs_stay_as_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME_OF_TESTS", "elsewhere")
    loaded = script(
        tmp_path,
        """
        rules:
          - say: "echo ${HOME_OF_TESTS} ${UNSET_NAME:-x}"
            call: [{tool: t, arguments: {a: "${HOME_OF_TESTS}"}}]
        """,
    )
    rule = loaded.rules[0]
    assert rule.say is not None
    assert rule.say.parts == ("echo ${HOME_OF_TESTS} ${UNSET_NAME:-x}",)
    assert rule.calls[0].arguments["a"].parts == ("${HOME_OF_TESTS}",)


def test_delay_and_pace_at_the_top_hold_for_rules_without_their_own(tmp_path: Path) -> None:
    loaded = script(
        tmp_path,
        """
        delay: 0.5
        pace: 0.25
        rules:
          - say: a
          - {say: b, delay: 0, pace: 1}
        """,
    )
    assert [(rule.delay, rule.pace) for rule in loaded.rules[:2]] == [(0.5, 0.25), (0.0, 1.0)]


def test_models_are_those_listed_and_those_that_rules_ask_for(tmp_path: Path) -> None:
    named = script(tmp_path, "{models: [scripted, other], rules: [{say: a, when: {model: third}}]}")
    assert named.models == ("scripted", "other", "third")
    assert script(tmp_path, "rules: [{say: a}]").models == ("scripted",)
