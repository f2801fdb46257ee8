"""The recording of the README and the pictures of the gallery, drawn by the workbench itself.

``make screenshots`` writes ``docs/images/*.svg``: a real fleet, a copy of the sample project, real calls. The
sample project's own ports have to be free. ``recording.svg`` is a film, the others are pictures.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import monotonic, time

from recording import Recording
from textual.events import Paste
from textual.pilot import Pilot
from textual.strip import Strip

HERE = Path(__file__).resolve().parent
SAMPLE = HERE.parent / "sample_project"
TOKEN = "LARKMOOR_TOKEN"
QUESTION = "Which customers were hit by the May invoice bug, and what did they buy?"
DEADLINE = 180.0
FILM_SIZE = (112, 32)
WEB_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
Scene = Callable[["Camera"], Awaitable[None]]


class Camera:
    """Presses keys, waits for what the screen shows, and takes pictures."""

    def __init__(self, pilot: "Pilot[int]", folder: Path) -> None:
        self._pilot = pilot
        self._folder = folder
        self._film = Recording()

    @property
    def root(self) -> Path:
        """The project's folder."""
        return Path.cwd()

    @property
    def text(self) -> str:
        """What stands on the screen, line by line."""
        return "\n".join(strip.text for strip in self._strips)

    @property
    def _strips(self) -> list[Strip]:
        return self._pilot.app.screen._compositor.render_strips()

    async def press(self, *keys: str) -> None:
        """Press keys by Textual's names."""
        await self._pilot.press(*keys)

    async def type(self, text: str) -> None:
        """Type text as it is."""
        await self._pilot.press(*("space" if letter == " " else letter for letter in text))

    async def say(self, text: str) -> None:
        """Type a message and send it."""
        await self.type(text)
        await self.press("enter")

    async def paste(self, text: str) -> None:
        """Paste, as a terminal does with a file that is dropped on it."""
        focused = self._pilot.app.focused
        assert focused is not None
        focused.post_message(Paste(text))

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
        self._save(name, WEB_FONT.sub("", self._pilot.app.export_screenshot(title="Pallas")))

    async def film(self, seconds: float, *texts: str, every: float = 0.4) -> None:
        """Film until the screen shows ``texts``, and what it shows then for ``seconds``."""
        deadline = monotonic() + DEADLINE
        while not all(text in self.text for text in texts):
            if monotonic() > deadline:
                raise SystemExit(f"{texts} not on the screen:\n{self.text}")
            self._film.add(self._strips, every)
            await self._pilot.pause(every)
        await self._pilot.pause(0.3)
        self._film.add(self._strips, seconds)

    async def film_typing(self, text: str) -> None:
        """Type text as it is, three letters a frame."""
        for start in range(0, len(text), 3):
            await self.type(text[start : start + 3])
            self._film.add(self._strips, 0.12)

    def develop(self, name: str, poster: int) -> None:
        """Save the film."""
        self._save(name, self._film.svg(self._pilot.app.size.width, poster))

    def _save(self, name: str, svg: str) -> None:
        (self._folder / f"{name}.svg").write_text(svg, "utf-8")
        print(f"docs/images/{name}.svg: {len(svg) // 1024} KiB")


async def desk(camera: Camera) -> None:
    """The whole workbench: the concierge asked two colleagues, with the caller's bearer."""
    await camera.until("6 ok", "Write to concierge")
    await camera.say(f"/set bearer ${TOKEN}")
    await camera.until("you ask as")
    await camera.say(QUESTION)
    await camera.until("is writing")
    await camera.until("is writing", gone=True)
    await camera.take("workbench")


async def open_step(camera: Camera) -> None:
    """From a run's screen to its first question to a model."""
    await camera.until("1. scripted", "4. scripted", "$0")
    await camera.press("enter")
    await camera.until("Instructions")


async def feed(camera: Camera) -> None:
    """The run as a tree across agents, with a waterfall; then on a screen of its own."""
    await camera.press("f4", "f8")
    await camera.press("home", "right")
    await camera.take("feed")
    await camera.press("enter")
    await camera.until("Steps", "Exchanges")
    await camera.take("run")
    await open_step(camera)
    await camera.take("step")
    await camera.press("escape", "escape")


async def credentials(camera: Camera) -> None:
    """Which credential went where."""
    await camera.press("f6")
    await camera.until("from", "source", "forward")
    await camera.take("credentials")


async def logs(camera: Camera) -> None:
    """The log, filtered."""
    await camera.press("f5", "slash")
    await camera.type("agent:research level>=info")
    await camera.press("enter")
    await camera.until("research", "agent:research")
    await camera.take("logs")
    await camera.press("escape", "f8")


async def chat(camera: Camera) -> None:
    """A conversation with pictures."""
    await camera.press("f3", "ctrl+t")
    await camera.type("vision")
    await camera.press("enter")
    await camera.until("Write to vision")
    await camera.paste(str(camera.root / "pictures" / "sales-2026.png"))
    await camera.until("sales-2026.png")
    await camera.say("What does this chart show?")
    await camera.until("vision answered")
    await camera.until("is writing", gone=True)
    await camera.press("f8")
    await camera.take("chat")
    await camera.press("f8")


async def agent(camera: Camera) -> None:
    """One agent with its tools, and a form made from a tool's schema."""
    await camera.press("f2", "home", "down", "t")
    await camera.until("send_message", "docs")
    await camera.press("down", "down", "down", "down")
    await camera.until("what it takes")
    await camera.take("agent")
    await camera.press("up", "up", "up", "enter")
    await camera.until("not sent")
    await camera.take("tool")
    await camera.press("escape", "escape", "escape")


