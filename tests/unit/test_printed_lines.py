"""What agents' code prints becomes records with its name; a traceback is one."""

import io
import json
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until

from pallas.telemetry.log import close_logging, setup_logging
from pallas.telemetry.log.printed_lines import OutputLog, PrintedLines
from pallas.telemetry.trace_context import working_as


class Log:
    """The records of one source."""

    def __init__(self) -> None:
        self.records: list[logging.LogRecord] = []
        self.output = OutputLog("pallas.agents.desk", {"agent": "desk"}, self.records.append)

    def take(self, text: str) -> None:
        for line in text.splitlines():
            self.output.take(line)

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(each.levelname, each.getMessage()) for each in self.records]


@pytest.fixture
def log(log_file: Path) -> Log:
    return Log()


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    yield setup_logging("info", path=tmp_path / "pallas.log", stderr=False)
    close_logging()


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def chained() -> str:
    try:
        try:
            raise LookupError("the first")
        except LookupError as error:
            raise ValueError("the second\nof two lines") from error
    except ValueError:
        return traceback.format_exc()


DRAWN = """\
                             ╭─ Traceback (most recent call last─╮
                             │ ValueError: not this              │
                             ╰───────────────────────────────────╯
                             ValueError: month must be in 1..12
"""


def test_a_traceback_with_its_cause_is_one_record(log: Log) -> None:
    log.take("before\n" + chained() + "after")
    log.output.flush()
    assert log.said[:2] == [("INFO", "before"), ("WARNING", "ValueError: the second")]
    assert log.said[-1] == ("INFO", "after")
    text = log.records[1].exc_text or ""
    assert text.startswith("Traceback (most recent call last):")
    assert "LookupError: the first" in text
    assert text.endswith("ValueError: the second")


async def test_a_traceback_is_written_though_nothing_follows(log: Log) -> None:
    log.take(DRAWN)
    assert log.said == []
    await until(lambda: log.said == [("WARNING", "ValueError: month must be in 1..12")])


def test_a_call_that_fails_takes_the_traceback_of_its_server(log: Log) -> None:
    log.take(DRAWN)
    assert "month must be" in log.output.take_traceback()
    assert log.output.take_traceback() == ""
    log.output.flush()
    assert log.said == []


def test_a_flood_and_a_traceback_without_an_end_are_bounded(log: Log) -> None:
    log.take("Traceback (most recent call last):\n" + "  and so on\n" * 50_000)
    log.output.flush()
    assert len(log.records) < 500
    assert sum(len(each.exc_text or "") for each in log.records) < 1_000_000
    assert any("more lines were left out" in text for _, text in log.said)


def test_what_an_agent_prints_has_its_name_and_other_text_goes_on(log_file: Path) -> None:
    beside = io.StringIO()
    stream = PrintedLines(beside, "stdout")
    print("of the fleet", file=stream)
    with working_as("desk"):
        print("half", end=" ", file=stream)
        print("a line\nand \x1b[31mred", file=stream)
    with working_as("shop"):
        print("never ended", end="", file=stream)
    stream.end()
    assert beside.getvalue() == "of the fleet\n"
    told = [(each["agent"], each["message"], each["source"]) for each in records(log_file)]
    assert told == [
        ("desk", "half a line", "stdout"),
        ("desk", "and ␛[31mred", "stdout"),
        ("shop", "never ended", "stdout"),
    ]


def test_it_is_shown_as_well_where_that_is_wanted(log_file: Path) -> None:
    beside, heard = io.StringIO(), list[str]()
    stream = PrintedLines(beside, "stderr", passes=True, on_line=heard.append)
    with working_as("desk"):
        print("a question? ", end="", file=stream)
        assert beside.getvalue() == "a question? "
        print("yes", file=stream)
    assert heard == ["a question? yes"]
    assert [each["message"] for each in records(log_file)] == ["a question? yes"]


def test_a_handler_that_prints_the_log_does_not_go_round(log_file: Path) -> None:
    beside = io.StringIO()
    stream = PrintedLines(beside, "stderr")
    own = logging.getLogger("an.agent")
    handler = logging.StreamHandler(stream)  # type: ignore[type-var]
    own.addHandler(handler)
    try:
        with working_as("desk"):
            own.warning("heard")
    finally:
        own.removeHandler(handler)
    assert {each["message"] for each in records(log_file)} == {"heard"}
    assert beside.getvalue() == ""
