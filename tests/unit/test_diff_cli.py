"""`pallas diff` on recordings in folders and archives: text in 80 columns, JSON, and the status for CI."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.invented_runs import Call, Plot, Turn, recorded
from pallas.cli.app import run
from pallas.cli.resources.text_tables import cells_in
from pallas.model import RunVersion
from pallas.recordings.recording_folder import archive_of, write

LAMPS = Call("find", {"what": "lamps"}, "three lamps")
LOOKS = Turn("I look.", (LAMPS,))
PLOT = Plot(
    "How many?", (LOOKS, Turn("Again.", (LAMPS,)), Turn("I think.", (Call("think"),)), Turn("Three."))
)
LONG = "灯 " * 60 + "a" * 200
OTHER = replace(
    PLOT,
    instructions="You are a careful agent.\nDo no harm.",
    tools={"find": "Find a lamp.", "lend": "Lend it."},
    turns=(
        PLOT.turns[2],
        PLOT.turns[0],
        replace(PLOT.turns[1], calls=(replace(LAMPS, result=LONG), Call("lend", {"to": LONG}))),
        Turn("Four."),
    ),
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, (name, plot) in enumerate({"a": PLOT, "same": PLOT, "b": OTHER}.items()):
        write(recorded(plot, number), Path(name))
        Path(f"{name}.tar").write_bytes(archive_of(recorded(plot, number)))


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = run(["diff", *words])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("other", ["same", "same.tar", "./same"])
def test_runs_that_differ_in_ids_only_are_the_same(other: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capsys, "a", other, "--exit-code")
    assert (status, err) == (0, "")
    assert re.fullmatch(
        rf"- a: 7 steps, \d+ tokens in, \d+ out, 0\.\d\d s\n\+ {re.escape(other)}: 7 steps, .*\n"
        r"Nothing differs but ids, tokens and time\.\n",
        out,
    )


def test_the_tree_and_the_details_of_each_difference_fit_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, err = said(capsys, "a", "b.tar")
    assert (status, err) == (0, "")
    assert max(cells_in(line) for line in out.splitlines()) <= 80
    assert "\x1b" not in out
    tree, _, details = out.partition("\n\n~ run of research\n")
    assert [line[:35].rstrip() for line in tree.splitlines()[2:]] == [
        "They differ first at step 5 of the",
        "    (moved, instructions, tools)",
        "",
        "= same   ~ changed   + only in the",
        "~          run of research  answer",
        ">   5   1    model scripted  instru",
        "= 3 steps",
        "~   3   5    model scripted  answer",
        "~   4   6      tool find  result  {",
        '+       7      tool lend  {"to": "灯',
        "~   7   8    model scripted  answer",
    ]
    for words in (
        "answer\n  [-Three-]{+Four+}.\n",
        "  You are a [-helpful agent-]{+careful agent.+}\n  {+Do no harm+}.\n",
        '  lend: {+{"description": "Lend it.", "name": "lend"}+}\n',
        '  call find {"what": "lamps"}\n  {+call lend {"to": "',
        "result\n  [-three lamps-]{+灯",
    ):
        assert words in details


def test_all_steps_are_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "a", "same", "--all")
    assert "=   1   1    model scripted  call find" in out
    assert out.count("\n=") == 1 + 8
    assert "they differ" not in out.lower()


def test_the_status_is_one_if_runs_differ_and_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "a", "b", "--exit-code")[0] == 1
    assert said(capsys, "a", "b")[0] == 0
    assert said(capsys, "a", "b", "-o", "json", "--exit-code")[0] == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("a", "./nowhere"), "pallas diff: nowhere: there is no such folder or archive"),
        (("a", "."), "pallas diff: .: no recording, for it has no recording.yaml"),
        (("a", "text.tar"), "pallas diff: text.tar: no tar archive"),
        (
            ("a", "3f1c9a0e7b52"),
            "3f1c9a0e7b52: there is no such folder or archive here, so it was read as the id of a run",
        ),
        (("a", "b", "-o", "yaml"), "pallas diff: --output yaml: allowed: text, json"),
    ],
)
def test_what_cannot_be_read_is_an_error(
    words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("text.tar").write_text("no archive")
    status, out, err = said(capsys, *words)
    assert (status, out) == (2, "")
    assert why in err


def test_json_has_both_texts_of_each_difference(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "a", "b", "-o", "json")
    found: dict[str, Any] = json.loads(out)
    assert (found["isSame"], found["first"]["steps"], found["second"]["steps"]) == (False, 7, 8)
    rows = found["rows"]
    assert [(each["depth"], each["mark"], each["kind"], each["name"]) for each in rows] == [
        (0, "changed", "run", "research"),
        (1, "moved", "model", "scripted"),
        (1, "changed", "model", "scripted"),
        (2, "changed", "tool", "find"),
        (2, "inserted", "tool", "lend"),
        (1, "changed", "model", "scripted"),
    ]
    assert rows[found["firstDivergence"]] is rows[1]
    assert (rows[4]["first"], rows[4]["second"]["step"]) == (None, 7)
    (result,) = rows[3]["changes"]
    assert (result["part"], result["first"], result["second"]) == ("result", "three lamps", LONG)
    assert result["words"] == [["-", "three lamps"], ["+", LONG]]
    everything = json.loads(said(capsys, "a", "b", "-o", "json", "--all")[1])
    assert len(everything["rows"]) == 9


def test_colour_is_for_terminals(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = said(capsys, "a", "b")[1]
    assert "\x1b[31m[-Three-]\x1b[0m\x1b[32m{+Four+}\x1b[0m." in out
    plain = re.sub(r"\x1b\[\d+m", "", out)
    assert max(cells_in(line) for line in plain.splitlines()) <= 60
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in said(capsys, "a", "b")[1]


def test_another_version_is_told_and_is_no_difference(capsys: pytest.CaptureFixture[str]) -> None:
    found = recorded(PLOT, 3)
    for name, version in {
        "one": RunVersion(1, "aa", "bb", "cc"), "two": RunVersion(2, "dd", "ee", "cc"),
        "started-again": RunVersion(3, "aa", "bb", "cc"), "uncertain": RunVersion(1, "", "bb", "cc"),
    }.items():  # fmt: skip
        write(replace(found, runs=(replace(found.first, version=version), *found.runs[1:])), Path(name))
    status, out, _ = said(capsys, "one", "two", "--exit-code")
    assert status == 0
    assert out.splitlines()[2:] == [
        "research: version 1 -> 2, with other files and instruction",
        "Nothing differs but versions, ids, tokens and time.",
    ]
    for other in ("started-again", "uncertain", "a"):
        assert said(capsys, "one", other)[1].splitlines()[2:] == ["Nothing differs but ids, tokens and time."]
    told = json.loads(said(capsys, "one", "two", "-o", "json")[1])
    assert (told["isSame"], told["rows"]) == (True, [])
    others = {"servers": {}, "code": "", "settings": ""}
    assert told["versions"] == [
        {
            "agent": "research",
            "parts": ["files", "instruction"],
            "first": {"number": 1, "files": "aa", "instruction": "bb", "tools": "cc", **others},
            "second": {"number": 2, "files": "dd", "instruction": "ee", "tools": "cc", **others},
        }
    ]
