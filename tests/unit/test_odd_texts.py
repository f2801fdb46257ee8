"""Odd texts of models and servers are drawn within their columns, in pieces of any size."""

import pytest
from rich.cells import cell_len

from pallas.safe_text import PieceSanitizer, is_invisible, sanitize, without_seen_parts
from pallas_tui.chat.answer_blocks import AnswerBlocks
from pallas_tui.widgets.chat.answer_layout import lay_out

FAMILY = "👨\u200d👩\u200d👧\u200d👦"
TEXTS = {
    "overrides and isolates": "a\u202eb\u2066c\u2069\u202cd",
    "a letter with hundreds of marks": "Z" + "\u0301\u0327\u0338" * 300 + "x",
    "emoji at the edge": "x" * 28 + FAMILY * 10,
    "flags": "🇩🇪🇫🇷" * 30 + "🇩" + "x" * 29 + "🇪",
    "keycaps": "1\ufe0f\u20e32\ufe0f\u20e3" * 30,
    "a flag of tags": "🏴\U000e0067\U000e0062\U000e007f" * 8,
    "a link of a terminal": "\x1b]8;;http://a.invalid\x1b\\click\x1b]8;;\x07",
    "a clipboard of a terminal": "\x1b]52;c;aGk=\x07",
    "other sequences": "\x1bPq#0\x1b\\ \x1b_Gx\x1b\\ \x9b31m \x9d52;c;x\x9c \x90q\x9c",
    "moves": "good\rbad\b\b\bevil\f\v\x85\u2028\u2029",
    "tabs in a table": "| a\tb | c |\n|---|---|\n| \t1 | 2\t |\n",
    "half pairs and NUL": "a\ud800b\udfff\0c",
    "wide": "x" * 10_000 + "漢" * 1_000,
    "deep lists": "".join("  " * depth + "- x\n" for depth in range(500)),
    "deep quotes": "> " * 500 + "x",
    "footnotes": "\n".join(f"x[^{number}]" for number in range(500)),
    "references": "\n".join(f"[a][{number}]\n\n[{number}]: http://a.invalid" for number in range(300)),
    "an open fence": "```py\n" + "x = 1\n" * 500,
    "open HTML": "<div>\n" * 300 + "<!-- \n" + "x\n" * 300,
    "a wide table": "|" + " a |" * 500 + "\n|" + "---|" * 500 + "\n|" + " 1 |" * 500 + "\n",
    "rows of other lengths": "|a|\n|-|\n" + "|1|2|3|4|\n" * 100,
    "unclosed marks": "*a **b `c [d](e ![f](g ~~h " * 100,
    "entities of controls": "&#x202e;&#27;&#0;&#155;" * 20,
    "marks at a cut": "x" * 29 + "e\u0301" * 40,
    "only marks": "\u0301" * 100,
    "scripts that combine": "क्षिกำ\u1112\u1161\u11ab\ufdfd" * 20,
    "no characters": "\ufffe\uffff\ufdd0\u0378\ue000",
    "annotations": "\ufff9a\ufffab\ufffb",
}  # fmt: skip


def drawn(text: str, size: int, width: int) -> list[str]:
    """The rows of an answer that comes in pieces of that size."""
    shown, blocks = PieceSanitizer(), AnswerBlocks()
    for start in range(0, len(text), size):
        blocks.feed(shown.feed(text[start : start + size]))
    blocks.feed(shown.end())
    blocks.end()
    laid = [lay_out(each, blocks.tokens(each), width, first=not at) for at, each in enumerate(blocks.settled)]
    return [row.text for each in laid for row in each.rows]


@pytest.mark.parametrize("name", TEXTS)
def test_an_odd_text_is_drawn_within_its_columns(name: str) -> None:
    rows = drawn(TEXTS[name], len(TEXTS[name]), 30)
    assert rows == drawn(TEXTS[name], 97, 30)
    assert [row for row in rows if cell_len(row) > 30] == []
    assert not any(map(is_invisible, without_seen_parts("\n".join(rows))))


@pytest.mark.parametrize("name", TEXTS)
def test_a_cut_of_an_odd_text_is_safe_to_show(name: str) -> None:
    text = TEXTS[name][:200]
    for limit in range(1, len(text) + 1):
        cut = sanitize(text, limit)
        assert len(cut) <= limit
        assert not any(map(is_invisible, without_seen_parts(cut)))