async def comfort(camera: Camera) -> None:
    """Settings, palette, fleets elsewhere, jump mode, help."""
    await camera.press("f11")
    await camera.until("notify")
    await camera.take("settings")
    await camera.press("escape", "ctrl+p")
    await camera.type("research")
    await camera.until("research")
    await camera.take("palette")
    await camera.press("escape", "f10")
    await camera.until("Instances")
    await camera.take("instances")
    await camera.press("escape", "f12")
    await camera.take("jump")
    await camera.press("escape", "f1")
    await camera.until("Here")
    await camera.take("help")
    await camera.press("escape")


async def messages(camera: Camera) -> None:
    """What handlers say to each other in a run of models and code."""
    await camera.press("f3", "ctrl+t")
    await camera.type("concierge")
    await camera.press("enter")
    await camera.until("Write to concierge")
    await camera.say("Please write an offer for 12 PL-300.")
    await camera.until("1,001.88 EUR")
    await camera.until("is writing", gone=True)
    await camera.press("f4", "escape", "end", "m")
    await camera.until("OfferRequest", "pricing")
    await camera.press("home", "down")
    await camera.take("messages")
    await camera.press("escape")


async def edit(camera: Camera) -> None:
    """Save a card with one more sentence."""
    card = camera.root / "agents" / "catalogue.md"
    text = await asyncio.to_thread(card.read_text, "utf-8")
    await asyncio.to_thread(
        card.write_text, text + "\nName the price with its currency, and say when stock runs low.\n"
    )


async def changes(camera: Camera) -> None:
    """An edit that is live: what is different in the new version."""
    await edit(camera)
    await camera.press("f4")
    await camera.until("catalogue", "v2")
    await camera.press("C")
    await camera.until("currency")
    await camera.take("changes")
    await camera.press("escape")


async def threads(camera: Camera) -> None:
    """Conversations that last."""
    await camera.press("f2", "T")
    await camera.until("Threads", "concierge")
    await camera.take("threads")
    await camera.press("escape")


async def light(camera: Camera) -> None:
    """The same in light colours."""
    await camera.press("f9", "f3")
    await camera.take("light")


async def film(camera: Camera) -> None:
    """A question, the run that it became, and an edit that is live at once."""
    await camera.until("● 6", "Write to concierge")
    await camera.film(1.5)
    await camera.film_typing(QUESTION)
    await camera.press("enter")
    await camera.film(0.2, "is writing")
    await camera.until("is writing")
    await camera.film(2.5, "concierge answered")
    await camera.press("f4", "home", "right", "enter")
    await camera.film(2.5, "Steps", "docs/search")
    await open_step(camera)
    await camera.film(3.0)
    await camera.press("escape", "escape")
    await edit(camera)
    await camera.film(1.0, "v2")
    await camera.press("C")
    await camera.film(3.0, "currency")
    await camera.press("escape")
    camera.develop("recording", poster=-5)


_FIRST = (desk, feed, credentials, logs, chat, agent, messages)
SCENES: tuple[Scene, ...] = (*_FIRST, changes, comfort, threads, light)


async def shoot(folder: Path, root: Path, size: tuple[int, int], scenes: Sequence[Scene]) -> None:
    """Start the fleet in ``root``, play the scenes, and stop."""
    from pallas.fleet.threaded_fleet import ThreadedFleet
    from pallas.telemetry.log import setup_logging
    from pallas_tui.app import Workbench
    from pallas_tui.launch import late_panes
    from pallas_tui.settings import Settings

    log = setup_logging(stderr=False)
    app = Workbench(
        lambda: ThreadedFleet(root, watch=True),
        name="larkmoor",
        root=root,
        late=late_panes(log),
        settings=Settings(theme="textual-dark", ascii=False),
        strict=True,
    )
    try:
        async with app.run_test(size=size, notifications=True) as pilot:
            camera = Camera(pilot, folder)
            for scene in scenes:
                await scene(camera)
    finally:
        if app.fleet is not None:
            await asyncio.to_thread(app.fleet.stop, 5.0)


def _token() -> str:
    """What looks like a JWT that holds for two hours."""
    claims = {"sub": "mira", "aud": "larkmoor", "exp": int(time()) + 7200}
    parts = [{"alg": "none"}, claims, {}]
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


def project_in(scratch: Path) -> Path:
    """A copy of the sample project that lends callers' tokens, and an environment of its own."""
    root = scratch / "larkmoor"
    shutil.copytree(SAMPLE, root, ignore=shutil.ignore_patterns("__pycache__", ".env", "*.secrets.yaml"))
    settings = root / "fastagent.config.yaml"
    opted_in = "auth: {oauth: false}\n      forward_inbound_auth: true\n"
    settings.write_text(re.sub(r"auth: \{oauth: false\}.*\n", opted_in, settings.read_text("utf-8")), "utf-8")
    os.environ[TOKEN] = _token()
    os.environ["PALLAS_LOG_FILE"] = str(scratch / "pallas.log")
    os.environ["PALLAS_DATABASE_URL"] = f"sqlite:///{scratch}/ledger.sqlite3"
    os.environ["PALLAS_WORKBENCH_CONFIG"] = str(scratch / "workbench.yaml")
    os.environ["TEXTUAL_ANIMATIONS"] = "none"
    return root


def main() -> int:
    """Take every picture; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=HERE / "images")
    parser.add_argument("--size", default="120x40")
    arguments = parser.parse_args()
    columns, rows = map(int, arguments.size.split("x"))
    arguments.out.mkdir(parents=True, exist_ok=True)
    for scenes, size in (((film,), FILM_SIZE), (SCENES, (columns, rows))):
        with tempfile.TemporaryDirectory(prefix="pallas-pictures-") as scratch:
            asyncio.run(shoot(arguments.out, project_in(Path(scratch)), size, scenes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
