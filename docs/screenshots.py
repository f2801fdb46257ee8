"""The pictures of the README, drawn by the workbench itself on a copy of the sample project.

``make screenshots`` writes ``docs/images/*.svg``: real fleet, real calls, the offline model. The sample
project's own ports have to be free.
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic

from textual.pilot import Pilot

HERE = Path(__file__).resolve().parent
SAMPLE = HERE.parent / "sample_project"
QUESTION = "Which customers were hit by the May invoice bug, and what did they buy?"
DEADLINE = 60.0
Scene = Callable[["Camera"], Awaitable[None]]


class Camera:
    """Presses keys, waits for what the screen shows, and takes pictures."""

    def __init__(self, pilot: "Pilot[int]", folder: Path) -> None:
        self._pilot = pilot
        self._folder = folder

    @property
    def text(self) -> str:
        """What stands on the screen, line by line."""
        strips = self._pilot.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in strips)

    async def press(self, *keys: str) -> None:
        """Press keys by Textual's names."""
        await self._pilot.press(*keys)

    async def type(self, text: str) -> None:
        """Type text as it is."""
        await self._pilot.press(*("space" if letter == " " else letter for letter in text))

    async def until(self, *texts: str, gone: bool = False) -> None:
        """Until the screen shows all of ``texts``, or with ``gone`` none of them."""
        deadline = monotonic() + DEADLINE
        while not all((text in self.text) is not gone for text in texts):
            if monotonic() > deadline:
                raise SystemExit(f"{texts} {'stayed' if gone else 'not'} on the screen:\n{self.text}")
            await self._pilot.pause(0.05)

    async def take(self, name: str) -> None:
        """Save what the screen shows."""
        await self._pilot.pause(0.3)
        self._pilot.app.clear_notifications()
        await self._pilot.pause(0.2)
        svg = self._pilot.app.export_screenshot(title="Pallas")
        (self._folder / f"{name}.svg").write_text(svg, "utf-8")
        print(f"docs/images/{name}.svg")


async def desk(camera: Camera) -> None:
    """The whole workbench, after the concierge asked its colleagues."""
    await camera.until("4 ok", "Write to concierge")
    await camera.type(QUESTION)
    await camera.press("enter")
    await camera.until("concierge answered")
    await camera.take("workbench")


SCENES: tuple[Scene, ...] = (desk,)


async def shoot(folder: Path, root: Path, size: tuple[int, int]) -> None:
    """Start the fleet in ``root``, play every scene, and stop."""
    from pallas.fleet.thread import FleetThread
    from pallas.log import setup_logging
    from pallas_tui.app import Workbench
    from pallas_tui.launch import late_panes
    from pallas_tui.settings import Settings

    log = setup_logging(stderr=False)
    app = Workbench(
        lambda: FleetThread(root),
        name="larkmoor",
        root=root,
        late=late_panes(log),
        settings=Settings(theme="textual-dark", ascii=False),
        strict=True,
    )
    try:
        async with app.run_test(size=size, notifications=True) as pilot:
            camera = Camera(pilot, folder)
            for scene in SCENES:
                await scene(camera)
    finally:
        if app.fleet is not None:
            await asyncio.to_thread(app.fleet.stop, 5.0)


def main() -> int:
    """Take every picture; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=HERE / "images")
    parser.add_argument("--size", default="120x40")
    arguments = parser.parse_args()
    columns, rows = map(int, arguments.size.split("x"))
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pallas-pictures-") as scratch:
        root = Path(scratch) / "larkmoor"
        shutil.copytree(SAMPLE, root, ignore=shutil.ignore_patterns("__pycache__", ".env", "*.secrets.yaml"))
        os.environ["PALLAS_LOG_FILE"] = str(Path(scratch) / "pallas.log")
        os.environ["PALLAS_WORKBENCH_CONFIG"] = str(Path(scratch) / "workbench.yaml")
        os.environ["TEXTUAL_ANIMATIONS"] = "none"
        asyncio.run(shoot(arguments.out, root, (columns, rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
