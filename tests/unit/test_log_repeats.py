"""A warning that repeats is one line of the log with a count."""

import json
import logging
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pallas.telemetry.log import close_logging, setup_logging
from pallas.telemetry.log.repeats import INTERVAL_S, MOST, Repeats

LATER = INTERVAL_S + 1


class Log:
    """What is written of the records that are logged, with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.written: list[logging.LogRecord] = []
        self._repeats = Repeats(lambda: self.now)

    def log(self, text: str, *args: object, level: int = logging.ERROR, **extra: object) -> None:
        values = {"name": "some.library", "levelno": level, "msg": text, "args": args, **extra}
        self.written += self._repeats.admit(logging.makeLogRecord(values))

    def end(self) -> None:
        self.written += self._repeats.rest()

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self.written]

    @property
    def counts(self) -> list[int]:
        return [getattr(record, "repeated", 0) for record in self.written]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    yield setup_logging("info", path=tmp_path / "pallas.log", stderr=False)
    close_logging()


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_the_first_is_on_disk_at_once_and_the_file_ends_with_the_count(log_file: Path) -> None:
    for _ in range(20):
        logging.getLogger("some.library").error("cannot connect to %s", "neo4j", extra={"agent": "desk"})
        assert [each["message"] for each in records(log_file)] == ["cannot connect to neo4j"]
    close_logging()
    first, count = records(log_file)
    assert count["message"].startswith("cannot connect to neo4j (repeated 19 times since ")
    assert (count["repeated"], count["agent"], count["level"]) == (19, "desk", "ERROR")
    assert "repeated" not in first


def test_a_failure_that_goes_on_is_a_line_every_five_minutes(log: Log) -> None:
    for _ in range(61):  # a quarter of an hour, every 15 seconds
        log.log("cannot connect")
        log.now += 15
    assert log.counts == [0, 19, 19, 19]
    assert log.lines[1].startswith("cannot connect (repeated 19 times since ")


def test_what_stopped_is_counted_with_the_next_record_of_any_kind(log: Log) -> None:
    log.log("cannot connect")
    log.log("cannot connect")
    log.now += LATER
    log.log("hello", name="another", level=logging.INFO)
    assert log.counts == [0, 1, 0]
    assert log.lines[1].startswith("cannot connect (repeated once since ")
    log.log("cannot connect")
    assert log.lines[-1] == "cannot connect"


def test_a_failure_after_good_news_is_a_new_one(log: Log) -> None:
    about = {"agent": "desk", "downstream": "echo"}
    for _ in range(3):
        log.log("is missing", **about)
    log.log("is missing", agent="desk", downstream="other")
    log.log("is connected again", level=logging.INFO, **about)
    log.log("is missing", **about)
    log.log("is missing", agent="desk", downstream="other")
    assert log.counts == [0, 0, 2, 0, 0]
    assert log.lines[-1] == "is missing"


@pytest.mark.parametrize(
    ("text", "other", "is_one"),
    [
        ("slow: 0.25 s", "slow: 1.75 s", True),
        ("<Task 0x7f01aa> failed", "<Task 0x7f02bb> failed", True),
        ("Task-12 was lost", "Task-345 was lost", True),
        ("no answer of shop1", "no answer of shop2", False),
        ("cannot connect to 10.0.0.7:8001", "cannot connect to 10.0.0.8:8001", False),
    ],
)
def test_what_differs_in_a_figure_alone_is_a_repetition(
    log: Log, text: str, other: str, is_one: bool
) -> None:
    log.log("%s", text)
    log.log("%s", other)
    assert len(log.written) == (1 if is_one else 2)


@pytest.mark.parametrize(
    "extra",
    [
        {"level": logging.INFO},
        {"run_id": "0a53be301281"},
        {"source": "stderr"},
        {"name": "pallas.audit"},
    ],
)
def test_each_run_and_refusal_and_printed_line_is_written(log: Log, extra: dict[str, Any]) -> None:
    for _ in range(5):
        log.log("again", **extra)
    assert log.lines == ["again"] * 5


def test_agents_servers_levels_and_exceptions_are_told_apart(log: Log) -> None:
    different: list[dict[str, Any]] = [
        {},
        {"agent": "desk"},
        {"agent": "shop"},
        {"agent": "shop", "downstream": "echo"},
        {"agent": "shop", "server": "other"},
        {"level": logging.WARNING},
        {"name": "another"},
        {"exc_info": (ValueError, ValueError("x"), None)},
        {"exc_info": (OSError, OSError("x"), None)},
    ]
    for _ in range(2):
        for each in different:
            log.log("failed", **each)
    assert len(log.written) == len(different)


def test_no_count_is_lost_when_there_are_too_many_to_remember(log: Log) -> None:
    for number in range(MOST + 50):
        for _ in range(3):
            log.log("server %d failed", number)
    log.end()
    assert sum(log.counts) == 2 * (MOST + 50)
    assert len(log.written) == 2 * (MOST + 50)


def test_a_repetition_keeps_nothing_alive(log: Log) -> None:
    def fail(load: bytes) -> None:
        try:
            raise ValueError(len(load))
        except ValueError:
            log.log("failed", exc_info=sys.exc_info())

    repeated(fail)
    tracemalloc.start()
    try:
        repeated(fail)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000
    assert log.counts == [0]


def repeated(fail: Callable[[bytes], None]) -> None:
    for _ in range(5):
        fail(bytes(1_000_000))


def test_a_text_that_cannot_be_made_is_no_trouble(log: Log) -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no")

    for _ in range(3):
        log.log(Odd())  # type: ignore[arg-type]
        log.log("%d", "x")
    log.end()
    assert len(log.written) == 4
    log.log("nameless", name=None)
    log.log("nameless", name=None)
    assert [record.msg for record in log.written[4:]] == ["nameless"] * 2
