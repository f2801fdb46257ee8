"""What somebody who never saw the workbench would stumble over."""

import base64
from pathlib import Path

import pytest
from support.fake_fleet import FakeFleet, agent
from support.pane_app import PaneApp
from support.pictures import picture
from support.shell import FakeChat, screen_text, workbench
from support.waiting import until
from textual._xterm_parser import XTermParser
from textual.app import ComposeResult
from textual.color import Color
from textual.css.stylesheet import Stylesheet
from textual.events import Key
from textual.screen import ModalScreen
from textual.signal import Signal
from textual.widgets import Input, OptionList

from pallas_tui.frame import FleetFrame
from pallas_tui.pictures.images import ChatPicture
from pallas_tui.settings import Settings
from pallas_tui.text import ASCII
from pallas_tui.widgets.button_bar import Button
from pallas_tui.widgets.chat import ChatPane
from pallas_tui.widgets.chat.thumbnails import Thumbnail
from pallas_tui.widgets.dialogs.choice_dialog import ChoiceScreen
from pallas_tui.widgets.dialogs.file_dialog import FileList, FilesScreen
from pallas_tui.widgets.dialogs.picture_dialog import PictureScreen
from pallas_tui.widgets.logs import LogsPane
from pallas_tui.widgets.pane import Pane
from pallas_tui.widgets.status_line import _that_fit


def pressed(bytes_of_it: str) -> Key:
    """The key that a terminal without a newer protocol tells by these."""
    parser = XTermParser()
    events = list(parser.feed(bytes_of_it))
    if not events:  # an escape: more might come
        parser._timeout_time = 0.0
        events = list(parser.tick())
    (event,) = events
    assert isinstance(event, Key)
    return event


async def test_a_letter_pressed_with_alt_is_an_action_also_while_one_types() -> None:
    app = workbench(FakeFleet(), settings=Settings(theme="textual-dark", keys={"chat.new": "alt+g"}))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: app.query(FakeChat), pilot)
        chat = app.query_one(FakeChat)
        line = chat.query_one(Input)
        line.focus()
        await until(lambda: line.has_focus, pilot)
        app.post_message(pressed("\x1bg"))
        await until(lambda: chat.fresh == 1 or line.value, pilot)
        assert (chat.fresh, line.value) == (1, "")
        app.post_message(pressed("g"))
        await until(lambda: line.value == "g", pilot)


async def test_the_style_sheets_are_parsed_for_the_theme_of_the_settings_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again: list[str] = []
    reparse = Stylesheet.reparse

    def note(sheet: Stylesheet) -> None:
        again.append(app.theme)
        reparse(sheet)

    monkeypatch.setattr(Stylesheet, "reparse", note)
    app = workbench(FakeFleet(), settings=Settings(theme="pallas-light"))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: app.query(FakeChat), pilot)
        light = app.screen.styles.background
        assert (app.theme, light, again) == ("pallas-light", Color.parse("#fafafa"), [])
        app.theme = "pallas-dark"
        await until(lambda: app.screen.styles.background == Color.parse("#101214"), pilot)
        assert again == ["pallas-dark"]


async def test_what_is_typed_before_the_panes_stand_is_text_and_no_shortcut() -> None:
    app = workbench(FakeFleet())
    for letter in "n?3 q":  # as it waits in the terminal while the program is read from the disk
        app.post_message(pressed(letter))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: app.query(FakeChat), pilot)
        await until(lambda: app.query_one(FakeChat).query_one(Input).value == "n?3 q", pilot)
        assert app.screen is app.main


@pytest.mark.slow
async def test_the_keys_of_vi_move_in_the_files_and_among_the_pictures(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.png").write_bytes(picture())
    app = workbench(FakeFleet())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: app.query(FakeChat), pilot)
        files = FilesScreen(tmp_path)
        await app.push_screen(files)
        listed = files.query_one(FileList)
        await until(lambda: listed.line_count() == 3, pilot)
        for key, line in (("j", 1), ("k", 0), ("G", 2), ("g", 0)):
            await pilot.press(key)
            assert listed.cursor == line, key
        app.pop_screen()
        data = base64.b64encode(picture()).decode()
        album = [ChatPicture(None, f"{name}.png", "image/png", 100, data) for name in "abc"]
        shown = PictureScreen(lambda: album)
        await app.push_screen(shown)
        await until(lambda: shown.shown, pilot)
        for key, index in (("j", 1), ("k", 0), ("G", 2), ("g", 0)):
            await pilot.press(key)
            await until(lambda at=index: shown._index == at, pilot)
        await pilot.press("s", "down", "j")
        assert shown._index == 0


