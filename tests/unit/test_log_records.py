"""What a line of the log looks like."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas.safe_text import sanitize
from pallas.telemetry.log.json_lines import MAX_EXTRA, MAX_MESSAGE, MAX_TRACEBACK, JsonLines


def _line(message: Any, *args: object, exc_info: Any = None, **extra: object) -> str:
    record = logging.LogRecord("pallas.fleet", logging.WARNING, __file__, 1, message, args, exc_info)
    vars(record).update(extra)
    return JsonLines().format(record)


def test_a_line_begins_with_time_level_logger_message() -> None:  # PR-35
    fields = json.loads(_line("%s is %d", "x", 3, agent="harper", run_id="r1", created=1_700_000_000.25))
    assert list(fields) == ["time", "level", "logger", "message", "agent", "run_id"]
    assert fields["time"] == "2023-11-14T22:13:20.250Z"
    assert (fields["level"], fields["logger"], fields["message"]) == ("WARNING", "pallas.fleet", "x is 3")


def test_the_whole_traceback_is_in_exc() -> None:
    def origin() -> None:
        raise LookupError("the first cause")

    try:
        try:
            origin()
        except LookupError as error:
            raise RuntimeError("the second") from error
    except RuntimeError:
        exc = json.loads(_line("failed", exc_info=sys.exc_info()))["exc"]
    assert exc.startswith("Traceback (most recent call last):")
    assert "in origin" in exc
    assert "LookupError: the first cause" in exc
    assert exc.endswith("RuntimeError: the second")


def test_extras_never_stand_over_the_fixed_keys() -> None:
    fields = json.loads(_line("x", time="t", level="l", logger="g", exc="e"))
    assert (fields["level"], fields["logger"], fields["message"]) == ("WARNING", "pallas.fleet", "x")
    assert (fields["time_"], fields["level_"], fields["logger_"], fields["exc_"]) == ("t", "l", "g", "e")


class _Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_no_record_is_lost_to_a_mistake_in_the_call() -> None:
    assert json.loads(_line("%d tools", "three"))["message"] == "%d tools ('three',)"
    assert json.loads(_line("%s %s", "one"))["message"] == "%s %s ('one',)"
    assert json.loads(_line("%s", _Hostile()))["message"].startswith("%s ")
    assert json.loads(_line("x", thing=_Hostile()))["thing"] == "<_Hostile>"


def test_any_extra_becomes_json() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    line = _line("x", nan=float("nan"), huge=10**30, loop=loop, path=Path("a/b"), bytes=b"\xff", items={1})
    fields = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert fields["nan"] == "nan"
    assert fields["huge"] == str(10**30)
    assert fields["path"] == "a/b"
    assert fields["items"] == [1]


def test_long_texts_are_cut_and_say_so() -> None:
    fields = json.loads(_line("m" * 1_000_000, note="n" * 1_000_000, many=list(range(10_000))))
    assert len(fields["message"]) < MAX_MESSAGE + 100
    assert fields["message"].endswith(f"[{1_000_000 - MAX_MESSAGE} characters left out]")
    assert len(fields["note"]) < MAX_EXTRA + 100
    assert len(fields["many"]) == 100
    try:
        raise RuntimeError("e" * 1_000_000)
    except RuntimeError:
        assert len(json.loads(_line("x", exc_info=sys.exc_info()))["exc"]) < MAX_TRACEBACK + 100


@given(st.text(max_size=80))
def test_a_line_is_one_line_and_holds_no_control_character(text: str) -> None:
    line = _line("%s", text, extra=text)
    assert sanitize(line) == line
    assert "\n" not in line
    assert "\t" not in line
    assert json.loads(line)["extra"] == json.loads(line)["message"]
    line.encode()


def test_terminal_escapes_are_escaped_and_come_back_whole() -> None:
    hostile = "\x1b]52;c;AAAA\x07 \x9b2J \u202e \x7f \ud800 \u2028"
    line = _line(hostile)
    assert "\\u001b" in line
    assert "\\u009b" in line
    assert "\\u202e" in line
    assert json.loads(line)["message"] == hostile


def test_the_jq_recipe_of_the_docs_prints_each_line(tmp_path: Path) -> None:  # PR-35
    docs = Path(__file__).parents[2] / "docs" / "logging.md"
    recipe = next(line for line in docs.read_text().splitlines() if line.startswith("tail -n 100"))
    file = tmp_path / "pallas.log"
    file.write_text(_line("hello") + "\n" + _line("two\nlines") + "\n")
    # The recipe follows the file for ever; a test reads it once.
    command = recipe.replace(" -f ", " ").replace("~/.local/state/pallas/pallas.log", str(file))
    assert str(file) in command
    try:
        subprocess.run(["jq", "--version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("jq is not installed")
    printed = subprocess.run(
        command, shell=True, check=True, capture_output=True, text=True, timeout=30
    ).stdout
    assert "WARNING pallas.fleet hello\n" in printed
    assert "WARNING pallas.fleet two\nlines\n" in printed
