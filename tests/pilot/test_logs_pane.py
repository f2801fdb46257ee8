import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.notices import notices_of
from support.pane_app import PaneApp
from support.waiting import until
from textual.pilot import Pilot

from pallas_tui.widgets.logs import LogsPane
from pallas_tui.widgets.logs.log_source import LogSource
from pallas_tui.widgets.logs.log_view import LogList
from pallas_tui.widgets.logs.record_screen import RecordScreen


def record(number: int, level: str = "INFO", message: str = "", **more: object) -> str:
    data = {"time": "2026-06-01T12:00:00.000+00:00", "level": level, "logger": "pallas.fleet"}
    return json.dumps({**data, "message": message or f"line {number:04}", **more})


class Logs:
    """A logs pane in an application, and the file it shows."""

    def __init__(self, app: PaneApp, pane: LogsPane, pilot: Pilot[None], path: Path) -> None:
        self.app, self.pane, self.pilot, self.path = app, pane, pilot, path

    @property
    def rows(self) -> LogList:
        return self.pane.lines

    def write(self, lines: Iterable[str], mode: str = "a") -> None:
        with self.path.open(mode) as file:
            file.writelines(f"{line}\n" for line in lines)

    async def until(self, condition: Any) -> Any:
        return await until(condition, self.pilot)

    async def until_shown(self, text: str) -> None:
        await self.until(lambda: text in self.app.screen_text())

    def shown(self) -> list[str]:
        """The messages on the screen, from the top."""
        rows = self.app.screen_text().splitlines()
        return [row.split("line ")[1][:4] for row in rows if "line " in row]

    def notices(self) -> str:
        return "\n".join(notice.message for notice in notices_of(self.app))


@pytest.fixture
async def logs(tmp_path: Path) -> AsyncIterator[Logs]:
    path = tmp_path / "pallas.log"
    pane = LogsPane(path)
    app = PaneApp(pane)
    async with app.run_test(size=(100, 20)) as pilot:
        pane.focus_pane()
        yield Logs(app, pane, pilot, path)


async def test_without_a_log_the_pane_says_where_it_will_be(logs: Logs) -> None:
    await logs.until_shown("There is no log yet")
    assert str(logs.path)[:60] in logs.app.screen_text().replace("\n ", "")
    assert logs.pane.caption == ""
    logs.write([])
    await logs.until_shown("The log is empty")
    logs.write([record(1)])
    await logs.until_shown("line 0001")


async def test_the_end_is_shown_and_followed(logs: Logs) -> None:
    logs.write(record(n) for n in range(500))
    await logs.until_shown("line 0499")
    assert logs.shown() == [f"{n:04}" for n in range(480, 500)]
    logs.write(record(n) for n in range(500, 520))
    await logs.until_shown("line 0519")
    assert logs.pane.caption == "520 lines"


async def test_a_log_that_is_known_from_its_beginning_is_not_said_to_be_read_still(tmp_path: Path) -> None:
    path = tmp_path / "pallas.log"
    path.write_text(f"{record(1)}\n{record(2)}\n")
    told: list[str] = []
    source = LogSource(path, lambda: told.append(source.busy))
    following = asyncio.create_task(source.follow())
    try:
        await until(lambda: told)
        await until(lambda: told[-1] == "")
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        source.close()


async def test_what_is_read_does_not_move_and_what_came_is_counted(logs: Logs) -> None:
    logs.write(record(n) for n in range(200))
    await logs.until_shown("line 0199")
    await logs.pilot.press("up", "up")
    before = logs.app.screen_text()
    logs.write(record(n) for n in range(200, 212))
    await logs.until(lambda: logs.pane.caption.startswith("12 new below"))
    assert logs.app.screen_text() == before
    await logs.pilot.press("f")
    await logs.until_shown("line 0211")
    assert "below" not in logs.pane.caption
    logs.write([record(212)])
    await logs.until_shown("line 0212")


async def test_g_goes_to_the_first_line_and_capital_g_to_the_last(logs: Logs) -> None:
    logs.write(record(n) for n in range(300))
    await logs.until_shown("line 0299")
    await logs.pilot.press("g")
    await logs.until_shown("line 0000")
    await logs.pilot.press("G")
    await logs.until_shown("line 0299")
    assert logs.rows.follow


