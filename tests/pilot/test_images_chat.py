"""Pictures in the chat: shown small in the transcript, in full on enter, and saved."""

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.fake_fleet import agent
from support.notices import notices_of
from support.pane_app import PaneApp
from support.pictures import hostile, is_drawn, picture
from support.waiting import until
from textual.events import Paste
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import Fault, FaultType, Image
from pallas_tui.chat_client import AgentReply, OnProgress
from pallas_tui.pictures.images import ChatPicture, image_of, received
from pallas_tui.widgets.chat import ChatPane
from pallas_tui.widgets.chat import prompt_area as prompt_module
from pallas_tui.widgets.chat.conversation_view import ConversationView
from pallas_tui.widgets.chat.picture_tray import Chip
from pallas_tui.widgets.chat.thumbnails import ROWS, Thumbnail
from pallas_tui.widgets.dialogs.file_dialog import FilesScreen
from pallas_tui.widgets.dialogs.picture_dialog import PictureScreen

PNG = picture(size=(640, 480))


class Painter:
    """Answers with the pictures that the test put there."""

    answer: tuple[ChatPicture, ...] = ()
    text = "Here you are."
    got: Sequence[Image] = ()

    def __init__(self, url: str, conversation: str, **_: Any) -> None:
        self.url = url

    async def send(
        self, text: str, images: Sequence[Image] = (), on_progress: OnProgress | None = None, **_: Any
    ) -> AgentReply:
        Painter.got = images
        return AgentReply(text=Painter.text, seconds=1.0, images=Painter.answer)

    async def close(self) -> None:
        """Nothing is open."""


class Chat:
    def __init__(self, app: PaneApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def view(self) -> ConversationView:
        view = self.app.query_one(ChatPane)._current
        assert view is not None
        return view

    async def until(self, condition: Any) -> Any:
        return await until(condition, self.pilot)

    async def ask(self, text: str) -> None:
        self.view._prompt.insert(text)
        await self.pilot.press("enter")
        await self.until(lambda: self.view.conversation.run is None and self.view.conversation.entries)

    def thumbnails(self) -> list[Thumbnail]:
        return list(self.view.query(Thumbnail))

    async def drawn(self, count: int) -> list[Thumbnail]:
        await self.until(lambda: len(self.thumbnails()) == count and all(map(is_drawn, self.thumbnails())))
        return self.thumbnails()


@pytest.fixture
async def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Chat]:
    monkeypatch.chdir(tmp_path)
    Painter.answer, Painter.text, Painter.got = (), "Here you are.", ()
    pane = ChatPane(connect=Painter, base=tmp_path)
    app = PaneApp(pane, (agent("vision", 24204, vision=True),))
    async with app.run_test(size=(100, 40)) as pilot:
        shown = Chat(app, pilot)
        await shown.until(lambda: shown.view._prompt.has_focus)
        yield shown


def pictures(*data: bytes) -> tuple[ChatPicture, ...]:
    return received((base64.b64encode(one).decode("ascii"), "image/png") for one in data)


async def test_a_picture_of_an_answer_is_shown_small_and_named(chat: Chat) -> None:
    Painter.answer = pictures(PNG)
    await chat.ask("paint")
    (thumbnail,) = await chat.drawn(1)
    await chat.until(lambda: thumbnail.size.height == ROWS)
    await chat.until(lambda: "image 1.png" in chat.app.screen_text() and "640×480" in chat.app.screen_text())
    assert "▀" in chat.app.screen_text()


async def test_a_picture_that_is_sent_is_shown_with_the_question(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "invoice.png").write_bytes(PNG)
    assert await chat.view.tray.take(tmp_path / "invoice.png")
    await chat.ask("what is this?")
    assert [one.mime_type for one in Painter.got] == ["image/png"]
    await chat.drawn(1)
    await chat.until(lambda: "invoice.png" in chat.app.screen_text())


async def test_an_answer_of_nothing_but_pictures_says_so_by_showing_them(chat: Chat) -> None:
    Painter.answer, Painter.text = pictures(PNG, picture("GIF", frames=3), picture("JPEG")), ""
    await chat.ask("paint")
    thumbnails = await chat.drawn(3)
    assert "(no text)" not in chat.app.screen_text()
    assert ["first frame" in each._caption for each in thumbnails] == [False, True, False]


async def test_pictures_that_are_broken_are_told_and_break_nothing(chat: Chat) -> None:
    bad = {name: data for name, data in hostile().items() if data}
    Painter.answer = received(
        [(base64.b64encode(data).decode("ascii"), "image/png") for data in bad.values()]
        + [("not base64!", "image/png"), ("\x1b]52;c;eA==\x07", "\x1b[2J[red]")]
    )
    await chat.ask("paint")
    thumbnails = await chat.drawn(len(bad) + 2)
    problems = [each.problem for each in thumbnails if each.problem]
    assert len(problems) >= len(bad) - 2
    assert "\x1b" not in chat.app.screen_text()
    await chat.ask("still there?")


