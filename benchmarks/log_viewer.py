"""The workbench's log viewer alone: on a terminal, or measured from inside (``--measure``)."""

import asyncio
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import psutil
from textual import events
from textual.app import App, ComposeResult
from textual.drivers.headless_driver import HeadlessDriver

import pallas_tui
from pallas_tui.json_file import JsonFile
from pallas_tui.widgets.filter_line import late_letter
from pallas_tui.widgets.logs import LogsPane
from pallas_tui.widgets.logs.log_index import ERROR
from pallas_tui.widgets.logs.log_query import LogQuery
from pallas_tui.widgets.logs.log_source import LogSource
from pallas_tui.widgets.logs.saved_filters import SavedFilters

from .log_file import RARE

STYLES = Path(pallas_tui.__file__).parent / "styles"
FRAMES = 200


class Viewer(App[None]):
    """One pane on the whole screen."""

    CSS_PATH = sorted(STYLES.glob("*.tcss"))
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, path: Path, **more: Any) -> None:
        super().__init__(**more)
        self.animation_level = "none"
        self.pane = LogsPane(path, saved=SavedFilters(JsonFile(path.with_name("no filters"))))

    def compose(self) -> ComposeResult:
        """The pane."""
        yield self.pane

    def on_key(self, event: events.Key) -> None:
        """As the workbench does."""
        late_letter(self, event)

    def on_mount(self) -> None:
        """In view, and the keys are for it."""
        self.pane.show_pane()
        self.pane.focus_pane()


class _Discarding(HeadlessDriver):
    """Renders as for a real terminal and throws it away: the stock one leaves the rendering out."""

    frames = 0

    @property
    def is_headless(self) -> bool:
        """So that the application does all of its work."""
        return False

    def write(self, data: str) -> None:
        """Count it."""
        _Discarding.frames += 1


async def _until(condition: Callable[[], object], every: float = 0.001) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
        await asyncio.sleep(every)


async def _source(path: Path) -> dict[str, float]:
    """Seconds of opening, indexing and searching, and the megabytes that took."""
    process, figures = psutil.Process(), dict[str, float]()
    before = process.memory_full_info().uss
    began = perf_counter()
    source = LogSource(path)
    task = asyncio.create_task(source.follow())
    await _until(lambda: len(source.rows))
    figures["open"] = perf_counter() - began
    await _until(lambda: not source.busy)
    figures["indexed"] = perf_counter() - began
    figures["lines"] = len(source.index)
    for name, query in (
        ("level", LogQuery(ERROR)),
        ("rare", LogQuery(text=RARE)),
        ("common", LogQuery(text="answered")),
        ("field", LogQuery(text="agent:research level>=warning -logger:httpx2")),
        ("regex", LogQuery(text=r"~status \d+ in 0\.99\d s")),
    ):
        times, firsts = [], []
        for _ in range(3):
            began = perf_counter()
            source.ask(query)
            await _until(lambda: len(source.rows) or not source.busy)
            firsts.append(perf_counter() - began)
            await _until(lambda: not source.busy)
            times.append(perf_counter() - began)
            figures[f"{name} found"] = len(source.rows)
            source.ask(LogQuery())
        figures[name], figures[f"{name} first"] = median(times), median(firsts)
    source.ask(LogQuery(text=r"~(re.*u|re.*t)+est.*life"))
    await asyncio.sleep(0.1)
    began = perf_counter()
    source.ask(LogQuery(ERROR))
    await _until(lambda: len(source.rows) and not source.busy)
    figures["aside"] = perf_counter() - began
    figures["megabytes"] = (process.memory_full_info().uss - before) / 1e6
    task.cancel()
    await asyncio.wait({task})
    source.close()
    return figures


def _painted_since(frames: int) -> bool:
    return _Discarding.frames > frames


async def _frames(path: Path) -> dict[str, float]:
    """Seconds until the newest lines are there to be painted, and CPU milliseconds of a frame."""
    app = Viewer(path, driver_class=_Discarding)
    began = perf_counter()
    task = asyncio.create_task(app.run_async(size=(120, 40)))
    figures: dict[str, float] = {}
    await _until(lambda: app.is_running and app.pane.is_mounted and app.pane.lines.line_count(), 0.002)
    figures["painted"] = perf_counter() - began
    view = app.pane.lines
    await _until(lambda: not app.pane._source.busy, 0.01)
    await asyncio.sleep(0.5)
    steps: dict[str, Callable[[int], object]] = {
        "scroll": lambda number: view.scroll_relative(y=-1, animate=False, force=True),
        "jump": lambda number: view.action_move_to(number * 7_919_333 % view.line_count()),
    }
    for name, step in steps.items():
        costs = []
        for number in range(FRAMES):
            frames, cpu = _Discarding.frames, process_time()
            step(number)
            await _until(partial(_painted_since, frames), 0.001)
            costs.append(1000 * (process_time() - cpu))
        ordered = sorted(costs)
        figures[name], figures[f"{name} p95"] = median(ordered), ordered[int(0.95 * len(ordered))]
    app.exit()
    await task
    return figures


def main() -> None:
    """Show the file, or print figures as JSON."""
    path = Path(sys.argv[-1])
    if "--measure" in sys.argv:
        print(json.dumps({**asyncio.run(_source(path)), **asyncio.run(_frames(path))}))
    else:
        Viewer(path).run()


if __name__ == "__main__":
    main()