async def test_levels_and_loggers_and_other_keys_stand_in_the_row(logs: Logs) -> None:
    logs.write([record(1, "ERROR", agent="research", run_id="7f3a"), "not json [bold]at all[/]"])
    await logs.until_shown("not json [bold]at all[/]")
    row = logs.app.screen_text().splitlines()[0]
    assert "ERROR pallas.fleet line 0001  agent=research run_id=7f3a" in row


async def test_l_shows_only_what_is_as_grave(logs: Logs) -> None:
    logs.write(record(n, ("DEBUG", "INFO", "WARNING", "ERROR")[n % 4]) for n in range(8))
    await logs.until_shown("line 0007")
    seen = []
    for _ in range(4):
        await logs.pilot.press("l")
        await logs.until(lambda: not logs.pane._source.busy)
        await logs.until(lambda: len(logs.shown()) == len(logs.pane._source.rows))
        seen.append((len(logs.shown()), logs.pane.caption))
    assert seen == [
        (6, "INFO+: 6 of 8"),
        (4, "WARNING+: 4 of 8"),
        (2, "ERROR+: 2 of 8"),
        (8, "8 lines"),
    ]


@pytest.mark.slow
async def test_the_filter_finds_text_while_one_types_and_new_lines_join(logs: Logs) -> None:
    logs.write(
        record(n, message=f"line {n:04} {'Connection Refused' if n % 50 == 0 else 'ok'}") for n in range(500)
    )
    await logs.until_shown("line 0499")
    await logs.pilot.press("slash", *"connection", "space", *"ref")
    await logs.until(lambda: logs.shown() == [f"{n:04}" for n in range(0, 500, 50)])
    await logs.pilot.press("enter")
    assert logs.rows.has_focus
    logs.write([record(500, message="line 0500 connection refused"), record(501)])
    await logs.until_shown("line 0500")
    assert "0501" not in logs.shown()
    assert logs.pane.caption == "connection ref: 11 of 502"
    await logs.pilot.press("escape")
    await logs.until_shown("line 0501")
    assert logs.pane.caption == "502 lines"


async def test_only_records_of_this_fleet_are_shown_until_a_key_asks_for_all(logs: Logs) -> None:
    logs.app.snapshot = replace(logs.app.snapshot, project="/srv/desk")
    logs.app.feed()
    logs.write(record(number, project=f"/srv/{name}") for number, name in enumerate(("desk", "shop") * 3))
    logs.write([record(6), record(7, level="ERROR", project="/srv/desk"), "not a record"])
    await logs.until(lambda: logs.shown() == ["0000", "0002", "0004", "0007"])
    assert logs.pane.caption == "4 lines"
    assert "/srv/desk" not in logs.app.screen_text()
    await logs.pilot.press("slash", *"0004", "enter")
    await logs.until(lambda: logs.shown() == ["0004"])
    await logs.pilot.press("escape", "a")
    await logs.until(lambda: len(logs.shown()) == 8)
    assert logs.pane.caption == "9 lines · all fleets"
    await logs.pilot.press("a", "l", "l", "l")
    await logs.until(lambda: logs.shown() == ["0007"])
    # A fleet that does not say which records are its own: one of an older version.
    logs.app.snapshot = replace(logs.app.snapshot, project="")
    logs.app.feed()
    await logs.pilot.press("l")
    await logs.until(lambda: len(logs.shown()) == 8)


async def test_a_filter_that_finds_nothing_says_how_to_take_it_away(logs: Logs) -> None:
    logs.write([record(1)])
    await logs.until_shown("line 0001")
    await logs.pilot.press("slash", *"nothing", "enter")
    await logs.until_shown("No line matches.")
    await logs.pilot.press("escape")
    await logs.until_shown("line 0001")


async def test_the_line_under_the_cursor_stays_when_the_filter_goes(logs: Logs) -> None:
    logs.write(record(n, "ERROR" if n % 10 == 0 else "INFO") for n in range(300))
    await logs.until_shown("line 0299")
    await logs.pilot.press("l", "l")
    await logs.until(lambda: logs.shown()[-1:] == ["0290"])
    await logs.pilot.press("up", "up", "up")
    chosen = logs.rows.selected
    await logs.pilot.press("l", "l")
    await logs.until(lambda: len(logs.pane._source.rows) == 300)
    assert logs.rows.selected == chosen
    assert "0260" in logs.shown()


