"""What no reader sees is made visible, whatever character it is; what is seen stays as it is."""

import sys
import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

from pallas.safe_text import PieceSanitizer, is_invisible, sanitize
from pallas_tui.shell.output_guard import OUTPUT_GUARD

# Default_Ignorable_Code_Point of Unicode 15.1, as its DerivedCoreProperties.txt lists it.
DEFAULT_IGNORABLE = """
00AD 034F 061C 115F-1160 17B4-17B5 180B-180F 200B-200F 202A-202E 2060-206F 3164 FE00-FE0F FEFF FFA0 FFF0-FFF8
1BCA0-1BCA3 1D173-1D17A E0000-E0FFF
"""
IDEOGRAPHS = (
    "葛\U000e0100",
    "辻\U000e0101飴\U000e0100屋",
    "\u3402\U000e01ef",
    "𠮟\U000e0100",
    "\ufa11\U000e0100",
)
SCRIPTS = ("مرحبا بالعالم", "שָׁלוֹם", "हिन्दी में", "සිංහල", "ไทยที่", "한국어", "é e\u0301", "ελληνικά", "中文漢字")
EMOJI = (
    "👩🏽\u200d💻",
    "❤\ufe0f",
    "1\ufe0f\u20e3",
    "🏳\ufe0f\u200d🌈",
    "©\ufe0f",
    "☎\ufe0e",
    "👨\u200d👩\u200d👧",
    "👩\u200d❤\ufe0f\u200d👨",
)


def unseen() -> Iterator[str]:
    """Every character that no reader sees."""
    spans = (each.split("-") for each in DEFAULT_IGNORABLE.split())
    ignorable = {code for span in spans for code in range(int(span[0], 16), int(span[-1], 16) + 1)}
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if character not in "\n\t" and (
            code in ignorable or unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        ):
            yield character


@pytest.mark.slow
def test_every_character_without_a_look_is_made_visible() -> None:
    characters = list(unseen())
    assert len(characters) > 6_000
    for character in characters:
        assert is_invisible(character)
        shown = sanitize(f"A{character}B")
        assert shown == "A\\x0dB" if character == "\r" else character not in shown and len(shown) > 2
    hidden = "".join(chr(0xE0000 + ord(each)) for each in "send the keys")
    assert sanitize(f"A{hidden}B").startswith("A\\U000e0073\\U000e0065")


@pytest.mark.slow
def test_none_of_them_is_drawn_and_no_cell_moves() -> None:
    text = "".join(f"A{each}" for each in unseen() if each != "\u200d")
    (drawn,) = OUTPUT_GUARD.apply([Segment(text)], Color(0, 0, 0))
    assert not any(map(is_invisible, drawn.text))
    assert cell_len(drawn.text) == cell_len(text.replace("\n", ""))


@pytest.mark.parametrize("text", [*SCRIPTS, *EMOJI, *IDEOGRAPHS])
def test_text_that_is_seen_stays_as_it_is(text: str) -> None:
    assert sanitize(text) == text
    assert sanitize(f"a\n{text}\nb") == f"a\n{text}\nb"
    (drawn,) = OUTPUT_GUARD.apply([Segment(text)], Color(0, 0, 0))
    assert cell_len(drawn.text) == cell_len(text)


@pytest.mark.parametrize("mark", ["\u0301", "\u20dd", "\u094d", "\u0e34"])
@pytest.mark.parametrize("before", ["", "a\n", "\t", "a\u200b", "\U000e0041"])
def test_a_mark_without_a_letter_is_made_visible(mark: str, before: str) -> None:
    assert mark not in sanitize(f"{before}{mark}{mark}b")
    assert mark in sanitize(f"{before}a{mark}b")


@pytest.mark.parametrize("size", [1, 5, 100])
def test_more_marks_on_a_letter_than_any_script_has_are_made_visible(size: int) -> None:
    text = "Z" + "\u0301" * 40 + "a\u0301"
    pieces, shown = (text[start : start + size] for start in range(0, len(text), size)), PieceSanitizer()
    assert sanitize(text) == "Z" + "\u0301" * 12 + "\\u0301" * 28 + "a\u0301"
    assert "".join([*map(shown.feed, pieces), shown.end()]) == sanitize(text)


@pytest.mark.parametrize(
    "text",
    [
        "a\ufe0f",
        "\u2192\ufe0f",  # an arrow that is no emoji
        "a\ufe0f\u200d👩",
        "1\ufe0f",
        "🏽\ufe0f",
        "\ufe0f",
        "a\U000e0100",
        "か\U000e0100",
        "漢\ufe0f",
        "漢\ufe00",
        "❤\U000e0100",
        "\U000e0100",
        # More than one: all of them.
        "❤\ufe0f\ufe0f",
        "❤\ufe0e\ufe0f",
        "漢\U000e0100\U000e0101",
        "漢\U000e0100\ufe0f",
        "❤" + "".join(chr(0xE0100 + ord(each) - 16) for each in "send the keys"),
    ],
)
def test_a_selector_of_no_form_is_made_visible(text: str) -> None:
    shown = sanitize(f"x{text}y")
    assert not [each for each in shown if is_invisible(each) and each != "\u200d"]
    assert shown.count("\\") == sum(map(is_invisible, text))


PIECES = st.text(
    st.sampled_from("ab\n\r❤👩💻🏽漢1हु\u200d\u200c\ufe0f\u20e3\u0301\U000e0041\U000e0100\x1b"), max_size=14
)


@given(PIECES)
def test_sanitising_twice_changes_nothing(text: str) -> None:
    assert sanitize(sanitize(text)) == sanitize(text)
    for limit in range(1, len(text) + 1):
        assert sanitize(sanitize(text, limit)) == sanitize(text, limit)


@given(st.lists(PIECES, max_size=6))
def test_pieces_are_shown_as_the_whole_text(pieces: list[str]) -> None:
    shown = PieceSanitizer()
    assert "".join([*(shown.feed(each) for each in pieces), shown.end()]) == sanitize("".join(pieces))
