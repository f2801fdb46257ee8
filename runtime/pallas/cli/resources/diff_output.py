"""The difference of two runs for a terminal, and as JSON."""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby, islice
from typing import Any, Final

from pallas.model import RecordedRun, StepDetail
from pallas.model.money import cost_fields
from pallas.recordings.diff_lines import (
    LEGEND,
    DiffLine,
    DiffTone,
    detail_lines,
    differing_rows,
    no_difference,
    place_of,
    row_line,
    totals_text,
    version_line,
)
from pallas.recordings.diff_tree import DiffNode, DiffRow, RecordingDiff, RunDiff, RunTotals

from .text_output import as_json
from .text_tables import cells_in, width_of

_WIDTH: Final = 80
"""Columns where no terminal says another number."""
_MAX_LINES: Final = 60
"""Most lines of the details of a step."""
_DOTS: Final = "..."
_INDENT: Final = "    "
_WORDS: Final = re.compile(r" *[^ ]+| +")
_CODES: Final[dict[DiffTone, str]] = {
    "strong": "1", "dim": "2", "inserted": "32", "removed": "31", "changed": "33", "moved": "36",
}  # fmt: skip


def diff_text(diff: RecordingDiff, names: tuple[str, str], *, everything: bool) -> str:
    """Return the tree, then the details of each step that differs. ``names`` are those of the two runs."""
    width = width_of() or _WIDTH
    colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    lines = _lines(diff, names, everything, width)
    return "".join(f"{_painted(line) if colored else _plain(line)}\n" for line in lines)


def _lines(diff: RecordingDiff, names: tuple[str, str], everything: bool, width: int) -> Iterator[DiffLine]:
    for sign, name, totals in zip("-+", names, (diff.before, diff.after), strict=True):
        yield from _folded(((f"{sign} {name}", "strong"), (f": {totals_text(totals)}", "")), width)
    for change in diff.versions:
        yield from _folded(((version_line(change), ""),), width)
    first = diff.first_divergence
    if first is None:
        yield ((no_difference(diff), ""),)
        if not everything:
            return
    else:
        marks = () if first.mark == "changed" else (first.mark,)
        how = ", ".join((*marks, *dict.fromkeys(each.part for each in first.changes)))
        yield from _folded((("They differ first at ", ""), (f"{place_of(first)} ({how})", "strong")), width)
    yield ()
    yield from _folded(((LEGEND, "dim"),), width)
    rows = list(diff.rows() if everything else differing_rows(diff))
    for row in rows:
        if isinstance(row, DiffRow):
            yield _cut(row_line(row), width)
        else:
            yield ((f"= {row} {'step' if row == 1 else 'steps'}", "dim"),)
    for row in rows:
        if isinstance(row, DiffRow) and row.node.changes:
            yield ()
            yield from _details(row.node, width)


def _details(node: DiffNode, width: int) -> Iterator[DiffLine]:
    lines = (row for line in detail_lines(node) for row in _folded(line, width))
    yield from islice(lines, _MAX_LINES)
    if left := sum(1 for _ in lines):
        yield ((f"  ... {left} more lines; -o json has all", "dim"),)


def _cut(line: DiffLine, width: int) -> DiffLine:
    """As much of a line as fits."""
    if cells_in(_plain(line)) <= width:
        return line
    found: list[tuple[str, DiffTone]] = []
    room = width - len(_DOTS)
    for part, tone in line:
        piece = part[: _fitting(part, room)]
        found.append((piece, tone))
        room -= cells_in(piece)
        if piece != part:
            break
    return (*found, (_DOTS, "dim"))


def _folded(line: DiffLine, width: int) -> Iterator[DiffLine]:
    """A line in as many rows as it takes, broken at blanks where there are some."""
    row: list[tuple[str, DiffTone]] = []
    room = width
    for part, tone in line:
        for word in _WORDS.findall(part):
            rest = word
            if cells_in(rest) > room and cells_in(rest) <= width - len(_INDENT):
                yield tuple(row)
                row, room, rest = [(_INDENT, "")], width - len(_INDENT), rest.lstrip(" ")
            while cells_in(rest[: width + 1]) > room:
                cut = _fitting(rest, room)
                yield (*row, (rest[:cut], tone))
                row, room, rest = [(_INDENT, "")], width - len(_INDENT), rest[cut:]
            row.append((rest, tone))
            room -= cells_in(rest)
    yield tuple(row)


def _fitting(text: str, room: int) -> int:
    """How many characters at the beginning fit; at least one, for a terminal of a few columns."""
    used = 0
    for index, each in enumerate(text):
        used += cells_in(each)
        if used > room:
            return max(1, index)
    return len(text)


def _plain(line: DiffLine) -> str:
    return "".join(part for part, _ in line).rstrip()


def _painted(line: DiffLine) -> str:
    parts = (
        (tone, "".join(part for part, _ in group)) for tone, group in groupby(line, lambda each: each[1])
    )
    return "".join(f"\x1b[{_CODES[tone]}m{part}\x1b[0m" if part and tone else part for tone, part in parts)


def diff_json(diff: RecordingDiff, *, everything: bool) -> str:
    """Return the rows that differ, or all, with both texts of each difference, as one JSON document."""
    shown = diff.rows() if everything else differing_rows(diff)
    rows = [each for each in shown if isinstance(each, DiffRow)]
    first = diff.first_divergence
    document = {
        "isSame": diff.is_same,
        "firstDivergence": next((index for index, row in enumerate(rows) if row.node is first), None),
        "first": _totals(diff.before),
        "second": _totals(diff.after),
        "versions": [
            {
                "agent": each.agent,
                "parts": each.parts,
                "first": asdict(each.before),
                "second": asdict(each.after),
            }
            for each in diff.versions
        ],
        "rows": [_row(each) for each in rows],
    }
    return as_json(document)


def _row(row: DiffRow) -> dict[str, Any]:
    node = row.node
    kind, name = (
        ("run", node.shown.agent)
        if isinstance(node, RunDiff)
        else (node.shown.step.kind, node.shown.step.name)
    )
    return {
        "depth": row.depth,
        "kind": kind,
        "name": name,
        "mark": node.mark,
        "first": _side(node.before),
        "second": _side(node.after),
        "changes": [
            {
                "part": each.part,
                "name": each.name,
                "first": each.before,
                "second": each.after,
                "words": each.words(),
            }
            for each in node.changes
        ],
    }


def _side(side: RecordedRun | StepDetail | None) -> dict[str, Any] | None:
    if side is None:
        return None
    if isinstance(side, RecordedRun):
        tokens = {"tokensIn": side.tokens_in, "tokensOut": side.tokens_out}
        tokens |= cost_fields(side)
        return {"run": side.id, "state": side.status, "seconds": side.seconds, **tokens}
    step = side.step
    tokens = {"tokensIn": step.usage.input, "tokensOut": step.usage.output, **cost_fields(step)}
    return {"run": step.run_id, "step": step.number, "state": step.state, "seconds": step.seconds, **tokens}


def _totals(totals: RunTotals) -> dict[str, Any]:
    return {
        "runs": totals.runs,
        "steps": totals.steps,
        "seconds": totals.seconds,
        "tokensIn": totals.tokens_in,
        "tokensOut": totals.tokens_out,
        **cost_fields(totals.cost),
    }