async def test_enter_opens_the_record_in_full(logs: Logs) -> None:
    trace = "Traceback (most recent call last):\n  File x, line 3\nValueError: no"
    logs.write([record(1), record(2, "ERROR", exc=trace, data={"a": [1, 2]}), record(3)])
    await logs.until_shown("line 0003")
    await logs.pilot.resize_terminal(100, 40)
    await logs.pilot.press("up", "enter")
    await logs.until(lambda: isinstance(logs.app.screen, RecordScreen))
    await logs.until_shown("ValueError: no")
    text = logs.app.screen_text()
    assert "message: line 0002" in text
    assert "  File x, line 3" in text
    await logs.pilot.press("y")
    await logs.until(lambda: trace in logs.app.clipboard)
    await logs.pilot.press("n")
    await logs.until_shown("message: line 0003")
    await logs.pilot.press("n", "p", "p")
    await logs.until_shown("message: line 0001")
    await logs.pilot.press("escape")
    await logs.until(lambda: logs.rows.has_focus)
    assert logs.rows.cursor == 0


async def test_a_hostile_record_does_no_harm(logs: Logs) -> None:
    logs.write([record(1, message="line \x1b[2J [@click=app.quit]quit[/]"), "raw \x1b]0;x\x07"])
    await logs.until_shown("[@click=app.quit]quit[/]")
    await logs.pilot.press("up", "enter")
    await logs.until(lambda: isinstance(logs.app.screen, RecordScreen))
    assert "\x1b" not in logs.app.screen_text()
    await logs.pilot.press("y")
    await logs.until(lambda: "quit" in logs.app.clipboard)
    assert "\x1b" not in logs.app.clipboard


async def test_a_long_message_goes_on_to_the_right(logs: Logs) -> None:
    logs.write([record(1, message="start " + "x" * 200 + " end")])
    await logs.until_shown("start")
    assert " end" not in logs.app.screen_text()
    await logs.pilot.press(*["right"] * 8)
    await logs.until_shown("x end")
    await logs.pilot.press(*["left"] * 9)
    await logs.until_shown("start")


async def test_a_rotated_and_a_truncated_log_go_on(logs: Logs) -> None:
    # PR-35
    logs.write(record(n) for n in range(40))
    await logs.until_shown("line 0039")
    logs.path.replace(logs.path.with_name("pallas.log.1"))
    logs.write([record(40)])
    await logs.until_shown("line 0040")
    assert "line 0039" in logs.app.screen_text()
    logs.write([record(99)], "w")
    await logs.until(lambda: logs.shown()[-2:] == ["0039", "0099"])  # the older file is still there


async def test_a_hidden_pane_does_nothing_and_catches_up(logs: Logs) -> None:
    logs.write([record(1)])
    await logs.until_shown("line 0001")
    logs.pane.hide_pane()
    worker = logs.pane._worker
    assert worker is None
    logs.write(record(n) for n in range(2, 6))
    await logs.pilot.pause()
    assert logs.shown() == ["0001"]
    logs.pane.show_pane()
    await logs.until(lambda: logs.shown() == ["0001", "0002", "0003", "0004", "0005"])


async def test_only_what_is_seen_is_parsed(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    from pallas_tui.widgets.logs import log_view

    parsed: list[bytes] = []

    def noting(line: bytes, whole: int, original: Any = log_view.parse) -> Any:
        parsed.append(line)
        return original(line, whole)

    monkeypatch.setattr(log_view, "parse", noting)
    logs.write(record(n) for n in range(5_000))
    await logs.until(lambda: len(logs.pane._source.index) == 5_000 and "4999" in logs.shown())
    await logs.pilot.press("l", "l")
    await logs.until(lambda: not logs.pane._source.busy)
    assert len(parsed) < 100


async def test_y_copies_the_record_under_the_cursor(logs: Logs) -> None:
    logs.write([record(1), record(2)])
    await logs.until_shown("line 0002")
    await logs.pilot.press("up", "y")
    await logs.until(lambda: logs.app.clipboard.endswith("  INFO  pallas.fleet  line 0001"))
    await logs.pilot.press("Y")
    await logs.until(lambda: '"message": "line 0001"' in logs.app.clipboard)
