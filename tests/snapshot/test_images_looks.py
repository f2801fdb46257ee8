"""How pictures look; `make test ARGS="tests/snapshot --snapshot-update"` after an intended change."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.fake_fleet import NOON, agent
from support.pane_app import STYLES, PaneApp, still
from support.pictures import picture
from support.waiting import until
from textual.app import App
from textual.pilot import Pilot

from pallas.model import Image
from pallas_tui.client import OnProgress, Reply
from pallas_tui.pictures.images import image_of
from pallas_tui.widgets.chat import ChatPane
from pallas_tui.widgets.chat.pictures import Thumbnail
from pallas_tui.widgets.chat.tray import Chip
from pallas_tui.widgets.dialogs.file_dialog import FileList, FilesScreen

SMALL, WIDE = (60, 20), (100, 40)


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
    ) -> Reply:
        shown = image_of(padded(320, 200), "image 1.png")
        return Reply(text="This is what it looks like:", seconds=3.1, images=(shown,))

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("size", [SMALL, WIDE], ids=["small", "wide"])
@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
def test_a_picture_in_the_transcript_and_one_to_be_sent(
    snap_compare: Callable[..., bool], size: tuple[int, int], theme: str, tmp_path: Path
) -> None:
    (tmp_path / "invoice.png").write_bytes(padded(64, 48))
    pane = ChatPane(connect=Painter, base=tmp_path, stopwatch=lambda: pane._now)
    app = PaneApp(pane, (agent("vision", 24204, vision=True),))

    async def before(pilot: Pilot[Any]) -> None:
        pilot.app.theme = theme
        view = await until(lambda: pane._current, pilot)
        await until(lambda: view._prompt.has_focus, pilot)
        view._prompt.insert("Draw it")
        await pilot.press("enter")
        await until(lambda: view.conversation.run is None and view.query_one(Thumbnail).is_drawn, pilot)
        await view.tray.take(tmp_path / "invoice.png")
        chip = await until(lambda: view.query_one(Chip), pilot)
        await until(lambda: chip._strips or size[1] < 30, pilot)
        await until(lambda: view.transcript.at_end, pilot)
        still(pilot.app)
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=before)


class Files(App[None]):
    CSS_PATH = sorted(STYLES.glob("*.tcss"))
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.animation_level = "none"
        self.folder = folder

    def on_mount(self) -> None:
        self.push_screen(FilesScreen(self.folder))


@pytest.mark.parametrize("size", [SMALL, WIDE], ids=["small", "wide"])
def test_choosing_images_among_the_files(
    snap_compare: Callable[..., bool], size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "screens").mkdir()
    for name, count in (("invoice.png", 84_000), ("plan.jpg", 1_200_000), ("short.gif", 12)):
        (tmp_path / name).write_bytes(b"\0" * count)
    (tmp_path / "gone.webp").symlink_to(tmp_path / "nowhere.webp")
    for path in tmp_path.iterdir():
        if not path.is_symlink():
            os.utime(path, (NOON, NOON))

    async def before(pilot: Pilot[Any]) -> None:
        screen = await until(lambda: isinstance(pilot.app.screen, FilesScreen) and pilot.app.screen, pilot)
        files = screen.query_one(FileList)
        await until(lambda: files.line_count() == 5, pilot)
        await pilot.press("down", "down", "space")
        await until(lambda: files.marked, pilot)
        screen._where.update(" ~/pictures  1 marked")
        await pilot.pause()

    assert snap_compare(Files(tmp_path), terminal_size=size, run_before=before)