async def test_a_long_choice_is_gone_through_by_half_screens_until_one_types() -> None:
    app = workbench(FakeFleet())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: app.query(FakeChat), pilot)
        screen = ChoiceScreen("number", [str(n) for n in range(100)])
        await app.push_screen(screen)
        options = screen.query_one(OptionList)
        await until(lambda: options.size.height, pilot)
        await pilot.press("ctrl+d")
        down = options.highlighted
        assert down is not None
        assert down > 1
        await pilot.press("pagedown", "ctrl+u")
        assert options.highlighted == down
        await pilot.press("9", "9", "ctrl+u")
        assert screen.query_one(Input).value == ""


def test_the_bottom_line_offers_nothing_by_half() -> None:
    offers = [
        (Button((("f7", ""), (" prompts ", "")), "f7"),),
        (Button((("^t", ""), (" new ", "")), "^t"),),
        (Button((("f2", ""), ("", "")), "f2"), Button((("-f5", ""), (" panes ", "")), "f5")),
        (Button((("f8", ""), (" zoom ", "")), "f8"),),
    ]

    def shown(width: int) -> str:
        return "".join(text for button in _that_fit(offers, 3, width) for text, _ in button.parts).rstrip()

    assert shown(40) == "f7 prompts ^t new f2-f5 panes f8 zoom"
    assert shown(29) == "f7 prompts ^t new f2-f5 panes"
    assert shown(28) == "f7 prompts ^t new f8 zoom"


@pytest.mark.slow
async def test_the_chat_and_its_questions_are_drawn_in_ascii_too() -> None:
    pane = ChatPane(ASCII)
    app = PaneApp(pane)
    app.add_class("-ascii")
    async with app.run_test(size=(100, 30)) as pilot:
        app.feed(agent("echo", 1), agent("other", 2))
        await until(lambda: "Write to echo" in app.screen_text(), pilot)
        assert app.screen_text().isascii()
        await pilot.press("escape")
        assert app.screen_text().isascii()
        for key in ("ctrl+t", "alt+n", "alt+s", "f7"):
            pane.focus_pane()
            await pilot.press(key)
            await until(lambda: isinstance(app.screen, ModalScreen), pilot)
            await pilot.pause()
            assert app.screen_text().isascii(), key
            await pilot.press("escape")
            await until(lambda: not isinstance(app.screen, ModalScreen), pilot)


def with_settings(app: PaneApp, settings: Settings) -> Signal[Settings]:
    """The application has settings, which change by what is published."""
    changed: Signal[Settings] = Signal(app, "settings-changed")
    app.settings, app.settings_changed = settings, changed  # type: ignore[attr-defined]
    return changed


async def test_the_setting_of_wrapped_records_acts_from_the_start_and_at_once(tmp_path: Path) -> None:
    pane = LogsPane(tmp_path / "a.log")
    app = PaneApp(pane)
    changed = with_settings(app, Settings(wrap=True))
    async with app.run_test() as pilot:
        await until(lambda: pane.lines.wrap, pilot)
        changed.publish(Settings(wrap=False))
        await until(lambda: not pane.lines.wrap, pilot)
        pane.action_wrap()
        changed.publish(Settings(wrap=False, vim=False))  # another one changed: what w says stays
        await pilot.pause()
        assert pane.lines.wrap


async def test_thumbnails_are_shown_as_the_settings_say_and_their_names_always() -> None:
    data = base64.b64encode(picture()).decode()
    shot = ChatPicture(None, "a.png", "image/png", 100, data, (64, 48))
    thumbnail = Thumbnail(lambda: [shot], 0, 36, 12)

    class Host(Pane):
        def compose(self) -> ComposeResult:
            yield thumbnail

        def absorb(self, frame: FleetFrame) -> None: ...

    app = PaneApp(Host())
    changed = with_settings(app, Settings(thumbnails=False))
    async with app.run_test() as pilot:
        await until(lambda: "a.png" in app.screen_text() and thumbnail.size.height == 1, pilot)
        assert "▀" not in app.screen_text()
        changed.publish(Settings(thumbnails=True))
        await until(lambda: "▀" in app.screen_text() and thumbnail.size.height == 12, pilot)
        changed.publish(Settings(thumbnails=False))
        await until(lambda: "▀" not in app.screen_text() and thumbnail.size.height == 1, pilot)


@pytest.mark.parametrize("theme", ["textual-dark", "pallas-contrast-light"])
async def test_a_small_terminal_in_ascii_shows_the_agents_in_ascii_without_an_edge(theme: str) -> None:
    app = workbench(FakeFleet(), settings=Settings(theme=theme, ascii=True))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: app.query(FakeChat), pilot)
        await pilot.press("f2")
        await until(lambda: "concierge" in screen_text(app), pilot)
        body = screen_text(app).splitlines()[2:-1]
        assert all(line.isascii() for line in body), body
        assert not any(line[79] == "|" for line in body)
