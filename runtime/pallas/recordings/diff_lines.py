"""The difference of two recordings as lines of text, whose parts say what they are."""

from collections.abc import Iterator
from itertools import groupby
from typing import Final, Literal

from pallas.model import Cost, RecordedRun, StepDetail
from pallas.model.step_view import view_of
from pallas.safe_text import one_line, sanitize

from .diff_tree import (
    DiffMark,
    DiffNode,
    DiffRow,
    PartChange,
    RecordingDiff,
    RunDiff,
    RunTotals,
    StepDiff,
    VersionChange,
)
from .word_diff import Piece

DiffTone = Literal["", "strong", "dim", "inserted", "removed", "changed", "moved"]
type DiffLine = tuple[tuple[str, DiffTone], ...]

SIGNS: Final[dict[DiffMark, str]] = {
    "same": "=", "changed": "~", "inserted": "+", "removed": "-", "moved": ">",
}  # fmt: skip
LEGEND: Final = "= same   ~ changed   + only in the second   - only in the first   > moved"
_TONES: Final[dict[DiffMark, DiffTone]] = {
    "same": "", "changed": "changed", "inserted": "inserted", "removed": "removed", "moved": "moved",
}  # fmt: skip
_NUMBER: Final = 4
"""Cells for the number of a step."""
_NEAR: Final = 80
"""Characters that are shown of the same text before and behind a change."""
_PREVIEW: Final = 200


def differing_rows(diff: RecordingDiff) -> Iterator[DiffRow | int]:
    """The runs and steps that differ, with those above them, and how many steps are left out between them."""
    hidden = 0
    for row in diff.rows():
        if row.node.is_same:
            hidden += isinstance(row.node, StepDiff)
            continue
        if hidden:
            yield hidden
        hidden = 0
        yield row
    if hidden:
        yield hidden


def row_line(row: DiffRow) -> DiffLine:
    """A run or a step in one line: its mark, its number in both runs, what it is, and what differs."""
    node = row.node
    numbers = tuple(
        f"{each.step.number if isinstance(each, StepDetail) else '':>{_NUMBER}}"
        for each in (node.before, node.after)
    )
    parts = ", ".join(dict.fromkeys(each.part for each in node.changes))
    tone = _TONES[node.mark]
    return (
        (SIGNS[node.mark], tone),
        (f"{numbers[0]}{numbers[1]}  ", "dim"),
        ("  " * row.depth + name_of(node), tone),
        (f"  {parts}" if parts else "", "strong"),
        (f"  {_preview(node)}", "dim"),
    )


def name_of(node: DiffNode) -> str:
    """What a run or a step is: an agent, a model, a tool."""
    if isinstance(node, RunDiff):
        return f"run of {node.shown.agent}"
    return node.shown.step.words


def place_of(node: DiffNode) -> str:
    """A run or a step with its number in both runs."""
    if isinstance(node, RunDiff):
        return name_of(node)
    old, new = (each.step.number if each is not None else None for each in (node.before, node.after))
    if old is None:
        return f"step {new} of the second: {name_of(node)}"
    if new is None:
        return f"step {old} of the first: {name_of(node)}"
    return f"step {old}{'' if old == new else f' of the first, {new} of the second'}: {name_of(node)}"


def detail_lines(node: DiffNode) -> Iterator[DiffLine]:
    """What differs in a run or a step, word by word. Of what only one recording has, what was said."""
    yield ((f"{SIGNS[node.mark]} {place_of(node)}", _TONES[node.mark] or "strong"),)
    yield _quantities(node)
    if not node.changes:
        yield from _contents(node)
    for part, changes in groupby(node.changes, key=lambda each: each.part):
        yield ((part, "strong"),)
        for change in changes:
            yield from _change_lines(change)


def totals_text(totals: RunTotals) -> str:
    """What a recording took, in words."""
    facts = [_count(totals.steps, "step")]
    if totals.runs > 1:
        facts.append(_count(totals.runs, "run"))
    if totals.tokens_in is not None or totals.tokens_out is not None:
        facts.append(f"{totals.tokens_in or 0} tokens in, {totals.tokens_out or 0} out")
    facts += [words] if (words := totals.cost.words) else []
    return ", ".join((*facts, seconds_text(totals.seconds)))


