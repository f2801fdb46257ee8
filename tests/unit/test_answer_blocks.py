"""Markdown that comes in pieces is the same as the whole, and what is complete is not parsed again."""

from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pallas_tui.chat.answer_blocks import LINES, AnswerBlocks, plain_blocks
from pallas_tui.widgets.chat.answer_layout import Row, lay_out

PIECES = (
    *(
        "word ",
        "a",
        "\n",
        "\n\n",
        "  \n",
        "\\\n",
        "# head\n",
        "===\n",
        "---\n",
        "- item\n",
        "  more\n",
        "1. one\n",
    ),
    *(
        "2) two\n",
        "    code\n",
        "\t",
        "> quote\n",
        "> > deep\n",
        "```\n",
        "```py\nx = 1\n",
        "~~~\n",
        "| a | b |\n",
    ),
    *(
        "|---|:-:|\n",
        "| 1 | 2 |\n",
        "**b**",
        "`c`",
        "[x]",
        "[x](y)",
        "[x]: /u\n",
        "<b>",
        "https://a.invalid ",
    ),
    *("- ", "-", "1.", "`", "|", ">", "[", "]: ", "\u4f60\u597d", "&amp;", "!"),
)
MARKDOWN = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


def drawn(blocks: AnswerBlocks, width: int = 30) -> tuple[list[Row], list[str]]:
    """The rows of settled blocks, and the lines of text that they show."""
    laid = [
        lay_out(block, blocks.tokens(block), width, first=not index)
        for index, block in enumerate(blocks.settled)
    ]
    return [row for each in laid for row in each.rows], [line for each in laid for line in each.lines]


def fed(pieces: Iterable[str]) -> AnswerBlocks:
    """The blocks of a text that comes in these pieces."""
    blocks = AnswerBlocks()
    for piece in pieces:
        blocks.feed(piece)
    blocks.end()
    return blocks


def cut(text: str, size: int) -> list[str]:
    """``text`` in pieces of a size."""
    return [text[start : start + size] for start in range(0, len(text), size)]


@given(MARKDOWN, st.data())
def test_random_markdown_in_random_pieces_is_drawn_as_the_whole(text: str, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=12).map(sorted))
    pieces = [text[start:end] for start, end in pairwise([0, *places, len(text)])]
    whole = drawn(fed([text]))
    assert drawn(fed(pieces)) == whole
    assert drawn(fed(text)) == whole


@given(MARKDOWN)
def test_a_block_whose_source_is_parsed_again_is_drawn_as_before(text: str) -> None:
    blocks = fed([text])
    before = drawn(blocks)
    for block in blocks.settled:
        block.tokens = None
    assert drawn(blocks) == before


@given(MARKDOWN, st.integers(1, 80))
def test_each_row_shows_its_part_of_the_text_and_fits(text: str, width: int) -> None:
    rows, lines = drawn(fed([text]), width)
    assert [line for line in lines if "\n" in line] == []
    for row in rows:
        for spot in row.spots:
            assert spot.end <= len(row.text)
            assert all(0 <= start <= end <= len(row.text) for start, end, _ in row.spans)


