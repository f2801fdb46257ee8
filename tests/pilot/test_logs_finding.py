"""The filter's words, the regex, saved filters and what leads from a record elsewhere."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.notices import notices_of
from support.pane_app import PaneApp
from support.waiting import until
from textual import on
from textual.events import Key, Paste
from textual.pilot import Pilot
from textual.widgets import Input, Static

from pallas_tui.json_file import JsonFile
from pallas_tui.targets import FilterTarget, Reveal, RunTarget, Target
from pallas_tui.widgets.filter_line import late_letter
from pallas_tui.widgets.logs import LogsPane
from pallas_tui.widgets.logs.log_lines import MistakeLine
from pallas_tui.widgets.logs.record_screen import RecordScreen
from pallas_tui.widgets.logs.saved_filters import SavedFilters
from pallas_tui.widgets.logs.saved_filters_screen import FiltersScreen


def record(number: int, level: str = "INFO", message: str = "", **more: object) -> str:
    data = {"time": "2026-06-01T12:00:00.000+00:00", "level": level, "logger": "pallas.fleet"}
    return json.dumps({**data, "message": message or f"line {number:04}", **more})


def drafts(folder: Path) -> list[Path]:
    """What an export has left unfinished."""
    return list(folder.glob(".*"))


class RevealingApp(PaneApp):
    """Notes what is to be shown elsewhere."""

    def __init__(self, pane: LogsPane) -> None:
        super().__init__(pane)
        self.revealed: list[Target] = []

    def on_key(self, event: Key) -> None:
        """As the workbench does."""
        late_letter(self, event)

    @on(Reveal)
    def note(self, event: Reveal) -> None:
        """Note it."""
        self.revealed.append(event.target)


class Logs:
    """A logs pane in an application, and the file it shows."""

    def __init__(self, app: RevealingApp, pane: LogsPane, pilot: Pilot[None], path: Path) -> None:
        self.app, self.pane, self.pilot, self.path = app, pane, pilot, path
        self.saved = path.with_name("workbench.filters.json")

    def write(self, *lines: str) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    async def until(self, condition: Any) -> Any:
        return await until(condition, self.pilot)

    async def enter(self, path: Path) -> None:
        """Paste a path over what stands in the field, and press enter."""
        field = await self.until(lambda: self.app.screen.query_one("#log-export-path", Input))
        await self.pilot.press("ctrl+u")
        self.app.post_message(Paste(str(path)))
        await self.until(lambda: field.value == str(path))
        await self.pilot.press("enter")

    async def until_shown(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.app.screen_text() for text in texts))

    async def until_listed(self, *numbers: int) -> None:
        wanted = [f"{number:04}" for number in numbers]
        await self.until(lambda: self.shown() == wanted)

    def shown(self) -> list[str]:
        rows = self.app.screen_text().splitlines()
        return [row.split("line ")[1][:4] for row in rows if "line " in row]

    @property
    def at(self) -> str:
        """The message under the cursor."""
        found = self.pane._line()
        return str(json.loads(found[0])["message"]) if found else ""

    @property
    def mistake(self) -> str:
        return self.app.query_one(MistakeLine).text

    def said(self) -> str:
        """What the sheet above says."""
        found = self.app.screen.query("#log-export-status, #log-filters-status").first(Static)
        return str(found.content)

    async def until_said(self, text: str) -> None:
        await self.until(lambda: text in self.said())

    def notices(self) -> str:
        return "\n".join(notice.message for notice in notices_of(self.app))


@pytest.fixture
async def logs(tmp_path: Path) -> AsyncIterator[Logs]:
    path = tmp_path / "pallas.log"
    pane = LogsPane(path, saved=SavedFilters(JsonFile(tmp_path / "workbench.filters.json")))
    app = RevealingApp(pane)
    async with app.run_test(size=(100, 24)) as pilot:
        pane.focus_pane()
        yield Logs(app, pane, pilot, path)


async def fill(logs: Logs, count: int = 60) -> None:
    agents = ("research", "vision")
    logs.write(
        *(
            record(n, "ERROR" if n % 10 == 0 else "INFO", agent=agents[n % 2], run_id=f"run{n // 10}", n=n)
            for n in range(count)
        )
    )
    await logs.until_shown(f"line {count - 1:04}")


@pytest.mark.slow
async def test_a_filter_over_fields_as_one_types(logs: Logs) -> None:
    await fill(logs)
    await logs.pilot.press("slash", *"level>=error agent:rese -n=30 n>10")
    await logs.until_listed(20, 40, 50)
    assert logs.pane.caption == "level>=error agent:rese -n=30 n>10: 3 of 60"
    logs.write(record(60, "ERROR", agent="research", n=60), record(61, agent="research", n=61))
    await logs.until_listed(20, 40, 50, 60)


@pytest.mark.slow
async def test_a_mistake_is_told_below_its_place_and_the_list_stays(logs: Logs) -> None:
    await fill(logs)
    await logs.pilot.press("slash", *"n<3")
    await logs.until_listed(0, 1, 2)
    await logs.pilot.press(*" level>=zz")
    await logs.until(lambda: logs.mistake == "no such level; there are debug, info, warning, error, critical")
    assert logs.shown() == ["0000", "0001", "0002"]
    told = next(row for row in logs.app.screen_text().splitlines() if "^ no such level" in row)
    typed = next(row for row in logs.app.screen_text().splitlines() if "level>=zz" in row)
    assert told.index("^") == typed.index("zz")
    await logs.pilot.press(*["backspace"] * 2, *"error")
    await logs.until_listed(0)
    assert logs.mistake == ""


async def test_keys_that_come_all_at_once_go_into_the_line(logs: Logs) -> None:
    await fill(logs)
    for sign in "/run5 n":
        name = {"/": "slash", " ": "space"}.get(sign, sign)
        logs.app.post_message(Key(name, sign))  # as a terminal does that was busy
    await logs.until(lambda: logs.pane.filter.value == "run5 n")


@pytest.mark.slow
async def test_a_regex_is_found_above_then_next_and_previous_all_around(logs: Logs) -> None:
    await fill(logs)
    await logs.pilot.press("s", *r"line 00[135]7")
    await logs.until(lambda: logs.at == "line 0057")
    await logs.pilot.press("enter")
    await logs.until(lambda: logs.pane.caption == "60 lines · found 3 of 3")
    for key, message, place in (
        ("N", "line 0037", "2 of 3"),
        ("N", "line 0017", "1 of 3"),
        ("N", "line 0057", "3 of 3, from the end"),
        ("n", "line 0017", "1 of 3, from the top"),
        ("n", "line 0037", "2 of 3"),
    ):
        await logs.pilot.press(key)
        await logs.until(lambda message=message: logs.at == message)
        await logs.until(lambda place=place: logs.pane.caption == f"60 lines · found {place}")
    await logs.pilot.press("escape")
    await logs.until(lambda: logs.pane.caption == "60 lines")


@pytest.mark.slow
async def test_find_looks_only_in_what_is_listed_and_marks_it(logs: Logs) -> None:
    await fill(logs)
    await logs.pilot.press("slash", *"agent:vision", "enter", "s", *"line 005")
    await logs.until(lambda: "found 5 of 5" in logs.pane.caption)
    await logs.until_shown("line 0059")
    strip = logs.app.screen._compositor.render_strips()[logs.shown().index("0059")]
    marked = "".join(segment.text for segment in strip if segment.style and segment.style.reverse)
    assert marked.strip() == "line 005"  # and the scrollbar
    await logs.pilot.press("enter", "escape")
    await logs.until(lambda: logs.pane.caption == "agent:vision: 30 of 60")
    await logs.pilot.press("escape")
    await logs.until(lambda: logs.pane.caption == "60 lines")


@pytest.mark.slow
async def test_a_regex_that_matches_nothing_or_is_none_says_so(logs: Logs) -> None:
    await fill(logs)
    await logs.pilot.press("s", *"nowhere")
    await logs.until(lambda: logs.pane.caption == "60 lines · found 0")
    before = logs.at
    await logs.pilot.press("enter", "n", "N")
    assert logs.at == before
    await logs.pilot.press("s", *"(")
    await logs.until(lambda: logs.mistake == "regex: missing )")


@pytest.mark.slow
async def test_a_regex_that_never_ends_hangs_nothing(logs: Logs) -> None:
    logs.write(*(record(n, message=f"line {n:04} " + "a" * 40 + "c") for n in range(100)))
    await logs.until_shown("line 0099")
    await logs.pilot.press("s", *"(a|aa)+b$")
    await logs.until(lambda: "make it simpler" in logs.pane.caption)
    await logs.pilot.press("enter", "up")
    await logs.until(lambda: logs.at.startswith("line 0098"))
    await logs.pilot.press("escape", "slash", *"~(a|aa)+b$")
    await logs.until_shown("make it simpler")
    await logs.pilot.press("escape")
    await logs.until_shown("line 0098")


@pytest.mark.slow
async def test_long_records_are_wrapped_and_the_cursor_goes_by_records(logs: Logs) -> None:
    logs.write(*(record(n, message=f"line {n:04} {'words ' * 40}end{n:02}") for n in range(50)))
    await logs.until_shown("line 0049")
    assert "end49" not in logs.app.screen_text()
    await logs.pilot.press("w")
    await logs.until_shown("end49", "end48", "line 0045")
    assert logs.pane.lines.at_end()
    for number in range(48, 40, -1):
        await logs.pilot.press("up")
        assert logs.at.startswith(f"line {number:04}")
        assert f"line {number:04}" in logs.app.screen_text()
    await logs.pilot.press("g")
    await logs.until_shown("line 0000", "end00")
    for number in range(1, 12):
        await logs.pilot.press("down")
        await logs.until_shown(f"line {number:04}", f"end{number:02}")
    await logs.pilot.click(logs.pane.lines, offset=(30, 4))
    assert logs.at in [f"line {n:04} {'words ' * 40}end{n:02}" for n in range(12)]
    await logs.pilot.press("f", "w")
    await logs.until(lambda: len(logs.shown()) > 20)


async def test_a_record_higher_than_the_view_ends_in_dots(logs: Logs) -> None:
    logs.write(record(0, message="line 0000 " + "x" * 4_000), record(1))
    await logs.until_shown("line 0001")
    await logs.pilot.press("w", "up")
    await logs.until_shown("line 0000", "…", "line 0001")


@pytest.mark.slow
async def test_saved_filters_survive_and_are_chosen_and_deleted(logs: Logs) -> None:
    await fill(logs)
    await logs.pilot.press("m")
    await logs.until_shown("None yet. Write a filter with /")
    await logs.pilot.press("a")
    await logs.until_shown("No filter is on")
    await logs.pilot.press("escape", "l", "l", "l", "slash", *"agent:research", "enter", "m", "a")
    await logs.until_shown("Name for: level>=error agent:research")
    await logs.pilot.press(*"bad ones", "enter")
    await logs.until_said("Saved.")
    await logs.until_shown("bad ones")
    assert json.loads(logs.saved.read_text()) == {"logs": {"bad ones": "level>=error agent:research"}}
    await logs.pilot.press("escape", "escape", "l")
    await logs.until(lambda: logs.pane.caption == "60 lines")

    again = SavedFilters(JsonFile(logs.saved))  # as the next start does
    logs.pane._saved = again
    (entity,) = logs.pane.entities()
    assert (entity.title, entity.target) == ("Logs: bad ones", FilterTarget("bad ones"))
    assert logs.pane.reveal(entity.target)
    await logs.until_listed(0, 10, 20, 30, 40, 50)
    await logs.pilot.press("escape", "m", "enter")
    await logs.until_listed(0, 10, 20, 30, 40, 50)
    await logs.pilot.press("m", "d")
    await logs.until_shown("Press d again to delete bad ones.")
    await logs.pilot.press("d")
    await logs.until_shown("None yet.")
    assert json.loads(logs.saved.read_text()) == {"logs": {}}
    assert not logs.pane.reveal(FilterTarget("bad ones"))


@pytest.mark.slow
async def test_a_broken_file_of_filters_is_told_and_never_written_over(logs: Logs) -> None:
    await fill(logs)
    logs.saved.write_text('{"logs": {"good": "agent:research", "bad": "agent:"}}')
    await logs.pilot.press("slash", *"vision", "enter", "m")
    await logs.until(lambda: isinstance(logs.app.screen, FiltersScreen))
    await logs.until_said("workbench.filters.json: bad: is not a filter; fix or delete it")
    await logs.until_shown("good")
    await logs.pilot.press("a", *"new", "enter")
    await logs.until_said("fix or delete it")
    assert "new" not in logs.saved.read_text()


async def test_a_record_leads_to_its_run_and_a_run_to_its_records(logs: Logs) -> None:
    await fill(logs)
    logs.write(record(60, message="line 0060"))
    await logs.until_shown("line 0060")
    await logs.pilot.press("r")
    await logs.until(lambda: "not about a run" in logs.notices())
    await logs.pilot.press("up", "r")
    await logs.until(lambda: logs.app.revealed == [RunTarget("run5")])
    assert logs.pane.reveal(RunTarget("run3", pane="logs"))
    await logs.until_listed(*range(30, 40))
    assert logs.pane.caption == "run_id=run3: 10 of 61"
    await logs.pilot.press("enter", "r")
    await logs.until(lambda: logs.app.revealed[1:] == [RunTarget("run3")])


async def test_a_record_is_a_tree_that_folds_and_whose_values_are_copied(logs: Logs) -> None:
    logs.write(
        record(
            1, data={"deep": {"n": 12345, "list": ["a", "b"]}, "text": "y" * 300}, exc='T\n  File "x"\nEnd'
        )
    )
    await logs.until_shown("line 0001")
    await logs.pilot.press("enter")
    await logs.until_shown(
        "▾ data: 2 keys", "▾ deep: 2 keys", "n: 12345", "▾ list: 2 items", "1: b", "▾ exc: 3"
    )
    await logs.pilot.press("down", "down", "down", "down", "left")
    await logs.until_shown("▸ data: 2 keys")
    assert "n: 12345" not in logs.app.screen_text()
    await logs.pilot.press("right", "down", "down", "c")
    await logs.until(lambda: logs.app.clipboard == "12345")
    await logs.pilot.press("f")
    await logs.until(lambda: logs.pane.caption == "data.deep.n=12345: 1 of 1")


async def test_next_and_previous_move_in_the_list_too(logs: Logs) -> None:
    await fill(logs)
    await logs.pilot.press("enter")
    await logs.until(lambda: isinstance(logs.app.screen, RecordScreen))
    await logs.pilot.press("p", "p")
    await logs.until_shown("message: line 0057")
    await logs.pilot.press("escape")
    assert logs.at == "line 0057"


@pytest.mark.slow
async def test_what_is_listed_is_exported_never_over_a_file_unasked(logs: Logs, tmp_path: Path) -> None:
    await fill(logs)
    target = tmp_path / "out.jsonl"
    target.write_text("mine")
    await logs.pilot.press("slash", *"agent:vision", "enter")
    await logs.until(lambda: len(logs.pane._source.rows) == 30)
    await logs.pilot.press("x")
    await logs.enter(tmp_path)
    await logs.until_said("is a folder")
    await logs.enter(tmp_path / "no" / "x")
    await logs.until_said("there is no such folder")
    await logs.enter(logs.path)
    await logs.until_said("is the log itself")
    await logs.enter(target)
    await logs.until_said("Press enter again")
    assert target.read_text() == "mine"
    await logs.pilot.press("enter")
    await logs.until(lambda: "30 records written" in logs.notices())
    written = [json.loads(line) for line in target.read_text().splitlines()]
    assert [line["n"] for line in written] == list(range(1, 60, 2))
    await logs.pilot.press("x")
    await logs.enter(tmp_path / "out.txt")
    await logs.until(lambda: (tmp_path / "out.txt").exists())
    first = (tmp_path / "out.txt").read_text().splitlines()[0]
    assert first.endswith("line 0001  agent=vision  run_id=run0  n=1")
    assert not drafts(tmp_path)
