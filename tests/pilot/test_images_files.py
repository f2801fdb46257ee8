"""Choosing images among the files: everything by keys, nothing hangs, everything odd is told."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.pane_app import STYLES
from support.pictures import picture
from support.waiting import until
from textual.app import App
from textual.pilot import Pilot

from pallas_tui.pictures import folder as listing
from pallas_tui.pictures.folder import list_folder
from pallas_tui.widgets.dialogs import file_dialog
from pallas_tui.widgets.dialogs.file_dialog import FileList, FilesScreen


class Host(App[None]):
    CSS_PATH = sorted(STYLES.glob("*.tcss"))
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._start = folder
        self.chosen: tuple[Path, ...] | None = None

    def on_mount(self) -> None:
        self.open()

    def open(self) -> None:
        self.push_screen(FilesScreen(self._start), lambda paths: setattr(self, "chosen", paths))


class Picker:
    def __init__(self, app: Host, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    def text(self) -> str:
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)

    def names(self) -> list[str]:
        return [item.shown for item in self.app.screen.query_one(FileList).rows]

    async def until(self, condition: Any) -> Any:
        return await until(condition, self.pilot)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "pictures" / "old").mkdir(parents=True)
    (root / ".secret").mkdir()
    for name in ("b.png", "A.JPG", "c.webp"):
        (root / name).write_bytes(picture())
    for name in ("notes.txt", ".hidden.png"):
        (root / name).write_text("x")
    (root / "pictures" / "deep.gif").write_bytes(picture("GIF"))
    (root / "pictures" / "circle").symlink_to(root)
    (root / "nowhere.png").symlink_to(root / "gone.png")
    (root / "itself.png").symlink_to(root / "itself.png")
    os.mkfifo(root / "pipe.png")
    return root


@pytest.fixture
async def picker(tree: Path) -> AsyncIterator[Picker]:
    app = Host(tree)
    async with app.run_test(size=(80, 24)) as pilot:
        shown = Picker(app, pilot)
        await shown.until(lambda: "b.png" in shown.names())
        yield shown


async def test_folders_and_images_are_listed_and_enter_takes_one(picker: Picker, tree: Path) -> None:
    assert picker.names() == ["pictures", "A.JPG", "b.png", "c.webp", "itself.png", "nowhere.png", "pipe.png"]
    await picker.pilot.press("down", "down", "enter")
    await picker.until(lambda: picker.app.chosen == (tree / "b.png",))


async def test_going_down_and_up_leaves_the_cursor_where_one_was(picker: Picker, tree: Path) -> None:
    await picker.pilot.press("enter")
    await picker.until(lambda: picker.names() == ["circle", "old", "deep.gif"])
    assert "project/pictures" in picker.text()
    await picker.pilot.press("left")
    await picker.until(lambda: "b.png" in picker.names())
    selected = picker.app.screen.query_one(FileList).selected
    assert selected is not None and selected.shown == "pictures"
    await picker.pilot.press("escape")
    await picker.until(lambda: picker.app.chosen == ())


async def test_a_circle_of_links_never_makes_the_path_longer(picker: Picker, tree: Path) -> None:
    for _ in range(3):
        await picker.pilot.press("enter")
        await picker.until(lambda: picker.names()[:1] == ["circle"])
        await picker.pilot.press("enter")
        await picker.until(lambda: "b.png" in picker.names())
    assert isinstance(picker.app.screen, FilesScreen)
    assert len(str(picker.app.screen._folder)) <= len(str(tree))


@pytest.mark.slow
async def test_what_cannot_be_taken_says_why(picker: Picker) -> None:
    for name, reason in (
        ("itself", "levels of symbolic links"),
        ("nowhere", "no such file"),
        ("pipe", "not a plain"),
    ):
        await picker.pilot.press("slash", *name, "enter")
        await picker.until(lambda name=name: picker.names() == [f"{name}.png"])
        await picker.pilot.press("enter")
        await picker.until(lambda reason=reason: reason in picker.text())
        await picker.pilot.press("escape")
        await picker.until(lambda: "b.png" in picker.names())
    assert picker.app.chosen is None


async def test_hidden_ones_and_all_files_are_shown_when_asked_for(picker: Picker) -> None:
    await picker.pilot.press("full_stop")
    await picker.until(lambda: {".hidden.png", ".secret"} <= set(picker.names()))
    await picker.pilot.press("a")
    await picker.until(lambda: "notes.txt" in picker.names())
    await picker.pilot.press("full_stop", "a")
    await picker.until(lambda: not {"notes.txt", ".secret"} & set(picker.names()))


async def test_several_are_marked_and_taken_at_once(picker: Picker, tree: Path) -> None:
    await picker.pilot.press("down", "space", "space")
    await picker.until(lambda: "2 marked" in picker.text())
    await picker.pilot.press("enter")
    await picker.until(lambda: picker.app.chosen == (tree / "A.JPG", tree / "b.png"))


async def test_a_filter_that_fits_nothing_says_how_to_go_on(picker: Picker) -> None:
    await picker.pilot.press("slash", "z", "z", "z")
    await picker.until(
        lambda: "No images and folders here with that in the name. escape shows all" in picker.text()
    )
    await picker.pilot.press("escape")
    await picker.until(lambda: "b.png" in picker.names())
    assert isinstance(picker.app.screen, FilesScreen)


async def test_a_folder_that_may_not_be_read_is_told_and_one_stays(
    picker: Picker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def guarded(path: Any) -> Any:
        if str(path).endswith("pictures"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(listing.os, "scandir", guarded)
    await picker.pilot.press("enter")
    await picker.until(lambda: "cannot be read: Permission denied" in picker.text())
    assert "b.png" in picker.names()


async def test_a_folder_that_never_answers_does_not_hold_the_keys(
    picker: Picker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from threading import Event

    stuck = Event()
    monkeypatch.setattr(file_dialog, "TIMEOUT", 0.2)
    monkeypatch.setattr(file_dialog, "list_folder", lambda *_, **__: stuck.wait(30))
    try:
        await picker.pilot.press("enter")
        await picker.until(lambda: "did not answer within" in picker.text())
        await picker.pilot.press("escape")
        await picker.until(lambda: picker.app.chosen == ())
    finally:
        stuck.set()


async def test_a_folder_that_answers_late_is_shown(
    picker: Picker, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from threading import Event

    answers = Event()

    def late(folder: Path, **options: bool) -> listing.FolderListing:
        answers.wait(60)
        return list_folder(folder, **options)

    monkeypatch.setattr(file_dialog, "TIMEOUT", 0.2)
    monkeypatch.setattr(file_dialog, "list_folder", late)
    await picker.pilot.press("enter")
    await picker.until(lambda: "did not answer within" in picker.text())
    answers.set()
    await picker.until(lambda: picker.names() == ["circle", "old", "deep.gif"])
    assert "did not answer" not in picker.text()


async def test_it_fits_into_a_small_terminal(picker: Picker) -> None:
    await picker.pilot.resize_terminal(60, 20)
    await picker.until(lambda: "A.JPG" in picker.text() and "filter" in picker.text())


def test_a_huge_folder_is_cut_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LIMIT", 50)
    for number in range(60):
        (tmp_path / f"{number}.png").touch()
    listed = list_folder(tmp_path)
    assert len(listed.items) == 50
    assert "Only the first 50 entries" in listed.problem


def test_names_from_outside_are_harmless(tmp_path: Path) -> None:
    (tmp_path / "a\x1b]52;c;eA==\x07\u202e.png").touch()
    Path(os.fsdecode(os.fsencode(str(tmp_path)) + b"/\x9b2J\xff.png")).touch()
    for item in list_folder(tmp_path).items:
        assert not set(item.shown) & {"\x1b", "\x07", "\u202e", "\x9b", "\udc9b"}
        assert item.path.exists()
    assert "cannot be read" in list_folder(tmp_path / "gone").problem