def version_line(change: VersionChange) -> str:
    """Which versions an agent had, and what tells them apart."""
    old, new = change.before.number, change.after.number
    numbers = f"version {old}" if old == new else f"version {old} -> {new}"
    return f"{change.agent}: {numbers}, with other {' and '.join(change.parts)}"


def no_difference(diff: RecordingDiff) -> str:
    """What is said of two runs that are the same."""
    return f"Nothing differs but {'versions, ' if diff.versions else ''}ids, tokens and time."


def seconds_text(seconds: float) -> str:
    """``0.84 s``, ``12.3 s``."""
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"


def _change_lines(change: PartChange) -> Iterator[DiffLine]:
    if change.before is None:
        pieces: tuple[Piece, ...] = (("+", change.after or ""),)
    elif change.after is None:
        pieces = (("-", change.before),)
    else:
        pieces = change.words()
    label: DiffLine = ((f"  {change.name}: ", "dim"),) if change.name else ()
    lines = list(word_lines(pieces))
    if label and len(lines) == 1:
        yield (*label, *lines[0])
        return
    if label:
        yield label
    for line in lines:
        yield (("    " if label else "  ", ""), *line)


def word_lines(pieces: tuple[Piece, ...]) -> Iterator[DiffLine]:
    """Yield pieces as lines: removed words in ``[-`` and ``-]``, new ones in ``{+`` and ``+}``."""
    last = len(pieces) - 1
    line: list[tuple[str, DiffTone]] = []
    for number, (sign, text) in enumerate(pieces):
        if sign == "=":
            text = _near(text, is_first=number == 0, is_last=number == last)
        for at, part in enumerate(sanitize(text).split("\n")):
            if at:
                yield tuple(line)
                line = []
            shown = part or ("\\n" if not at and not text.strip("\n") else "")
            if sign == "=":
                line.append((part, ""))
            elif shown:
                line.append((f"[-{shown}-]", "removed") if sign == "-" else (f"{{+{shown}+}}", "inserted"))
    if any(text for text, _ in line):
        yield tuple(line)


def _near(text: str, *, is_first: bool, is_last: bool) -> str:
    """The ends of a text that are next to changes."""
    begin = "" if is_first else text[:_NEAR]
    end = "" if is_last else text[-_NEAR:]
    return f"{begin} ... {end}".strip(" ") if len(text) > len(begin) + len(end) + 10 else text


def _quantities(node: DiffNode) -> DiffLine:
    """Tokens and time, which are no differences."""
    sides = [_used(each) for each in (node.before, node.after) if each is not None]
    facts = (
        f"{' -> '.join(dict.fromkeys(values))} {unit}".strip()
        for unit, values in zip(("tokens in", "out", "", ""), zip(*sides, strict=True), strict=True)
        if any(each not in ("?", "") for each in values)
    )
    return ((f"  {', '.join(facts)}", "dim"),)


def _used(side: RecordedRun | StepDetail) -> tuple[str, str, str, str]:
    if isinstance(side, RecordedRun):
        tokens, took = (side.tokens_in, side.tokens_out), side.seconds
    else:
        tokens, took = (side.step.usage.input, side.step.usage.output), side.step.seconds or 0.0
    tokens_in, tokens_out = ("?" if each is None else str(each) for each in tokens)
    cost = Cost.of(side if isinstance(side, RecordedRun) else side.step)
    return tokens_in, tokens_out, cost.words, seconds_text(took)


def _contents(node: DiffNode) -> Iterator[DiffLine]:
    """What was asked and what came back, where nothing differs."""
    for name, text in _said(node):
        if text:
            yield ((name, "strong"),)
            yield from (((f"  {line}", ""),) for line in sanitize(text).split("\n"))


def _said(node: DiffNode) -> tuple[tuple[str, str], ...]:
    if isinstance(node, RunDiff):
        return ("question", node.shown.question), ("answer", node.shown.answer)
    detail = node.shown
    if detail.step.kind == "model":
        return (("answer", view_of("", detail.response).answer),)
    view = view_of(detail.request, detail.response)
    return ("arguments", dict(view.params).get("arguments", "")), ("result", view.answer)


def _preview(node: DiffNode) -> str:
    return one_line(_said(node)[0][1], _PREVIEW)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
