"""The text of an answer: one widget, whatever it is made of and however it comes."""

import gc
from collections.abc import Iterator

import pytest
from support.chat import Chat, chat, server
from support.pane_app import STYLES
from support.waiting import until
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.strip import Strip

from pallas_tui.chat.conversation import ChatEntry
from pallas_tui.chat_client import AgentReply
from pallas_tui.widgets.chat.answer_lines import AnswerLines, AnswerScroll
from pallas_tui.widgets.chat.message_view import MessageView

assert chat
assert server

TEXT = """# A *head*

Some **bold** words, `code`, a [link](https://example.invalid/a) and [another one][it] that is defined below.

- one
- two, which has so many words that it is broken into several rows on a screen of this width, and more
  1. deep
  2. deeper

> quoted text\\
> in two lines

| name | amount |
|:-----|-------:|
| Acme | [12](https://example.invalid/cell) |

```python
def total(rows):
	return sum(rows)  # and a comment
```

[it]: https://example.invalid/it

The end.
"""


class Shown(App[None]):
    """Messages, or one answer that is written."""

    CSS_PATH = STYLES / "chat.tcss"

    def __init__(self, *texts: str, role: str = "assistant") -> None:
        super().__init__()
        self._texts, self._role = texts, role
        self.links: list[str] = []

    def compose(self) -> ComposeResult:
        with AnswerScroll():
            if not self._texts:
                yield AnswerLines(live=True)
            for text in self._texts:
                yield MessageView(ChatEntry(self._role, text, 1.0), "a")  # type: ignore[arg-type]

    def on_answer_lines_link_taken(self, event: AnswerLines.LinkTaken) -> None:
        """Note a link."""
        self.links.append(event.href)


def strips(app: App[None]) -> list[Strip]:
    """The rows of the screen."""
    return list(app.screen._compositor.render_strips())


def rows(app: App[None]) -> list[str]:
    """The text of the rows of the screen."""
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips(app)]


def looks(app: App[None]) -> list[list[tuple[str, str]]]:
    """Each character of the screen with its style."""
    return [
        [
            (
                character,
                str(segment.style.without_color) + str(segment.style.color) + str(segment.style.bgcolor),
            )
            for segment in strip
            for character in segment.text
            if segment.style is not None
        ]
        for strip in strips(app)
    ]


def place(app: App[None], text: str) -> tuple[int, int]:
    """Where a text begins on the screen."""
    return next((row.index(text), y) for y, row in enumerate(rows(app)) if text in row)


async def shown_whole(size: tuple[int, int], theme: str = "textual-dark") -> list[list[tuple[str, str]]]:
    """What the text looks like that is there from the beginning."""
    app = Shown()
    async with app.run_test(size=size) as pilot:
        app.theme = theme
        answer = app.query_one(AnswerLines)
        answer.show(TEXT)
        answer.settle()
        await pilot.pause()
        return looks(app)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 7, 100])
async def test_text_in_pieces_is_shown_as_the_whole(size: int) -> None:
    whole = await shown_whole((60, 40))
    app = Shown()
    async with app.run_test(size=(60, 40)) as pilot:
        answer = app.query_one(AnswerLines)
        for end in range(0, len(TEXT) + size, size):
            answer.show(TEXT[:end])
            if not end % 5:
                await pilot.pause()
        answer.settle()
        await pilot.pause()
        assert rows(app)[:3] == ["A head", "", "Some bold words, code, a link and another one that is"]
        assert looks(app) == whole


async def test_text_in_place_of_another_leaves_nothing_of_it() -> None:
    app = Shown()
    async with app.run_test(size=(60, 20)) as pilot:
        answer = app.query_one(AnswerLines)
        for text in ("One.\n\nTw", "One.\n\nTwo.\n\nThr", "One.\n\nTwo.\n\nThree."):
            answer.show(text)
        await pilot.pause()
        assert [row for row in rows(app) if row] == ["One.", "Two.", "Three."]
        answer.show("One.\n\n[again]\n\nFo")
        answer.show("One.\n\n[again]\n\nFour.")
        await pilot.pause()
        assert [row for row in rows(app) if row] == ["One.", "[again]", "Four."]
        answer.settle()
        answer.show("Five.")
        await pilot.pause()
        assert [row for row in rows(app) if row] == ["Five."]
        answer.show("")
        await pilot.pause()
        assert not any(rows(app))


async def test_another_width_and_another_theme_are_as_from_the_beginning() -> None:
    app = Shown()
    async with app.run_test(size=(90, 60)) as pilot:
        answer = app.query_one(AnswerLines)
        answer.show(TEXT)
        answer.settle()
        await pilot.pause()
        before = looks(app)
        await pilot.resize_terminal(40, 60)
        await until(lambda: answer.size.width == 40, pilot)
        assert looks(app) == await shown_whole((40, 60))
        app.theme = "textual-light"
        light = await shown_whole((40, 60), "textual-light")
        await until(lambda: looks(app) == light, pilot)
        app.theme = "textual-dark"
        await pilot.resize_terminal(90, 60)
        await until(lambda: looks(app) == before, pilot)


async def drag(pilot: Pilot[None], start: tuple[int, int], end: tuple[int, int]) -> str | None:
    """Select with the mouse; return what a copy takes."""
    await pilot.mouse_down(offset=start)
    await pilot.hover(offset=end)
    await pilot.mouse_up(offset=end)
    return pilot.app.screen.get_selected_text()