LONG: dict[str, Callable[[int], str]] = {
    "paragraphs": lambda n: f"some words in number {n}\n\n",
    "lines": lambda n: f"some words in line {n}\n",
    "list": lambda n: f"- item {n}\n",
    "numbers": lambda n: f"{n + 1}. item {n}\n",
    "code": lambda n: f"{'' if n else '```py'}\nx = {n}",
    "table": lambda n: f"{'' if n else '| a | b |\n|---|---|\n'}| {n} | c |\n",
    "quote": lambda n: f"> line {n}\n",
    "one line": lambda n: f"word{n % 10} ",
    "deep list": lambda n: f"{'- ' * 50}item {n}\n\n",
    "deep quote": lambda n: f"{'> ' * 50}item {n}\n\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LONG)
def test_what_is_parsed_grows_with_the_length_of_the_text(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    parse = MarkdownIt.parse
    monkeypatch.setattr(
        MarkdownIt, "parse", lambda self, src, env=None: (parsed.append(len(src)), parse(self, src, env))[1]
    )

    def cost(size: int) -> float:
        parsed.clear()
        text = "".join(LONG[kind](number) for number in range(size // len(LONG[kind](0)) + 1))
        fed(cut(text, 100))
        return sum(parsed) / len(text)

    assert cost(32_000) < 1.5 * max(cost(8_000), 20)


@pytest.mark.parametrize("size", [5, 400])
def test_a_long_block_of_code_is_settled_in_parts(size: int) -> None:
    code = [f"x = {number}" for number in range(3 * LINES)]
    text = "before\n\n```py\n" + "\n".join(code) + "\n```\n\nafter"
    blocks = AnswerBlocks()
    for piece in cut(text[: text.rindex("```")], size):
        blocks.feed(piece)
    assert len(blocks.settled) > 2
    rows, lines = drawn(fed(cut(text, size)))
    assert lines == ["before", "", *code, "", "after"]
    assert [row.text.strip() for row in rows] == lines


def test_a_link_may_be_defined_after_it_is_used() -> None:
    text = "see [the page]\n\n- and [it][the page]\n\nmore\n\n[the page]: https://example.invalid/\n\nend"
    rows, lines = drawn(fed(cut(text, 3)))
    assert lines == ["see the page", "", "- and it", "", "more", "", "end"]
    assert sum(any(not isinstance(style, str) for _, _, style in row.spans) for row in rows) == 2


def test_the_numbers_of_a_list_are_as_wide_as_the_last_one() -> None:
    blocks = AnswerBlocks()
    stale: set[int] = set()
    for piece in cut("".join(f"{number}. item\n" for number in range(8, 13)) + "\nend", 2):
        blocks.feed(piece)
        stale |= blocks.stale
    blocks.end()
    assert stale >= {0}
    assert [row.text for row in drawn(blocks)[0]][:5] == [
        "  8. item",
        "  9. item",
        " 10. item",
        " 11. item",
        " 12. item",
    ]


@pytest.mark.parametrize("marker", ["> ", ">", "- ", "1. ", "* > "])
@pytest.mark.parametrize("size", [3, 10_000])
def test_what_is_nested_deep_keeps_its_words_and_ends(marker: str, size: int) -> None:
    _, lines = drawn(fed(cut(f"{marker * 200}the words\n\nand **these**", size)))
    assert "the words" in "\n".join(lines)
    assert lines[-1] == "and these"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("> quoted\n> more", ["▌ quoted more"]),
        ("> > > three\n", ["▌ ▌ ▌ three"]),
        ("- a\n  - b\n    - c", ["\u2022 a", "  \u25aa b", "    \u2023 c"]),
        ("1. a\n    1. b", [" 1. a", "     1. b"]),
        ("- a\n\n  text\n\n  ```\n  code\n  ```", ["\u2022 a", "", "  text", "", "   code"]),
        ("```\n" + "> " * 12 + "\n```", [" > > > > > > > > > > > >"]),
        ("hard\\\nbreak  \nthere", ["hard", "break", "there"]),
        ("<div>x</div>\n\n<!-- y -->", ["<div>x</div>", "", "<!-- y -->"]),
        ("![a picture](x.png)", ["🖼  (a picture)"]),
        ("***", ["─" * 30]),
        ("-\n- b", ["\u2022", "\u2022 b"]),
        ("one &lt;two&gt; &#x202e;end", ["one <two> \\u202eend"]),
        ("", []),
    ],
)
def test_what_people_write_is_drawn(text: str, rows: list[str]) -> None:
    assert [row.text.rstrip() for row in drawn(fed([text]))[0]] == rows


def test_a_table_has_columns_aligned_as_it_says() -> None:
    table = "| left | middle | right |\n|:---|:---:|---:|\n| a | b | c |\n| d |\n"
    rows, lines = drawn(fed([table]), 60)
    assert [row.text for row in rows] == [
        "┌──────┬────────┬───────┐",
        "│ left │ middle │ right │",
        "├──────┼────────┼───────┤",
        "│ a    │   b    │     c │",
        "│ d    │        │       │",
        "└──────┴────────┴───────┘",
    ]
    assert lines == ["| left | middle | right |", "| --- | :-: | --: |", "| a | b | c |", "| d |  |  |"]


def test_a_table_that_is_too_wide_is_broken_in_its_cells() -> None:
    table = f"| a | b |\n|---|---|\n| {'word ' * 12} | x |\n| {'y' * 30} | z |\n"
    rows, lines = drawn(fed([table]), 30)
    assert all(len(row.text) == 30 for row in rows)
    assert lines[2] == f"| {('word ' * 12).strip()} | x |"
    rows, _ = drawn(fed(["|" + " a |" * 40 + "\n|" + "---|" * 40 + "\n"]), 30)
    assert "".join(row.text for row in rows).count("a") == 40


def test_tabs_are_drawn_as_blanks_and_copied_as_tabs() -> None:
    rows, lines = drawn(fed(["```\n\tx\ty\n```"]))
    assert rows[0].text.rstrip() == " " * 9 + "x" + " " * 7 + "y"
    assert lines == ["\tx\ty"]
    assert [rows[0].text[start] for start, _, _ in rows[0].spans_of(1, 2, "")] == ["x"]


def test_text_that_is_no_markdown_stays_as_it_is() -> None:
    text = "\n".join(f"  * line {number}" for number in range(450))
    blocks = AnswerBlocks()
    blocks.settled = plain_blocks(text)
    assert len(blocks.settled) == 3
    assert drawn(blocks)[1] == text.split("\n")
