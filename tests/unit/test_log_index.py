import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from support.waiting import until

from pallas_tui.widgets.logs import log_source
from pallas_tui.widgets.logs.log_index import LEVELS, Index, OpenLogFile, lines_before, scan
from pallas_tui.widgets.logs.log_record import as_json, as_text, parse, title_of
from pallas_tui.widgets.logs.log_source import LogSource


def record(number: int, level: str = "INFO", **more: object) -> bytes:
    data = {"time": f"2026-06-01T12:00:{number % 60:02}+00:00", "level": level, "logger": "x", **more}
    return json.dumps({**data, "message": f"line {number}"}).encode() + b"\n"


def write(path: Path, lines: Iterable[bytes], mode: str = "ab") -> None:
    with path.open(mode) as file:
        file.write(b"".join(lines))


def contents(source: LogSource) -> list[str]:
    numbers = [source.rows.number(row) for row in range(len(source.rows))]
    texts = [source.read(number, 10_000)[0].decode("utf-8", "replace") for number in numbers]
    return [
        json.loads(text)["message"] if text.startswith("{") and text.endswith("}") else text for text in texts
    ]


def expected(numbers: Iterable[int]) -> list[str]:
    return [f"line {number}" for number in numbers]


class Followed:
    """A source that is being followed."""

    def __init__(self, path: Path, slice_size: int) -> None:
        self.published: list[int] = []
        self.source = LogSource(path, self._changed, slice_size=slice_size)
        self.task = asyncio.create_task(self.source.follow())

    def _changed(self) -> None:
        self.published.append(len(self.source.rows))

    async def until_it_has(self, texts: list[str]) -> None:
        try:
            await until(lambda: contents(self.source) == texts)
        except AssertionError:
            assert contents(self.source) == texts


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_source, "POLL", 0.02)


@pytest.fixture(params=[200, 1024 * 1024])
async def followed(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Followed]:
    # PR-35
    followed = Followed(tmp_path / "pallas.log", request.param)
    yield followed
    followed.task.cancel()
    followed.source.close()


def test_lines_are_found_with_their_levels() -> None:
    data = (
        record(1, "ERROR")
        + b"not json\n\n"
        + record(2, "warning")
        + b'{"a": {"x": 1}, "level":"CRITICAL"}\n'
        + json.dumps({"message": 'says "level": "ERROR"', "level": "DEBUG"}).encode()
    )
    found = scan(data, 1_000)
    assert [LEVELS[level] for level in found.levels] == ["ERROR", "", "WARNING", "CRITICAL", "DEBUG"]
    assert found.open
    assert found.end == 1_000 + len(data)
    starts = [start - 1_000 for start in found.starts]
    assert [data[start : start + 3] for start in starts] == [b'{"t', b"not", b'{"t', b'{"a', b'{"m']


def test_the_level_is_that_of_the_record_and_not_one_within_a_value_before_it() -> None:
    nested = b'{"request": {"level": "ERROR", "a": "{\\""}, "level": "INFO", "message": "a"}\n'
    texts = b'{"message": "{\\"level\\": \\"ERROR\\"}", "list": [{"level": "DEBUG"}], "level": "WARNING"}\n'
    only_nested = b'{"request": {"level": "ERROR"}, "message": "a"}\n'
    usual = record(1, "INFO")
    for order in ((nested, texts, only_nested, usual), (usual, nested, texts, only_nested)):
        found = scan(b"".join(order), 0)
        wanted = {nested: "INFO", texts: "WARNING", only_nested: "", usual: "INFO"}
        assert [LEVELS[number] for number in found.levels] == [wanted[line] for line in order]


def test_nothing_has_no_lines() -> None:
    assert not scan(b"", 0).starts
    assert not scan(b"\n\n\n", 0).starts
    assert not scan(b"\n\n", 0).open


