import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import until

from pallas_tui.widgets.logs.log_index import ERROR, INFO, WARNING, Index, OpenLogFile, scan
from pallas_tui.widgets.logs.log_query import AllRows, LogQuery, Search, find
from pallas_tui.widgets.logs.log_source import LogSource


def line(number: int, level: str, message: str) -> bytes:
    return json.dumps({"n": number, "level": level, "message": message}).encode() + b"\n"


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def numbers(source: LogSource) -> list[int]:
    rows = source.rows
    return [json.loads(source.read(rows.number(row), 10_000)[0])["n"] for row in range(len(rows))]


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[LogSource]:
    path = tmp_path / "pallas.log"
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    texts = ("Connection refused", "all well", "Größe", 'with "quotes"')
    path.write_bytes(b"".join(line(n, levels[n % 4], texts[n // 4 % 4]) for n in range(400)))
    source = LogSource(path, slice_size=1_000)
    task = asyncio.create_task(source.follow())
    yield source
    task.cancel()
    source.close()


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (LogQuery(WARNING), lambda n: n % 4 >= 2),
        (LogQuery(text="connection REFUSED"), lambda n: n // 4 % 4 == 0),
        (LogQuery(ERROR, "refused"), lambda n: n % 4 == 3 and n // 4 % 4 == 0),
        (LogQuery(text="größe"), lambda n: n // 4 % 4 == 2),
        (LogQuery(text='with "quotes"'), lambda n: n // 4 % 4 == 3),
        (LogQuery(text=r'"\"n\": 17"'), lambda n: str(n).startswith("17")),
        (LogQuery(text="nowhere"), lambda n: False),
        (LogQuery(), lambda n: True),
    ],
)
async def test_level_and_text_choose_the_lines(source: LogSource, query: LogQuery, wanted: object) -> None:
    source.ask(query)
    expected = [n for n in range(400) if wanted(n)]  # type: ignore[operator]
    await until(lambda: len(source.index) == 400 and not source.busy and numbers(source) == expected)


async def test_the_newest_are_found_first_and_those_that_come_are_added(source: LogSource) -> None:
    await until(lambda: len(source.index) == 400)
    seen: list[list[int]] = []
    source.changed = lambda: seen.append(numbers(source))
    source.ask(LogQuery(ERROR))
    await until(lambda: not source.busy and len(source.rows) == 100)
    assert all(each == sorted(each) and each[-1:] in ([], [399]) for each in seen)
    with source.path.open("ab") as file:
        file.write(line(400, "INFO", "x") + line(401, "ERROR", "x"))
    await until(lambda: numbers(source)[-2:] == [399, 401])


async def test_another_question_takes_the_place_of_the_one_before(source: LogSource) -> None:
    source.ask(LogQuery(ERROR))
    source.ask(LogQuery(text="refused"))
    source.ask(LogQuery(ERROR, "well"))
    await until(lambda: not source.busy and numbers(source) == list(range(7, 400, 16)))
    source.ask(LogQuery())
    assert isinstance(source.rows, AllRows)
    assert len(source.rows) == 400


async def test_a_filtered_log_survives_truncation_and_an_unfinished_line(source: LogSource) -> None:
    source.ask(LogQuery(ERROR))
    await until(lambda: not source.busy and len(source.rows) == 100)
    half = line(1_000, "ERROR", "half")
    with source.path.open("ab") as file:
        file.write(half[:40])
    await until(lambda: len(source.rows) == 101)
    with source.path.open("ab") as file:
        file.write(half[40:])
    await until(lambda: numbers(source)[-2:] == [399, 1_000])
    source.path.write_bytes(line(1, "INFO", "new") + line(2, "ERROR", "new"))
    await until(lambda: numbers(source) == [2])


async def test_rows_that_were_published_stay_true_while_more_is_found(source: LogSource) -> None:
    await until(lambda: len(source.index) == 400)
    search = Search(LogQuery(ERROR), source.index)
    (part,) = search.upcoming(1)
    search.take(part, find(part, search.query))
    before = search.rows()
    content = [before.number(row) for row in range(len(before))]
    while parts := search.upcoming():
        for part in parts:
            search.take(part, find(part, search.query))
    assert search.done
    assert [before.number(row) for row in range(len(before))] == content
    assert len(search.rows()) == 100


@pytest.mark.slow
@given(
    lines=st.lists(st.tuples(st.sampled_from(["DEBUG", "INFO", "ERROR"]), st.text(max_size=30)), max_size=40),
    text=st.text(max_size=4),
    level=st.sampled_from([0, INFO, ERROR]),
    ascii_only=st.booleans(),
)
def test_every_line_that_holds_the_text_is_found(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[tuple[str, str]],
    text: str,
    level: int,
    ascii_only: bool,
) -> None:
    rank = {"DEBUG": 1, "INFO": 2, "ERROR": 4}
    data = b"".join(
        json.dumps({"level": name, "message": message}, ensure_ascii=ascii_only).encode("utf-8", "replace")
        + b"\n"
        for name, message in lines
    )
    path = tmp_path_factory.mktemp("log") / "pallas.log"
    path.write_bytes(data)
    file = OpenLogFile.open(path)
    assert file is not None
    index = Index()
    index.append(file, scan(data, 0))
    search = Search(LogQuery(level, quoted(text)), index)
    while parts := search.upcoming():
        for part in parts:
            search.take(part, find(part, search.query))
    rows = search.rows()
    found = {rows.number(row) for row in range(len(rows))}
    file.close()
    for number, (name, message) in enumerate(lines):
        if rank[name] < level:
            assert number not in found
        elif text in message:
            assert number in found


def test_a_row_is_found_by_its_number_or_the_next() -> None:
    rows = AllRows(-5, 5)
    assert [rows.row(number) for number in (-9, -5, 0, 4, 99)] == [0, 0, 5, 9, 10]
    assert rows.number(0) == -5
