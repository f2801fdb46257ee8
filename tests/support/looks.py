"""Pictures of an application: several of one that runs, each compared with the one that is kept.

A failing run writes them into ``snapshot_report.html``, as ``snap_compare`` of pytest-textual-snapshot does.
"""

import asyncio
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

import pytest
from pytest_textual_snapshot import (
    PseudoApp,
    PseudoConsole,
    SVGImageExtension,
    node_to_report_path,
    normalize_svg,
)
from rich.console import Console
from syrupy.assertion import SnapshotAssertion
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input

from pallas_tui.widgets.chat import painter

from .pane_app import still
from .shell import screen_text
from .waiting import until

CONTRAST: Final = "pallas-contrast-dark"
THEMES: Final = {"": "textual-dark", "light": "textual-light", "contrast": CONTRAST}
STEADY: Final = 5
"""A picture that was taken so often without a change, while no thread works, is finished, right or wrong."""

Before = Callable[[Pilot[Any]], Awaitable[None]]


@dataclass(frozen=True)
class Look:
    """One size of the terminal in one theme."""

    size: str
    theme: str = ""
    """The end of the picture's name; empty for the first theme."""

    @property
    def cells(self) -> tuple[int, int]:
        """Columns and rows."""
        return cells(self.size)

    @property
    def name(self) -> str:
        """The name of the picture, for example ``80x24-light``."""
        return f"{self.size}-{self.theme}" if self.theme else self.size


def cells(size: str) -> tuple[int, int]:
    """Columns and rows of a size such as ``80x24``."""
    columns, _, rows = size.partition("x")
    return int(columns), int(rows)


def in_sizes(*sizes: str) -> tuple[Look, ...]:
    """The first theme in these sizes."""
    return tuple(Look(size) for size in sizes)


def in_themes(size: str, *themes: str) -> tuple[Look, ...]:
    """Further themes in one size; all there are without ``themes``."""
    return tuple(Look(size, theme) for theme in themes or tuple(THEMES)[1:])


EACH_SIZE: Final = in_sizes("80x24", "60x20", "120x40")
EACH_LOOK: Final = EACH_SIZE + in_themes("80x24")
"""The first theme in every size, the others in one.

What has scrolled, or was measured when it was opened, may look otherwise in a size that it did not start in:
there a test starts the application once for each size.
"""


class Pictures:
    """Takes pictures of applications and compares them with the kept ones."""

    def __init__(self, snapshot: SnapshotAssertion, node: pytest.Item) -> None:
        self._snapshot = snapshot.use_extension(SVGImageExtension)
        self._node = node
        self._different: list[str] = []

    async def __call__(
        self,
        app: App[Any],
        before: Before,
        looks: tuple[Look, ...] = (),
        *,
        size: str = "80x24",
    ) -> None:
        """Start ``app``, run ``before``, and take one picture or one for each of ``looks``."""
        async with self.of(app, looks[0].size if looks else size) as pilot:
            await before(pilot)
            if not looks:
                await self.take(pilot)
            for look in looks:
                if pilot.app.size != look.cells:
                    await pilot.resize_terminal(*look.cells)
                pilot.app.theme = THEMES[look.theme]
                await self.take(pilot, look.name)

    @asynccontextmanager
    async def of(self, app: App[Any], size: str = "80x24") -> AsyncIterator[Pilot[Any]]:
        """Run ``app``; afterwards no picture may differ from the kept one."""
        async with app.run_test(size=cells(size), tooltips=True, notifications=True) as pilot:
            yield pilot
        assert not self._different, f"these pictures differ from those kept: {', '.join(self._different)}"

    async def take(self, pilot: Pilot[Any], name: str = "") -> None:
        """Compare what is on the screen once it no longer changes; ``name`` tells several of a test apart."""
        snapshot = self._snapshot(name=name) if name else self._snapshot
        kept = _kept(snapshot)
        picture = await _finished(pilot, kept)
        if snapshot != picture:
            self._different.append(name or self._node.name)
            self._report(name, kept, picture)

    def _report(self, name: str, kept: str, picture: str) -> None:
        """Leave what differs where the plugin's report finds it."""
        console = Console(legacy_windows=False, force_terminal=True)
        app = PseudoApp(PseudoConsole(console.legacy_windows, console.size))
        path, line, test = self._node.reportinfo()
        title = f"{test} {name}".strip()
        found = (False, kept, picture, app, path, line, title, "", "", bool(kept))
        report = node_to_report_path(self._node)
        report.with_name(f"{report.name}_{name}").write_bytes(pickle.dumps(found))


def _kept(snapshot: SnapshotAssertion) -> str:
    """The picture that is kept; empty where there is none."""
    place = snapshot.extension.get_location(test_location=snapshot.test_location, index=snapshot.index)
    path = Path(place)
    return normalize_svg(path.read_text(encoding="utf-8")) if path.exists() else ""


async def _finished(pilot: Pilot[Any], kept: str, timeout: float = 60) -> str:
    """The picture as soon as it is the kept one, or when nothing is left that may change it."""
    app, last, same = pilot.app, "", 0
    deadline = monotonic() + timeout
    while True:
        await pilot.pause()
        picture = normalize_svg(app.export_screenshot(title=app.title, simplify=True))
        same = same + 1 if picture == last and _threads_are_idle() else 0
        if picture == kept or same == STEADY or monotonic() > deadline:
            return picture
        last = picture
        await asyncio.sleep(0.05)


def _threads_are_idle() -> bool:
    """Whether nothing is left to do for the threads in which the application reads, parses and waits."""
    pool: Any = getattr(asyncio.get_running_loop(), "_default_executor", None)
    return pool is None or pool._idle_semaphore._value >= len(pool._threads)


@pytest.fixture
def pictures(
    snapshot: SnapshotAssertion, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pictures]:
    """Pictures of this test; update them with ``pytest tests/snapshot --snapshot-update``.

    A conversation paints each change at once.
    """
    monkeypatch.setattr(painter, "PAINT_EVERY", 0.0)
    yield Pictures(snapshot, request.node)


def looking_at_list(action: str, *keys: str, loaded: Collection[str], seen: str) -> Before:
    """Open the screen of a list, press the keys once a text of ``loaded`` is there, and wait for ``seen``."""

    async def before(pilot: Pilot[Any]) -> None:
        app: Any = pilot.app
        await until(lambda: isinstance(app.focused, Input) and ":24200" in screen_text(app), pilot)
        app.clear_notifications()
        await app.run_action(action)
        await until(lambda: app.screen is not app.main, pilot)
        await until(lambda: any(each in screen_text(app) for each in loaded), pilot)
        app.clear_notifications()
        await pilot.press(*keys)
        await until(lambda: seen in screen_text(app), pilot)
        still(app)
        for _ in range(3):
            await pilot.pause()

    return before
