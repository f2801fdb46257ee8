"""What somebody who never saw the workbench would stumble over."""

from textual._xterm_parser import XTermParser
from textual.events import Key
from textual.widgets import Input

from pallas_tui.settings import Settings
from tests.support.fake_fleet import FakeFleet
from tests.support.shell import StandInChat, workbench
from tests.support.waiting import until


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
        await until(lambda: app.query(StandInChat), pilot)
        chat = app.query_one(StandInChat)
        line = chat.query_one(Input)
        line.focus()
        await until(lambda: line.has_focus, pilot)
        app.post_message(pressed("\x1bg"))
        await until(lambda: chat.fresh == 1 or line.value, pilot)
        assert (chat.fresh, line.value) == (1, "")
        app.post_message(pressed("g"))
        await until(lambda: line.value == "g", pilot)


async def test_what_is_typed_before_the_panes_stand_is_text_and_no_shortcut() -> None:
    app = workbench(FakeFleet())
    for letter in "n?3 q":  # as it waits in the terminal while the program is read from the disk
        app.post_message(pressed(letter))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: app.query(StandInChat), pilot)
        await until(lambda: app.query_one(StandInChat).query_one(Input).value == "n?3 q", pilot)
        assert app.screen is app.main
