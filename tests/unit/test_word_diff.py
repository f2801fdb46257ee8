"""Texts are compared word by word, whatever they are; sequences are aligned by what they have in common."""

from functools import cache
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from pallas.recordings import word_diff as module
from pallas.recordings.alignment import common, merged, refined
from pallas.recordings.word_diff import Piece, word_diff

FEW = st.lists(st.sampled_from("abc"), max_size=12)
TEXTS = st.text(st.sampled_from("ab .\n{\u00e4"), max_size=60) | st.text(max_size=40)


def sides(pieces: tuple[Piece, ...]) -> tuple[str, str]:
    return (
        "".join(text for sign, text in pieces if sign != "+"),
        "".join(text for sign, text in pieces if sign != "-"),
    )


@given(TEXTS, TEXTS)
@examples(300)
def test_the_pieces_make_up_both_texts(before: str, after: str) -> None:
    pieces = word_diff(before, after)
    assert sides(pieces) == (before, after)
    assert all(text for _, text in pieces)
    assert all(a[0] != b[0] and (a[0], b[0]) != ("+", "-") for a, b in pairwise(pieces))
    assert (before == after) == all(sign == "=" for sign, _ in pieces)


@pytest.mark.parametrize(
    ("before", "after", "pieces"),
    [
        ("", "", ""),
        ("", "new", "+new"),
        ("You are helpful.", "You are careful.", "=You are |-helpful|+careful|=."),
        # Several words in turn are one change.
        ("a big cat", "a small dog", "=a |-big cat|+small dog"),
        ("one\ntwo\nthree\n", "one\nthree\nfour", "=one\n|-two\n|=three\n|+four"),
        # These have too little in common to be cut into words.
        ("one of them is red", "nothing is known", "-one of them is red|+nothing is known"),
    ],
)
def test_what_a_person_would_mark_is_marked(before: str, after: str, pieces: str) -> None:
    assert "|".join(sign + text for sign, text in word_diff(before, after)) == pieces


def test_a_word_in_a_long_line_is_found() -> None:
    words = [f"word{number}" + ("," if number % 9 == 0 else "") for number in range(20_000)]
    before = " ".join(words)
    words[777], words[15_000] = "another", "word"
    pieces = word_diff(before, " ".join(words))
    assert [each for each in pieces if each[0] != "="] == [
        ("-", "word777"), ("+", "another"), ("-", "word15000"), ("+", "word"),
    ]  # fmt: skip


def test_texts_that_are_compared_word_by_word_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    class Counting(module.SequenceMatcher[str]):
        def set_seqs(self, a: object, b: object) -> None:
            compared.append(len(a) * len(b))  # type: ignore[arg-type]
            super().set_seqs(a, b)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "SequenceMatcher", Counting)
    chance = Random(1)

    def text() -> str:
        return "\n".join(
            f"{line}\n" + " ".join(chance.choice(["one", "two", "ten"]) for _ in range(450))
            for line in range(60)
        )

    before, after = text(), text()
    assert sides(word_diff(before, after)) == (before, after)
    assert compared
    assert sum(compared) <= module.MAX_COMPARED


@given(FEW, FEW)
@examples(200)
def test_a_longest_common_subsequence_is_found(before: list[str], after: list[str]) -> None:
    @cache
    def longest(i: int, j: int) -> int:
        if not i or not j:
            return 0
        if before[i - 1] == after[j - 1]:
            return longest(i - 1, j - 1) + 1
        return max(longest(i - 1, j), longest(i, j - 1))

    pairs = common(before, after)
    assert len(pairs) == longest(len(before), len(after))
    assert all(before[a] == after[b] for a, b in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))


@given(FEW, FEW)
@examples(100)
def test_looser_keys_only_fill_the_gaps(before: list[str], after: list[str]) -> None:
    strict = common(before, after)
    pairs = refined(strict, ["x"] * len(before), ["x" if each != "a" else None for each in after])
    assert set(strict) <= set(pairs)
    assert all(after[b] != "a" for a, b in set(pairs) - set(strict))
    places = list(merged(pairs, len(before), len(after)))
    assert [a for a, _ in places if a is not None] == list(range(len(before)))
    assert [b for _, b in places if b is not None] == list(range(len(after)))
    assert {each for each in places if None not in each} == set(pairs)