async def test_a_selection_copies_the_text_as_it_was_before_it_was_broken_into_rows() -> None:
    app = Shown(TEXT, "and\ta\n\n  second message", role="assistant")
    async with app.run_test(size=(60, 50)) as pilot:
        await pilot.pause()
        x, y = place(app, "two, which")
        copied = await drag(pilot, (x, y), (x + 30, y + 1))
        assert copied is not None
        assert copied.startswith("two, which has so many words that it is broken into several rows")
        assert "\n" not in copied
        copied = await drag(pilot, place(app, "def total"), place(app, "second message"))
        assert copied is not None
        assert copied.startswith("def total(rows):\n\treturn sum(rows)  # and a comment\n\nThe end.\n")
        copied = await drag(pilot, place(app, "amount"), place(app, "end."))
        assert copied is not None
        assert copied.split("\n")[1:3] == ["| --- | --: |", "| Acme | 12 |"]


async def test_what_is_selected_is_seen() -> None:
    app = Shown(TEXT)
    async with app.run_test(size=(60, 50)) as pilot:
        await pilot.pause()
        x, y = place(app, "bold words")
        plain = looks(app)[y]
        await drag(pilot, (x, y), (x + 3, y))
        await until(lambda: looks(app)[y] != plain, pilot)
        changed = [
            at for at, (one, other) in enumerate(zip(plain, looks(app)[y], strict=True)) if one != other
        ]
        assert changed == [*range(x, x + 4)]
        app.screen.clear_selection()
        await until(lambda: looks(app)[y] == plain, pilot)


async def test_links_are_passed_on_where_they_stand() -> None:
    app = Shown(TEXT)
    async with app.run_test(size=(60, 50)) as pilot:
        await pilot.pause()
        for text in ("link", "another one", "12"):
            x, y = place(app, text)
            await pilot.click(offset=(x + 1, y))
        await until(lambda: len(app.links) == 3, pilot)
        assert [link.rpartition("/")[2] for link in app.links] == ["a", "it", "cell"]


KINDS = (
    "line {n}\n\n",
    "# head {n}\n\n",
    "```\nx = {n}\n```\n\n",
    "| a |\n|---|\n| {n} |\n\n",
    "- item {n}\n\n",
)


def kept_strips() -> int:
    """How many drawn rows, and parts of them, there are in memory."""
    gc.collect()
    return sum(isinstance(each, Strip) for each in gc.get_objects())


def many_blocks() -> Iterator[str]:
    """A text of 2,000 blocks."""
    for number in range(2_000):
        yield KINDS[number % len(KINDS)].format(n=number)


@pytest.mark.slow
async def test_an_answer_of_many_blocks_is_one_widget_and_few_rows_of_it_are_kept() -> None:
    app = Shown("".join(many_blocks()))
    async with app.run_test(size=(80, 40)) as pilot:
        await pilot.pause()
        assert len(app.query_one(MessageView).query("*")) == 2
        scroll = app.query_one(AnswerScroll)
        assert scroll.max_scroll_y > 4_000
        before = kept_strips()
        for y in range(0, int(scroll.max_scroll_y), 100):
            scroll.scroll_to(y=y, animate=False, force=True, immediate=True)
            await pilot.pause()
        scroll.scroll_end(animate=False, force=True, immediate=True)
        await until(lambda: rows(app)[-2].endswith("• item 1999"), pilot)
        assert kept_strips() < before + 2_000


@pytest.mark.slow
async def test_a_long_answer_that_is_written_moves_seldom_and_has_little_room() -> None:
    app = Shown()
    async with app.run_test(size=(60, 24)) as pilot:
        answer = app.query_one(AnswerLines)
        heights = set[int]()
        for end in range(1, 31):
            answer.show("\n\n".join(f"line {number}" for number in range(end)))
            await until(lambda: answer.size.height >= answer.rows, pilot)
            heights.add(answer.size.height)
            assert answer.size.height < answer.rows + 24 // 8
        assert sorted(height for height in heights if height > 3) == [*range(6, 61, 3)]
        answer.settle()
        await until(lambda: answer.size.height == answer.rows == 59, pilot)


@pytest.mark.slow
async def test_find_shows_where_the_text_is_in_a_long_answer(chat: Chat) -> None:
    run = chat.conversation.begin("list", (), 1.0)
    text = (
        "".join(f"- **item** {number}\n" for number in range(300))
        + "\n```\nneedle in code\n```\n"
        + "x\n\n" * 90
    )
    chat.conversation.answer(run, AgentReply(text=f"A needle.\n\n{text}", seconds=1.0), 2.0)
    await chat.until(lambda: len(chat.shown()) == 2 and not chat.shown()[-1].live)
    await chat.pilot.press("ctrl+f", *"NEEDLE")
    await chat.until(lambda: "2 of 2" in chat.app.screen_text())
    await chat.until(lambda: "needle in code" in chat.app.screen_text())

    def marked() -> list[str]:
        return [
            segment.text
            for strip in strips(chat.app)
            for segment in strip
            if segment.style is not None and segment.style.reverse and segment.text.strip() == "needle"
        ]

    await chat.until(lambda: marked() == ["needle"])
    await chat.pilot.press("enter")
    await chat.until(lambda: "A needle." in chat.app.screen_text() and marked() == ["needle"])
    await chat.pilot.press("escape")
    await chat.until(lambda: marked() == [])