@pytest.mark.slow
async def test_enter_shows_it_in_full_and_the_arrows_go_on(chat: Chat) -> None:
    Painter.answer = pictures(PNG, picture(size=(40, 40)))
    await chat.ask("paint")
    first, _ = await chat.drawn(2)
    chat.app.screen.set_focus(first)
    await chat.pilot.press("enter")
    screen: PictureScreen = await chat.until(
        lambda: isinstance(chat.app.screen, PictureScreen) and chat.app.screen
    )
    await chat.until(lambda: screen.shown == "cells" and "1 of 2" in chat.app.screen_text())
    high = chat.app.screen_text().count("▀")
    assert high > 60 * 20
    await chat.pilot.press("right")
    await chat.until(lambda: "2 of 2" in chat.app.screen_text() and chat.app.screen_text().count("▀") < high)
    await chat.pilot.resize_terminal(60, 20)
    await chat.until(lambda: "2 of 2" in chat.app.screen_text())
    await chat.pilot.press("escape")
    await chat.until(lambda: not isinstance(chat.app.screen, PictureScreen))


@pytest.mark.slow
async def test_saving_asks_where_to_and_again_before_it_overwrites(chat: Chat, tmp_path: Path) -> None:
    Painter.answer = pictures(PNG)
    await chat.ask("paint")
    (thumbnail,) = await chat.drawn(1)
    thumbnail.action_open()
    await chat.until(lambda: isinstance(chat.app.screen, PictureScreen) and chat.app.screen.shown)
    await chat.pilot.press("s", "enter")
    target, line = tmp_path / "image-1.png", chat.app.screen.query_one("#picture-path", Input)
    await chat.until(lambda: target.exists() and "Saved as" in _notices(chat) and not line.display)
    assert target.read_bytes() == PNG
    target.write_bytes(b"mine")
    await chat.pilot.press("s", "enter")
    await chat.until(lambda: "overwrites it" in chat.app.screen_text())
    assert target.read_bytes() == b"mine"
    await chat.pilot.press("enter")
    await chat.until(lambda: target.read_bytes() == PNG and not line.display)
    await chat.pilot.press("s")
    line.value = str(tmp_path / "no" / "a.png")
    await chat.pilot.press("enter")
    await chat.until(lambda: "There is no folder" in chat.app.screen_text())
    await chat.pilot.press("escape")
    assert isinstance(chat.app.screen, PictureScreen)


async def test_a_picture_that_is_no_longer_kept_says_so(chat: Chat) -> None:
    Painter.answer = pictures(PNG)
    await chat.ask("paint")
    (thumbnail,) = await chat.drawn(1)
    entry = chat.view.conversation.entries[-1]
    entry.attachments = tuple(ChatPicture(None, one.name, one.mime_type, 1, "") for one in entry.attachments)
    thumbnail.action_open()
    await chat.until(lambda: "no longer kept" in chat.app.screen_text())


def _notices(chat: Chat) -> str:
    return "\n".join(notice.message for notice in notices_of(chat.app))