def test_whole_lines_are_read_backwards(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n" + b"x" * 500 + b"\nlast\n")
    file = OpenLogFile.open(path)
    assert file is not None
    assert lines_before(file, file.state[0], 8) == (509, b"last\n")
    start, data = lines_before(file, 509, 16)  # a line longer than a slice is read in one piece
    assert data.endswith(b"x\n")
    assert data.count(b"x") == 500
    assert b"\n" not in data[: data.index(b"x")].rstrip(b"two\none")
    assert lines_before(file, start, 1_000)[0] == 0
    file.close()
    assert file.read(0, 10) == b""


def test_lines_keep_their_numbers_when_older_ones_are_found(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\nbb\nccc\ndddd\n")
    file = OpenLogFile.open(path)
    assert file is not None
    index = Index()
    index.append(file, scan(b"ccc\ndddd\n", 5))
    assert index.read(0, 100) == (b"ccc", 4)
    index.prepend(file, scan(b"a\nbb\n", 0))
    assert [index.read(number, 100)[0] for number in range(-2, 2)] == [b"a", b"bb", b"ccc", b"dddd"]
    assert index.read(1, 2) == (b"dd", 5)
    assert index.read(2, 100) == (b"", 0)
    assert index.trim(2)
    assert (index.first, index.stop) == (0, 2)
    assert index.read(-1, 100) == (b"", 0)


async def test_a_log_is_shown_from_its_end_and_then_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "pallas.log"
    write(path, (record(number) for number in range(12_000)))
    followed = Followed(path, 64 * 1024)
    try:
        await until(lambda: followed.published)
        first = followed.published[0]
        assert 0 < first < 12_000  # the tail, before the rest was read
        await followed.until_it_has(expected(range(12_000)))
    finally:
        followed.task.cancel()
        followed.source.close()


async def test_what_is_appended_appears(followed: Followed) -> None:
    path = followed.source.path
    await until(lambda: not followed.source.exists)
    write(path, [record(1)])
    await followed.until_it_has(expected([1]))
    write(path, (record(number) for number in range(2, 50)))
    await followed.until_it_has(expected(range(1, 50)))


async def test_a_line_that_is_still_being_written_grows(followed: Followed) -> None:
    path = followed.source.path
    line = record(2, padding="x" * 300)
    write(path, [record(1), line[:50]])
    await followed.until_it_has(["line 1", line[:50].decode()])
    write(path, [line[50:], record(3)])
    await followed.until_it_has(expected([1, 2, 3]))


async def test_a_rotated_log_goes_on_and_what_was_read_stays(followed: Followed) -> None:
    path = followed.source.path
    write(path, (record(number) for number in range(20)))
    await followed.until_it_has(expected(range(20)))
    write(path, [record(20)])
    path.replace(path.with_name(f"{path.name}.1"))
    write(path, [record(21)])
    await followed.until_it_has(expected(range(22)))
    path.with_name(f"{path.name}.1").replace(path.with_name(f"{path.name}.2"))
    path.replace(path.with_name(f"{path.name}.1"))
    write(path, [record(22)])
    await followed.until_it_has(expected(range(23)))


async def test_rotated_files_are_the_history_of_a_log(followed: Followed) -> None:
    followed.task.cancel()
    path = followed.source.path
    for number in (3, 2, 1):
        write(
            path.with_name(f"{path.name}.{number}"),
            (record(n) for n in range(30 - 10 * number, 40 - 10 * number)),
        )
    write(path, [record(30)])
    followed.task = asyncio.create_task(followed.source.follow())
    await followed.until_it_has(expected(range(31)))


async def test_an_older_file_that_comes_later_stands_before_what_is_read(followed: Followed) -> None:
    # A fleet elsewhere: its newest lines are fetched first
    path = followed.source.path
    write(path, (record(n) for n in range(10, 20)))
    await followed.until_it_has(expected(range(10, 20)))
    await until(lambda: followed.source._complete)
    kept = followed.source.rows.number(3)
    write(path.with_name("other"), (record(n) for n in range(10)))
    path.with_name("other").replace(path.with_name(f"{path.name}.1"))
    await followed.until_it_has(expected(range(20)))
    assert b"line 13" in followed.source.read(kept, 10_000)[0]


async def test_a_log_that_was_rotated_many_times_unseen_has_all_its_lines(followed: Followed) -> None:
    path = followed.source.path
    write(path, (record(n) for n in range(10)))
    await followed.until_it_has(expected(range(10)))
    followed.task.cancel()
    await asyncio.wait({followed.task})
    write(path, [record(10)])
    for number in range(11, 16):  # more of them than the viewer was ever told of
        for older in range(8, 0, -1):
            if (before := path.with_name(f"{path.name}.{older}")).exists():
                before.replace(path.with_name(f"{path.name}.{older + 1}"))
        path.replace(path.with_name(f"{path.name}.1"))
        write(path, [record(number)])
    followed.task = asyncio.create_task(followed.source.follow())
    await followed.until_it_has(expected(range(16)))


async def test_a_log_whose_files_went_away_unseen_goes_on_with_what_is_there(
    followed: Followed,
) -> None:
    path = followed.source.path
    write(path, [record(1)])
    await followed.until_it_has(expected([1]))
    followed.task.cancel()
    await asyncio.wait({followed.task})
    path.unlink()
    write(path.with_name(f"{path.name}.1"), [record(7)])
    write(path, [record(8)])
    followed.task = asyncio.create_task(followed.source.follow())
    await followed.until_it_has(expected([1, 7, 8]))


async def test_a_record_that_another_process_puts_into_the_rotated_file_is_shown(followed: Followed) -> None:
    path = followed.source.path
    write(path, [record(1)])
    await followed.until_it_has(expected([1]))
    path.replace(path.with_name(f"{path.name}.1"))
    write(path, [record(2)])
    await followed.until_it_has(expected([1, 2]))
    write(path.with_name(f"{path.name}.1"), [record(3)])
    await followed.until_it_has(expected([1, 2, 3]))
    write(path, [record(4)])
    await followed.until_it_has(expected([1, 2, 3, 4]))


async def test_a_log_that_is_copied_and_truncated_keeps_its_history(followed: Followed) -> None:
    path = followed.source.path
    write(path, (record(n) for n in range(20)))
    await followed.until_it_has(expected(range(20)))
    path.with_name(f"{path.name}.1").write_bytes(path.read_bytes())
    write(path, [record(20)], "wb")
    await followed.until_it_has(expected(range(21)))
    epoch = followed.source.index.epoch
    assert epoch > 0  # numbers are given again: who keeps what a line said must notice


async def test_a_truncated_log_begins_anew(followed: Followed) -> None:
    path = followed.source.path
    write(path, (record(number) for number in range(20)))
    await followed.until_it_has(expected(range(20)))
    write(path, [record(100)], "wb")
    await followed.until_it_has(expected([100]))
    write(path, [record(101)])
    await followed.until_it_has(expected([100, 101]))


async def test_a_log_that_was_rewritten_begins_anew(followed: Followed) -> None:
    path = followed.source.path
    write(path, [record(1)])
    await followed.until_it_has(expected([1]))
    write(path, [record(2)], "wb")  # as long as before
    await followed.until_it_has(expected([2]))
    write(path, (record(number) for number in range(30, 90)), "wb")
    await followed.until_it_has(expected(range(30, 90)))


async def test_a_deleted_log_stays_readable_and_a_new_one_is_found(followed: Followed) -> None:
    path = followed.source.path
    write(path, [record(1)])
    await followed.until_it_has(expected([1]))
    path.unlink()
    assert contents(followed.source) == ["line 1"]
    write(path, [record(2)])
    await followed.until_it_has(expected([1, 2]))


async def test_a_pause_loses_nothing(followed: Followed) -> None:
    path, source = followed.source.path, followed.source
    write(path, (record(number) for number in range(30)))
    await followed.until_it_has(expected(range(30)))
    followed.task.cancel()
    await asyncio.wait({followed.task})
    write(path, (record(number) for number in range(30, 40)))
    assert contents(source) == expected(range(30))
    followed.task = asyncio.create_task(source.follow())
    await followed.until_it_has(expected(range(40)))


async def test_cancelling_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pallas.log"
    write(path, (record(number) for number in range(4_000)))
    source = LogSource(path, slice_size=2_000)
    moment, known = 0.0005, 0
    for attempt in range(10_000):
        task = asyncio.create_task(source.follow())
        await asyncio.wait({task}, timeout=moment * (attempt % 20))
        task.cancel()
        await asyncio.wait({task})
        if len(source.index) >= 4_000 and not source.busy:
            break
        if attempt % 20 == 19:  # a machine that got nowhere in that time needs more of it
            moment, known = moment * (1 + (len(source.index) == known)), len(source.index)
    numbers = range(source.index.first, source.index.stop)
    assert [json.loads(source.read(number, 9_999)[0])["message"] for number in numbers] == expected(
        range(4_000)
    )
    source.close()


async def test_a_log_that_cannot_be_opened_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    followed = Followed(tmp_path / "log" / "pallas.log", 1_000)
    try:
        assert not followed.source.exists
        write(followed.source.path, [record(1)])
        await followed.until_it_has(expected([1]))
    finally:
        followed.task.cancel()
        followed.source.close()


def test_a_row_shows_what_a_record_says() -> None:
    line = record(1, "warning", agent="research", run_id="7f3a", exc="Trace\nback", n=3)
    row = parse(line, len(line))
    assert (row.level, row.logger, row.message) == ("WARNING", "x", "line 1")
    assert row.extra == "agent=research run_id=7f3a exc=Trace n=3"
    assert row.time.endswith(":01.000")


def test_what_is_not_a_record_is_shown_as_it_stands() -> None:
    for line in (b"plain text", b'["a", 1]', b'{"broken', b"42", b'{"a":' * 3_000):
        assert parse(line, len(line)).message == line[:4_096].decode()[: len(line)] or len(line) > 4_096
    assert parse(b"\xff\xfe", 2).message == "��"
    assert parse(b'{"time": true, "level": 7, "message": null}', 43).message == "None"


def test_hostile_records_cannot_drive_the_terminal() -> None:
    line = json.dumps(
        {"level": "INFO", "message": "\x1b[2J", "k\x1b": "\u202e", "exc": "a\n\x1b]0;x\x07"}
    ).encode()
    row = parse(line, len(line))
    data, text = as_json(line, len(line)), as_text(line, len(line))
    for shown in (row.message, row.extra, data, text, title_of(line)):
        assert not any(character in shown for character in "\x1b\u202e\x07")


def test_a_row_is_bounded_and_a_record_in_full_says_what_was_cut() -> None:
    long = json.dumps({"message": "x" * 20_000}).encode()
    assert len(parse(long, len(long)).message) == 4_096
    huge = json.dumps({"message": "x" * 200_000}).encode()
    assert len(parse(huge, len(huge)).message) == 4_096
    for text in (as_text(huge[:1_000], len(huge)), as_json(huge[:1_000], len(huge))):
        assert text.endswith("(the first 1,000 of 200,015 bytes)")


def test_a_record_in_full_has_its_traceback_on_lines_of_its_own() -> None:
    line = record(
        1, "ERROR", exc="Traceback (most recent call last):\n  File x\nValueError: no\n", run_id="7"
    )
    assert json.loads(as_json(line, len(line)))["run_id"] == "7"
    head, exc = as_text(line, len(line)).split("\n", 1)
    assert head.endswith("ERROR  x  line 1  run_id=7")
    assert exc == "exc:\nTraceback (most recent call last):\n  File x\nValueError: no"
    assert title_of(line).endswith("ERROR  x")
