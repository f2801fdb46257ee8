"""Finding within what a filter leaves, a record as a tree, and writing what is listed, without a screen."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rich.cells import cell_len
from support.waiting import until

from pallas_tui.json_file import JsonFile
from pallas_tui.text import UNICODE, width_of, wrapped
from pallas_tui.widgets.logs.log_export import Export, ExportError
from pallas_tui.widgets.logs.log_query import LogQuery
from pallas_tui.widgets.logs.log_source import LogSource
from pallas_tui.widgets.logs.record_tree import MAX_LINES, text_lines, tree_lines, value_at
from pallas_tui.widgets.logs.saved_filters import MOST, SavedFilters


def line(number: int) -> str:
    level = ("INFO", "ERROR")[number % 2]
    return json.dumps({"n": number, "level": level, "message": f"number {number}"}) + "\n"


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[LogSource]:
    path = tmp_path / "pallas.log"
    path.write_text("".join(line(number) for number in range(1_000)))
    source = LogSource(path, slice_size=2_000)
    task = asyncio.create_task(source.follow())
    await until(lambda: len(source.index) == 1_000 and not source.busy)
    yield source
    task.cancel()
    source.close()


def found(source: LogSource) -> list[int]:
    rows = source.found
    assert rows is not None
    return [json.loads(source.read(rows.number(row), 999)[0])["n"] for row in range(len(rows))]


async def test_a_regex_finds_within_what_the_filter_leaves(source: LogSource) -> None:
    source.find("number \\d*99")
    await until(lambda: not source.busy)
    every = found(source)
    assert every == [n for n in range(1_000) if "99" in str(n)]
    source.ask(LogQuery(text="level=info"))
    await until(lambda: not source.busy)
    assert found(source) == [n for n in every if n % 2 == 0]
    source.ask(LogQuery())
    await until(lambda: not source.busy)
    assert found(source) == every
    with source.path.open("a") as file:
        file.write(line(1_099) + line(2))
    await until(lambda: found(source) == [*every, 1_099])
    source.find("")
    assert source.found is None


async def test_where_a_line_stands_among_those_that_were_found(source: LogSource) -> None:
    source.find("number 50\\d")
    await until(lambda: not source.busy)
    rows = source.found
    assert rows is not None
    numbers = [rows.number(row) for row in range(len(rows))]
    assert [rows.place(number) for number in numbers] == list(range(1, 11))
    assert rows.place(numbers[0] - 1) == rows.place(numbers[-1] + 1) == rows.place(None) == 0
    assert source.is_searched_from(numbers[0])


async def test_what_is_listed_is_written_line_by_line(source: LogSource, tmp_path: Path) -> None:
    source.ask(LogQuery(text="n>=990"))
    await until(lambda: not source.busy)
    steps: list[int] = []
    export = Export(source, tmp_path / "out.jsonl")
    await export.run(asyncio.to_thread, lambda: steps.append(export.written))
    assert (tmp_path / "out.jsonl").read_text() == "".join(line(number) for number in range(990, 1_000))
    assert (export.total, export.written, export.gone, steps) == (10, 10, 0, [10])
    with pytest.raises(ExportError, match="is there already"):
        await Export(source, tmp_path / "out.jsonl").run(asyncio.to_thread, lambda: None)
    await Export(source, tmp_path / "out.jsonl", overwrite=True).run(asyncio.to_thread, lambda: None)
    with pytest.raises(ExportError, match="cannot be written to"):
        await Export(source, tmp_path / "no" / "out").run(asyncio.to_thread, lambda: None)


async def test_an_export_that_is_cancelled_leaves_what_was_there(
    source: LogSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas_tui.widgets.logs.log_export.CHUNK", 10)
    target = tmp_path / "out.jsonl"
    target.write_text("mine")
    begun = asyncio.Event()
    task = asyncio.create_task(Export(source, target, overwrite=True).run(asyncio.to_thread, begun.set))
    await begun.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert target.read_text() == "mine"
    assert sorted(each.name for each in await asyncio.to_thread(lambda: list(tmp_path.iterdir()))) == [
        "out.jsonl",
        "pallas.log",
    ]


def test_a_tree_is_folded_and_its_lines_fit() -> None:
    record = {
        "message": "a message that is longer than the line is",
        "data": {"list": [1, {"deep": None}], "empty": {}, "text": "ü" * 50},
        "exc": 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nValueError: no',
    }
    for width in (20, 40, 80):
        lines = tree_lines(record, (), width, UNICODE)
        assert all(width_of(each.line) <= max(width, 30) for each in lines)
        foldable = {each.path for each in lines if each.foldable}
        assert foldable == {("data",), ("data", "list"), ("data", "list", 1), ("exc",)}
        shown = "".join(text for each in lines for text, _ in each.line)
        assert "ü" * 50 in shown.replace(" ", "")
    folded = tree_lines(record, {("data",), ("exc",)}, 80, UNICODE)
    assert [each.path for each in folded] == [("message",), ("data",), ("exc",)]
    assert value_at(record, ("data", "list", 1, "deep")) is None
    whole = tree_lines(record, (), 80, UNICODE)
    styles = {style for each in whole if each.path == ("exc",) for _, style in each.line}
    assert len(styles) > 3  # the colours of a traceback


def test_a_text_of_a_record_is_broken_between_words_and_loses_none() -> None:
    text = "run 89ce7a83f0c2 error in 3.88 s, 0 steps: downstream guarded refused the caller's bearer"
    shown = [
        "".join(part for part, _ in each.line) for each in tree_lines({"message": text}, (), 40, UNICODE)
    ]
    pieces = [line.strip().removeprefix("message:") for line in shown]
    assert " ".join(" ".join(pieces).split()) == text
    assert not any(line.lstrip().startswith(",") for line in shown)
    for width in (1, 2, 7, 40):
        for hard in ("x" * 300, "日本語" * 40, "a\u0301" * 200, " " * 90 + "b", "q " * 90):
            pieces = wrapped(hard, width)
            assert "".join(pieces).replace(" ", "") == hard.replace(" ", "")
            assert all(cell_len(piece) <= max(width, 8) for piece in pieces)


def test_a_tree_has_an_end() -> None:
    lines = tree_lines({"many": list(range(MAX_LINES * 2))}, (), 80, UNICODE)
    assert len(lines) == MAX_LINES
    assert "more line" in lines[-1].line[0][0]
    deep: dict[str, object] = {}
    for _ in range(200):
        deep = {"in": deep, "n": 1}
    assert len(tree_lines(deep, (), 80, UNICODE)) < 200
    assert len(text_lines("x" * 1_000, 100)) == 10


def test_saved_filters_are_bounded_and_a_disk_that_refuses_is_told(tmp_path: Path) -> None:
    saved = SavedFilters(JsonFile(tmp_path / "no folder" / "f.json"))
    assert saved.save("", "x") == "A filter needs a name."
    (tmp_path / "no folder").write_text("a file")
    assert "cannot be written" in saved.save("a", "x") or "f.json" in saved.save("a", "x")
    saved = SavedFilters(JsonFile(tmp_path / "f.json"))
    for number in range(MOST):
        assert saved.save(f"f{number}", "agent:x") == ""
    assert "delete one" in saved.save("one more", "agent:x")
    assert saved.save("f0", "agent:y") == ""
    assert SavedFilters(JsonFile(tmp_path / "f.json")).all()["f0"] == "agent:y"
