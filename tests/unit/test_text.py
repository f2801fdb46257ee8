"""Sanitising: nothing that drives a terminal comes through."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

from pallas.safe_text import one_line, sanitize
from pallas_tui.shell.output_guard import OUTPUT_GUARD


def test_terminal_escapes_become_visible() -> None:
    assert sanitize("\x1b[2J\x1b]52;c;cm0=\x07") == "␛[2J␛]52;c;cm0=\\x07"


def test_c1_controls_and_reordering_marks_become_visible() -> None:
    assert sanitize("\x9b2J a\u202egnp.exe") == "\\x9b2J a\\u202egnp.exe"


@pytest.mark.parametrize(
    "emoji",
    ["👩\u200d💻", "👨\u200d👩\u200d👧", "🏳\ufe0f\u200d🌈", "👩🏽\u200d❤\ufe0f\u200d👨", "⛹🏽\u200d♀\ufe0f"],
)
def test_joined_emoji_stay_whole(emoji: str) -> None:
    text = f"a {emoji} b"
    assert sanitize(text) == text
    for limit in range(1, len(text) + 1):
        cut = sanitize(text, limit)
        assert sanitize(cut) == cut and "\\u" not in cut


@pytest.mark.parametrize("text", ["a\u200db", "\u200d👩", "👩\u200d", "👩\u200d\u200d💻", "👩\u200dpay"])
def test_a_joiner_that_joins_no_emoji_becomes_visible(text: str) -> None:
    assert "\u200d" not in sanitize(text)


@given(st.text(st.sampled_from("ab ❤👩💻🏽漢\u200d\ufe0f\u0301"), max_size=12))
@example("❤\u0301\ufe0f")
def test_what_is_drawn_has_the_cells_that_were_counted_and_no_joiner(text: str) -> None:
    (drawn,) = OUTPUT_GUARD.apply([Segment(text)], Color(0, 0, 0))
    assert "\u200d" not in drawn.text
    assert cell_len(drawn.text) == cell_len(text)


def test_newlines_and_tabs_stay_and_carriage_returns_do_not() -> None:
    assert sanitize("a\tb\r\nc\rd") == "a\tb\nc\\x0dd"


def test_a_limit_cuts_with_an_ellipsis() -> None:
    assert sanitize("abcdef", 4) == "abc…"
    assert sanitize("abcd", 4) == "abcd"


def test_one_line_takes_the_first_line_that_holds_anything() -> None:
    assert one_line("\n\n  first \x1b[0m\nsecond") == "first ␛[0m"
    assert one_line("") == ""


@given(st.text())
def test_no_control_or_format_character_survives(text: str) -> None:
    clean = sanitize(text)
    assert all(char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs") for char in clean)
    assert not set(clean) & {"\u202e", "\u2066", "\u200b", "\ufeff"}
    assert sanitize(clean) == clean


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_a_limited_text_never_exceeds_its_limit(text: str, limit: int) -> None:
    assert len(sanitize(text, limit)) <= limit
    line = one_line(text, limit)
    assert len(line) <= limit
    assert "\n" not in line
