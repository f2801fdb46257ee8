"""Words of the resource commands: kinds and names, tables, values of secrets, numbers."""

import io
import sys
from pathlib import Path

import pytest

from pallas.cli.delete import delete_named
from pallas.cli.get import LISTS
from pallas.cli.resources.create_resources import Defaults, parsed, secret_data
from pallas.cli.resources.fleet_requests import FleetLocation, Wrong, fault_text
from pallas.cli.resources.resource_kinds import DELETABLE, KINDS, NoSuchKind, kind_of, split
from pallas.cli.resources.resource_lists import conversation
from pallas.cli.resources.text_tables import cells_in, pairs, table
from pallas.model import Fault, FaultType


@pytest.mark.parametrize("word", ["agent", "agents", "Agents", " AGENT"])
def test_kinds_are_understood_in_singular_and_plural(word: str) -> None:
    assert kind_of(word).word == "agent"


def test_a_kind_that_there_is_not_gets_a_hint() -> None:
    with pytest.raises(NoSuchKind, match="did you mean secrets"):
        kind_of("secretts")
    with pytest.raises(NoSuchKind, match="tasks: no such kind; see pallas tasks list"):
        kind_of("tasks")
    with pytest.raises(NoSuchKind, match="there are " + ", ".join(KINDS)):
        kind_of("zebra")
    assert LISTS.startswith("agents, llms, secrets, ")
    assert LISTS.endswith(", replicas, limits, storage or costs")
    with pytest.raises(NoSuchKind):
        kind_of("runs", DELETABLE)


def test_kinds_and_names_stand_apart_or_with_a_slash() -> None:
    assert [(kind.word, name) for kind, name in split(["llms", "a", "b"])] == [("llm", "a"), ("llm", "b")]
    assert [(kind.word, name) for kind, name in split(["agent/a", "llm/b"])] == [("agent", "a"), ("llm", "b")]
    assert [(kind.word, name) for kind, name in split(["threads"])] == [("thread", "")]
    for words in (["agent/a", "b"], ["agent", "a", "llm/b"]):
        with pytest.raises(NoSuchKind, match="kind/name for each"):
            split(words)


def test_a_table_fits_the_terminal_and_is_whole_in_a_pipe() -> None:
    rows = [["reviewer", "a description that goes on and on" * 3], ["日本語", "x"]]
    narrow = table(["NAME", "DESCRIPTION"], rows, 40).split("\n")
    assert all(cells_in(line) <= 40 for line in narrow)
    assert narrow[1].endswith("…")
    wide = table(["NAME", "DESCRIPTION"], rows).split("\n")
    assert rows[0][1] in wide[1]
    # Columns begin at the same place whatever the letters' width.
    assert cells_in(wide[2].split("x")[0]) == wide[1].index("a description")
    assert "\x1b" not in table(["A"], [["\x1b[31m"]])


def test_facts_stand_below_one_another() -> None:
    assert pairs([("ID", "1"), ("Prompt", "a\nb")]) == "ID:       1\nPrompt:\n  a\n  b"


def test_values_of_secrets_come_from_files_and_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("from-file\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("from-stdin\n"))
    words = ["A=plain=1", f"B=@{tmp_path / 'key'}", "C=-", "D=@@at"]
    assert secret_data(words) == {"A": "plain=1", "B": "from-file", "C": "from-stdin", "D": "@at"}


@pytest.mark.parametrize(
    "words", [[], ["hush-hush"], ["=hush-hush"], ["A="], ["A=hush-hush", "A=x"], ["A=@/no/such"]]
)
def test_wrong_data_is_told_without_its_value(words: list[str]) -> None:
    with pytest.raises(Wrong) as told:
        secret_data(words)
    assert "hush-hush" not in str(told.value)


def test_stdin_is_for_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("x\n"))
    with pytest.raises(Wrong, match="one key only"):
        secret_data(["A=-", "B=-"])


def test_default_flags_lie_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text("temperature: 1\ntop_p: 0.5\nextra: {a: 1, b: 2}\n")
    flags = Defaults(temperature=0.2, stop=("x",), extra=("b=3.5", "c=yes", "d=true"), params_file=file)
    assert flags.params() == {
        "temperature": 0.2,
        "top_p": 0.5,
        "stop": ["x"],
        "extra": {"a": 1, "b": 3.5, "c": "yes", "d": True},
    }
    assert Defaults().params() == {}


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("1.5", 1.5), ("1e3", 1000.0), ("nan", "nan"), ("x", "x"), ("null", None)]
)
def test_numbers_are_numbers(text: str, value: object) -> None:
    assert parsed(text) == value


def test_a_thread_reads_like_a_conversation() -> None:
    shown = conversation(
        {
            "id": "t1",
            "agent": "reviewer",
            "title": "Stock",
            "messages": [
                {"role": "user", "content": "how many?", "status": "complete", "createdAt": None},
                {
                    "role": "assistant",
                    "content": "",
                    "status": "complete",
                    "toolCalls": [{"id": "1", "name": "shop__stock", "arguments": {"item": "lamp"}}],
                },
                {"role": "tool", "content": "7\nmore", "status": "complete"},
                {"role": "assistant", "content": "Seven.", "status": "error", "reason": "it broke"},
            ],
        }
    )
    assert shown.split("\n\n") == [
        "t1  reviewer  Stock",
        "user\n  how many?",
        'assistant\n  shop__stock(item="lamp")',
        "tool\n  → 7",
        "assistant  [error: it broke]\n  Seven.",
    ]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_on_a_terminal_nothing_is_deleted_without_a_yes(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal(answer))
    # Nothing is asked of a fleet: there is none, and no project.
    assert delete_named(["agent", "reviewer"], False, FleetLocation(tmp_path)) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Delete agent/reviewer and all its threads? [y/N]" in printed.err
    assert "nothing was deleted" in printed.err


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("defaultParams.temperature: must be less", "defaultParams.temperature: must be less"),
        ("temperature: must be less", "temperature: must be less"),
        ("must be less", "defaultParams.temperature: must be less"),
    ],
)
def test_a_refusal_names_its_key_once(message: str, line: str) -> None:
    assert fault_text(Fault(FaultType.PROTOCOL, message, data={"key": "defaultParams.temperature"})) == line
