"""How pictures look; `make test ARGS="tests/snapshot --snapshot-update"` after an intended change."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.fake_fleet import NOON, agent
from support.looks import Pictures, in_sizes, in_themes
from support.pane_app import STYLES, PaneApp, still
from support.pictures import is_drawn, picture
from support.waiting import until
from textual.app import App
from textual.pilot import Pilot

from pallas.model import Image
from pallas_tui.chat_client import AgentReply, OnProgress
from pallas_tui.pictures.images import image_of
from pallas_tui.widgets.chat import ChatPane
from pallas_tui.widgets.chat.picture_tray import Chip
from pallas_tui.widgets.chat.thumbnails import Thumbnail
from pallas_tui.widgets.dialogs.file_dialog import FileList, FilesScreen


def padded(width: int, height: int) -> bytes:
    """A picture whose file has the same size whoever compresses it."""
    data = picture(size=(width, height))
    return data + b"\0" * (84_000 - len(data))


class Painter:
    """Answers with a picture."""

    def __init__(self, url: str, conversation: str, **_: Any) -> None:
        self.url = url

    async def send(
        self, text: str, images: Sequence[Image] = (), on_progress: OnProgress | None = None, **_: Any
    ) -> AgentReply:
        shown = image_of(padded(320, 200), "image 1.png")
        return AgentReply(text="This is what it looks like:", seconds=3.1, images=(shown,))

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.slow
async def test_a_picture_in_the_transcript_and_one_to_be_sent(pictures: Pictures, tmp_path: Path) -> None:
    (tmp_path / "invoice.png").write_bytes(padded(64, 48))

    def app() -> PaneApp:
        pane = ChatPane(connect=Painter, base=tmp_path, stopwatch=lambda: pane._now)
        return PaneApp(pane, (agent("vision", 24204, vision=True),))

    async def before(pilot: Pilot[Any]) -> None:
        pane = pilot.app.query_one(ChatPane)
        view = await until(lambda: pane._current, pilot)
        await until(lambda: view._prompt.has_focus, pilot)
        view._prompt.insert("Draw it")
        await pilot.press("enter")
        await until(lambda: view.conversation.run is None and is_drawn(view.query_one(Thumbnail)), pilot)
        await view.tray.take(tmp_path / "invoice.png")
        chip = await until(lambda: view.query_one(Chip), pilot)
        await until(lambda: chip._strips or pilot.app.size.height < 30, pilot)
        await until(lambda: view.transcript.at_end, pilot)
        still(pilot.app)
        await pilot.pause()

    await pictures(app(), before, in_sizes("100x40") + in_themes("100x40", "light"))
    await pictures(app(), before, in_sizes("60x20"))


class Files(App[None]):
    CSS_PATH = sorted(STYLES.glob("*.tcss"))
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.animation_level = "none"
        self.folder = folder

    def on_mount(self) -> None:
        self.push_screen(FilesScreen(self.folder))


def fill(folder: Path) -> None:
    """A folder, three pictures and a link to nothing, all of one moment."""
    (folder / "screens").mkdir()
    for name, count in (("invoice.png", 84_000), ("plan.jpg", 1_200_000), ("short.gif", 12)):
        (folder / name).write_bytes(b"\0" * count)
    (folder / "gone.webp").symlink_to(folder / "nowhere.webp")
    for path in folder.iterdir():
        if not path.is_symlink():
            os.utime(path, (NOON, NOON))


async def test_choosing_images_among_the_files(pictures: Pictures, tmp_path: Path) -> None:
    fill(tmp_path)

    async def before(pilot: Pilot[Any]) -> None:
        screen = await until(lambda: isinstance(pilot.app.screen, FilesScreen) and pilot.app.screen, pilot)
        files = screen.query_one(FileList)
        await until(lambda: files.line_count() == 5, pilot)
        await pilot.press("down", "down", "space")
        await until(lambda: files.marked, pilot)
        screen._where.update(" ~/pictures  1 marked")
        await pilot.pause()

    for look in in_sizes("100x40", "60x20"):
        await pictures(Files(tmp_path), before, (look,))
