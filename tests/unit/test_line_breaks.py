"""Where lines of text break on the screen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from support.properties import examples

from pallas_tui.text import wrapped, wrapped_line

PROSE = (
    "The invoices of May were sent twice because a worker was restarted while it held the lock of the table. "
)


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three\n\nx" + "y" * 10, 8, ["one two", "three", "", "xyyyyyyy", "yyy"]),
        ("  indented and long", 12, ["  indented", "and long"]),
        ("two  blanks   stay", 12, ["two  blanks", "stay"]),
        ("日本語 とても 長い", 8, ["日本語", "とても", "長い"]),
        ("naïve café résumé", 11, ["naïve café", "résumé"]),
        ("see " + "x" * 12 + " there", 10, ["see xxxxxx", "xxxxxx", "there"]),
        (" " * 40 + "far", 10, ["far"]),
        ("", 10, [""]),
        ("   ", 10, [""]),
    ],
)
def test_prose_breaks_between_words(text: str, width: int, lines: list[str]) -> None:
    assert wrapped(text, width) == lines


def test_a_large_text_and_one_with_other_letters_break_between_words_too() -> None:
    for text in (PROSE * 500, PROSE.replace("worker", "wörker — 働き手") * 300):
        assert [word for line in wrapped(text, 60) for word in line.split()] == text.split()


SIGNS = ("a", "b", " ", "é", "e\u0301", "日", "👨\u200d👩")
WORDS = st.lists(st.sampled_from(SIGNS), min_size=1, max_size=60).map("".join)


@pytest.mark.slow
@examples(300)
@given(text=st.lists(WORDS, max_size=12).map(" ".join), width=st.integers(8, 30), indent=st.integers(0, 4))
def test_a_row_ends_within_a_word_only_where_no_row_has_room_for_it(
    text: str, width: int, indent: int
) -> None:
    head = text.partition(" ")[0]
    line = ((head, "bold"), (text[len(head) :], ""))
    rows = wrapped_line(line, width, indent)
    texts = ["".join(part for part, _ in row) for row in rows]
    assert all(cell_len(each) <= width for each in texts)
    assert all(each.startswith(" " * indent) for each in texts[1:])
    plain = [*texts[:1], *(each[indent:] for each in texts[1:])]
    assert "".join(plain).replace(" ", "") == text.replace(" ", "")
    at = 0
    for row in plain[:-1]:
        at = text.index(row, at) + len(row)
        if text[at] != " ":
            word = text[text.rfind(" ", 0, at) + 1 :].partition(" ")[0]
            assert cell_len(word) > width - indent
