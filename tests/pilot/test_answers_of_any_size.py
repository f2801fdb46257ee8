"""What an answer costs grows with its length, whatever it is made of and however it arrives."""

from collections.abc import Callable

import pytest
from textual.app import App, ComposeResult
from textual.widget import Widget
from textual.widgets import Static

from pallas_tui.chat.answer_weight import WEIGHT, is_light, weight
from pallas_tui.chat.conversation import KEEP_WIDGETS, MOST_WIDGETS, ChatConversation, ChatEntry
from pallas_tui.widgets.chat.chat_markdown import AnswerMarkdown
from pallas_tui.widgets.chat.message_view import TAIL_LENGTH, LiveText, MessageView

KINDS: dict[str, Callable[[int], str]] = {
    "paragraph": lambda n: f"line {n}\n\n",
    "heading": lambda n: f"# head {n}\n\n",
    "fence": lambda n: f"```python\nx = {n}\n```\n\n",
    "table": lambda n: f"| a | b |\n|---|---|\n| {n} | c |\n\n",
    "item": lambda n: f"- item {n}\n",
    "quote": lambda n: f"> quote {n}\n\n",
    "deep quote": lambda n: f"{'> ' * 50}quote {n}\n\n",
    "deep list": lambda n: f"{'- ' * 50}item {n}\n\n",
    "indented": lambda n: f"text {n}\n\n    code {n}\n\n",
    "link": lambda n: f"[link {n}](http://x.invalid/{n}) ",
    "rule": lambda n: "---\n\n",
}


class Shown(App[None]):
    """One answer while it is written, and one that is complete."""

    def __init__(self, entry: ChatEntry | None = None) -> None:
        super().__init__()
        self._entry = entry

    def compose(self) -> ComposeResult:
        yield LiveText() if self._entry is None else MessageView(self._entry, "a")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_of_many_blocks_is_few_widgets(kind: str) -> None:
    text = "".join(KINDS[kind](number) for number in range(2_000))
    app = Shown()
    async with app.run_test(size=(100, 30)) as pilot:
        live = app.query_one(LiveText)
        await live.show(text)
        await pilot.pause()
        assert len(live.query("*")) < 2 * WEIGHT + len(text) / TAIL_LENGTH + 10
    app = Shown(ChatEntry("assistant", text, 1.0))
    async with app.run_test(size=(100, 30)):
        assert len(app.query_one(MessageView).query("*")) < 5


@pytest.mark.slow
@pytest.mark.parametrize("size", [7, 400])
async def test_pieces_of_any_size_are_shown_in_order_and_whole(size: int) -> None:
    text = "".join(f"para {number}\n\n" for number in range(450)) + "word " * 3_000 + "\n\nEND\n\n"
    text += "```\n" + "code\n" * 1_200 + "```\n\nLAST"
    app = Shown()
    async with app.run_test(size=(100, 30)) as pilot:
        live = app.query_one(LiveText)
        for end in (*range(size * 100, len(text), size * 100), *range(len(text) - 5 * size, len(text) + 1)):
            await live.show(text[:end])
        await pilot.pause()
        leaves = [each for each in live.query(Static) if _is_displayed(each)]
        shown = "\n".join(str(each.visual) for each in leaves).replace("```", "")
        assert shown.split() == text.replace("```", "").split()
        plain = [each for each in leaves if each.has_class("chat-block")]
        assert 2 < len(plain) < len(text) / TAIL_LENGTH + 5


def _is_displayed(leaf: Widget) -> bool:
    return all(node.display for node in leaf.ancestors_with_self if isinstance(node, Widget))


@pytest.mark.parametrize("marker", ["> ", ">", "- ", "1. ", "* > "])
async def test_what_is_nested_deep_keeps_its_words(marker: str) -> None:
    text = f"{marker * 200}the words\n\nand these"
    assert not is_light(text)
    app = Shown(ChatEntry("assistant", text, 1.0))
    async with app.run_test(size=(100, 30)):
        assert "the words" in " ".join(str(each.visual) for each in app.query(Static))


@pytest.mark.parametrize(
    "text",
    [
        "> quoted\n> more",
        "> > > three\n",
        "- a\n  - b\n    - c\n      - d",
        "1. a\n    1. b\n        1. c\n            - d",
        "```\n" + "> " * 100 + "\n```",
        "**bold** [link](x)",
    ],
)
def test_what_people_write_is_drawn(text: str) -> None:
    assert is_light(text)


def test_a_block_of_code_costs_more_than_a_line() -> None:
    assert is_light("line\n\n" * 350)
    assert not is_light("```\ncode\n```\n\n" * 350)
    assert weight("x\n" * 100_000) <= WEIGHT + 1


async def test_columns_are_aligned_as_the_table_says() -> None:
    table = "| left | middle | right |\n|:---|:---:|---:|\n| a | b | c |\n"

    class Table(App[None]):
        def compose(self) -> ComposeResult:
            yield AnswerMarkdown(table)

    app = Table()
    async with app.run_test(size=(60, 12)) as pilot:
        while not (cells := list(app.query("MarkdownTableCellContents"))):
            await pilot.pause()
        await pilot.pause()
        strips = app.screen._compositor.render_strips()
        lines = ["".join(segment.text for segment in strip) for strip in strips]
        head = next(line for line in lines if "middle" in line)
        row = next(line for line in lines if " a " in line)
        assert len(cells) == 6
        assert row.index("a") == head.index("left")
        assert head.index("middle") < row.index("b") < head.index("middle") + len("middle")
        assert row.index("c") == head.index("right") + len("right") - 1


def test_a_conversation_is_a_bounded_number_of_widgets() -> None:
    conversation = ChatConversation("a")
    text = "line\n\n" * 390
    for number in range(40):
        conversation.add(ChatEntry("assistant", text, float(number)))
    assert sum(each.widgets for each in conversation.entries) <= KEEP_WIDGETS
    assert conversation.pruned == 40 - len(conversation.entries) > 0
    assert len(conversation.transcript) == 40
    assert conversation.more_above
    heavy = ChatEntry("assistant", text, 1.0, widgets=MOST_WIDGETS)
    conversation.entries.append(heavy)
    assert not conversation.more_above
