"""What changed in a server's tools since it was looked at before."""

import json
import os
from pathlib import Path

import pytest

from pallas.model import ToolChanges, ToolDetail
from pallas.toolbox import seen_tools
from pallas.toolbox.seen_tools import SeenTools, seen_path


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def tools(**described: str) -> tuple[ToolDetail, ...]:
    return tuple(ToolDetail(name, description=text) for name, text in described.items())


async def test_the_first_look_tells_of_no_change() -> None:
    known = SeenTools()
    assert await known.noted({"s": tools(a="1")}) == {"s": ToolChanges()}
    assert await known.noted({"s": tools(a="1")}) == {"s": ToolChanges()}


async def test_a_change_is_told_until_the_next_with_the_time_the_old_list_was_seen_last() -> None:
    clock = Clock()
    known = SeenTools(clock=clock)
    await known.noted({"s": tools(a="1", b="2", c="3")})
    clock.now = 150
    await known.noted({"s": tools(a="1", b="2", c="3")})
    clock.now = 200
    expected = ToolChanges(added=("d",), removed=("a",), changed=("b",), since=150)
    for _ in range(2):
        assert (await known.noted({"s": tools(b="other", c="3", d="4")}))["s"] == expected
        clock.now += 50
    assert (await known.noted({"s": tools(b="other", c="3")}))["s"] == ToolChanges(removed=("d",), since=250)


@pytest.mark.parametrize("part", ["title", "description", "input_schema", "output_schema"])
async def test_whatever_a_tool_says_of_itself_counts(part: str) -> None:
    known = SeenTools()
    await known.noted({"s": (ToolDetail("a"),)})
    found = await known.noted({"s": (ToolDetail("a", **{part: "new"}),)})
    assert found["s"].changed == ("a",)


async def test_servers_are_told_apart_and_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_tools, "MAX_SERVERS", 2)
    clock = Clock()
    known = SeenTools(clock=clock)
    for name in ("one", "two", "three"):
        clock.now += 1
        await known.noted({name: tools(a="1")})
    found = await known.noted({"one": tools(b="1"), "three": tools(b="1")})
    assert found["one"] == ToolChanges()  # forgotten: the longest ago
    assert found["three"].added == ("b",)


async def test_they_outlive_the_process_in_a_file_without_schemas(tmp_path: Path) -> None:
    log = tmp_path / "pallas.log"
    log.touch()
    path = seen_path(tmp_path / "project", log)
    assert path is not None
    assert path.parent == tmp_path
    assert path != seen_path(tmp_path / "other", log)
    await SeenTools(path).noted({"s": tools(a="words of the server")})
    assert path.stat().st_mode & 0o777 == 0o600
    assert "words" not in path.read_text()
    again = SeenTools(path)
    changes = (await again.noted({"s": tools(b="2")}))["s"]
    assert (changes.added, changes.removed) == (("b",), ("a",))
    assert (await SeenTools(path).noted({"s": tools(b="2")}))["s"] == changes


def test_without_a_log_there_is_no_file(tmp_path: Path) -> None:
    assert seen_path(tmp_path, tmp_path / "nowhere.log") is None
    assert seen_path(tmp_path, Path(os.devnull)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"version": 2}',
        '{"version": 1, "servers": []}',
        json.dumps({"version": 1, "servers": {"s": 1}}),
        json.dumps({"version": 1, "servers": {"s": {"tools": {"a": 1}, "seen": 1}}}),
        json.dumps({"version": 1, "servers": {"s": {"tools": {}, "seen": "x"}}}),
        '{"version": 1, "servers": {"s": {"tools": {}, "seen": NaN}}}',
        "[" * 100_000,
    ],
)
async def test_a_file_that_is_none_of_ours_is_done_without(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tools.json"
    path.write_text(text)
    assert await SeenTools(path).noted({"s": tools(a="1")}) == {"s": ToolChanges()}
    assert (await SeenTools(path).noted({"s": tools(b="1")}))["s"].added == ("b",)


async def test_a_file_that_cannot_be_written_leaves_the_memory(tmp_path: Path) -> None:
    known = SeenTools(tmp_path)  # a folder
    await known.noted({"s": tools(a="1")})
    assert (await known.noted({"s": tools(b="1")}))["s"].removed == ("a",)