async def test_a_picture_is_decoded_off_the_loop(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    from pallas_tui.widgets.chat import thumbnails as widgets

    threads: list[bool] = []
    real = widgets.draw

    def noting(*arguments: Any, **more: Any) -> Any:
        try:
            asyncio.get_running_loop()
            threads.append(False)
        except RuntimeError:
            threads.append(True)
        return real(*arguments, **more)

    monkeypatch.setattr(widgets, "draw", noting)
    Painter.answer = (image_of(PNG, "a.png"),)
    await chat.ask("paint")
    await chat.drawn(1)
    assert threads == [True]


# What is sent


def xclip(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, body: str) -> None:
    """A clipboard of X that has one kind of thing, which ``body`` prints."""
    program = folder / "bin" / "xclip"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/bash\nif [ "${{@: -1}}" = TARGETS ]; then echo {kind}; else {body}; fi\n')
    program.chmod(0o755)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


@pytest.mark.parametrize("key", ["ctrl+v", "alt+v"])
async def test_a_key_attaches_the_picture_on_the_clipboard(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    (tmp_path / "clip").write_bytes(PNG)
    xclip(tmp_path, monkeypatch, "image/png", f'cat "{tmp_path}/clip"')
    await chat.pilot.press(key)
    await chat.until(lambda: "pasted image 1 2 KB ×" in chat.app.screen_text())
    await chat.ask("what is this?")
    assert [base64.b64decode(one.data) for one in Painter.got] == [PNG]


async def test_the_same_key_puts_text_in_or_says_what_is_missing(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    xclip(tmp_path, monkeypatch, "UTF8_STRING", r"printf 'one\ntwo'")
    await chat.pilot.press("ctrl+v")
    await chat.until(lambda: chat.view._prompt.text == "one\ntwo")
    monkeypatch.setenv("PATH", "")
    await chat.pilot.press("ctrl+v")
    await chat.until(lambda: "install xclip" in _notices(chat))
    assert chat.view._prompt.text == "one\ntwo"


async def test_a_picture_too_big_or_none_at_all_on_the_clipboard_is_refused_in_words(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    xclip(tmp_path, monkeypatch, "image/png", "head -c 4000000 /dev/zero")
    await chat.pilot.press("ctrl+v")
    await chat.until(lambda: "pasted image 1 has 4.0 MB; at most 3.0 MB can be sent" in _notices(chat))
    xclip(tmp_path, monkeypatch, "image/png", "echo text")
    await chat.pilot.press("ctrl+v")
    await chat.until(lambda: "pasted image 1 is not a PNG" in _notices(chat))
    assert chat.view.tray.attachments == ()


async def test_images_chosen_among_the_files_are_attached(chat: Chat, tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(PNG)
    await chat.pilot.press("alt+o")
    await chat.until(lambda: "b.png" in chat.app.screen_text())
    await chat.pilot.press("space", "space", "enter")
    await chat.until(lambda: [one.name for one in chat.view.tray.attachments] == ["a.png", "b.png"])
    await chat.until(lambda: chat.view._prompt.has_focus)


async def test_a_tall_terminal_shows_what_is_attached_and_a_small_one_names_it(
    chat: Chat, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    await chat.view.tray.take(tmp_path / "a.png")
    chip = await chat.until(lambda: chat.view.query_one(Chip))
    await chat.until(lambda: chip._strips and "▀" in chat.app.screen_text())
    assert chip.size.height == 4
    chip.focus()
    await chat.pilot.press("enter")
    await chat.until(lambda: isinstance(chat.app.screen, PictureScreen))
    await chat.pilot.press("escape")
    await chat.until(lambda: chip.has_focus)
    await chat.pilot.press("x")
    await chat.until(lambda: not chat.view.tray.attachments)
    await chat.pilot.resize_terminal(60, 20)
    await chat.view.tray.take(tmp_path / "a.png")
    chip = await chat.until(lambda: chat.view.query_one(Chip))
    await chat.until(lambda: chip.size.height == 1 and "a.png 2 KB ×" in chat.app.screen_text())


async def test_a_dropped_file_is_looked_for_off_the_loop_and_gives_up(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = Event()
    monkeypatch.setattr(prompt_module, "_LOOK", 0.1)
    monkeypatch.setattr(prompt_module, "pasted_images", lambda text: stuck.wait(30))
    try:
        chat.app.post_message(Paste("/mnt/dead/a.png"))
        await chat.until(lambda: chat.view._prompt.text == "/mnt/dead/a.png")
    finally:
        stuck.set()


# Parts of a message


async def test_a_key_copies_one_block_of_code_after_the_other(chat: Chat) -> None:
    Painter.text = "Run:\n\n```sh\nls -l\n```\n\nor\n\n```python\nprint(1)\nprint(2)\n```\n"
    await chat.ask("how?")
    await chat.pilot.press("escape", "c")
    await chat.until(lambda: chat.app.clipboard == "ls -l")
    await chat.until(lambda: "Block 1 of 2 sh" in _notices(chat))
    await chat.pilot.press("c")
    await chat.until(lambda: chat.app.clipboard == "print(1)\nprint(2)")
    await chat.pilot.press("c")
    await chat.until(lambda: chat.app.clipboard == "ls -l")
    await chat.pilot.press("k", "k", "c")
    await chat.until(lambda: "no block of code" in _notices(chat))


@pytest.mark.slow
async def test_v_shows_the_newest_pictures_in_full(chat: Chat) -> None:
    await chat.ask("nothing yet")
    await chat.pilot.press("escape", "v")
    await chat.until(lambda: "There is no picture" in _notices(chat))
    Painter.answer = pictures(PNG)
    chat.view.focus_prompt()
    await chat.ask("paint")
    await chat.drawn(1)
    await chat.pilot.press("escape", "v")
    await chat.until(lambda: isinstance(chat.app.screen, PictureScreen))


async def test_the_editor_of_ones_own_writes_the_prompt(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    from pallas_tui.widgets.chat import message_parts

    monkeypatch.setattr(message_parts, "edit", lambda app, text: f"{text}, and more")
    chat.view._prompt.insert("a thought")
    await chat.pilot.press("ctrl+g")
    await chat.until(lambda: chat.view._prompt.text == "a thought, and more")
    assert chat.view._prompt.has_focus

    def failing(app: Any, text: str) -> str:
        raise Fault(FaultType.CONFIG, "EDITOR names nothing")

    monkeypatch.setattr(message_parts, "edit", failing)
    await chat.pilot.press("alt+g")
    await chat.until(lambda: "EDITOR names nothing" in _notices(chat))
    assert chat.view._prompt.text == "a thought, and more"


async def test_every_one_of_these_keys_can_be_changed(chat: Chat) -> None:
    chat.app.set_keymap({"chat.pick": "f12", "chat.copy_code": "f11", "chat.pictures": "f10"})
    await chat.pilot.press("f12")
    await chat.until(lambda: isinstance(chat.app.screen, FilesScreen))
    await chat.pilot.press("escape")
    await chat.pilot.press("escape", "f11")
    await chat.until(lambda: "no block of code" in _notices(chat))
    await chat.pilot.press("f10")
    await chat.until(lambda: "There is no picture" in _notices(chat))
