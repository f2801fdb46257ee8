"""Aligns two sequences by keys, strictest first."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

MOST_CELLS: Final = 400_000_000
"""Most items of one sequence times those of the other that are compared. What is more is not aligned."""

type Pair = tuple[int, int]
"""The index of an item in the first sequence, and that of its counterpart in the second."""
type PairOrSingle = tuple[int | None, int | None]
"""The same of an item that may be in one of them only."""


def common(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[Pair]:
    """A longest common subsequence, in order.

    There may be several: of the one that begins first and the one that ends last it is that whose items have
    the places most alike. Takes time in proportion to ``len(before) * len(after) / 64``.
    """
    if len(before) * len(after) > MOST_CELLS:
        return []
    first = _first(before, after)
    ends = len(before) - 1, len(after) - 1
    last = [(ends[0] - a, ends[1] - b) for a, b in reversed(_first(before[::-1], after[::-1]))]
    return min(first, last, key=lambda pairs: sum(abs(a - b) for a, b in pairs))


def _first(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[Pair]:
    """The longest common subsequence whose items come first. A row of its table is one integer."""
    bits: dict[Hashable, int] = {}
    for index, key in enumerate(after):
        bits[key] = bits.get(key, 0) | 1 << index
    whole = (1 << len(after)) - 1
    # A bit of a row that is 0 says that one more item is common up to there: H. Hyyrö, "Bit-parallel
    # LCS-length computation revisited", 2004.
    row, rows = whole, [whole]
    for key in before:
        matches = row & bits.get(key, 0)
        row = (row + matches | row - matches) & whole
        rows.append(row)
    found: list[Pair] = []
    i, j = len(before), len(after)
    while i and j:
        if rows[i] >> j - 1 & 1:
            j -= 1
        elif not rows[i - 1] >> j - 1 & 1:
            i -= 1
        else:
            i, j = i - 1, j - 1
            found.append((i, j))
    return found[::-1]


def refined(pairs: Sequence[Pair], before: Sequence[Hashable], after: Sequence[Hashable]) -> list[Pair]:
    """``pairs``, and those that have the same keys between them, in order. A key None has no counterpart."""
    found: list[Pair] = []
    i = j = 0
    for a, b in (*pairs, (len(before), len(after))):
        left = [index for index in range(i, a) if before[index] is not None]
        right = [index for index in range(j, b) if after[index] is not None]
        if left and right:
            between = common([before[index] for index in left], [after[index] for index in right])
            found += [(left[x], right[y]) for x, y in between]
        if a < len(before):
            found.append((a, b))
        i, j = a + 1, b + 1
    return found


def merged(pairs: Sequence[Pair], before: int, after: int) -> Iterator[PairOrSingle]:
    """All items of two sequences of these lengths in one order; between two pairs, ``before`` goes first."""
    i = j = 0
    for a, b in (*pairs, (before, after)):
        yield from ((index, None) for index in range(i, a))
        yield from ((None, index) for index in range(j, b))
        if a < before:
            yield a, b
        i, j = a + 1, b + 1
