"""Two runs of a fleet compared, as lines: the tree, and what differs. Nothing in here imports the screen."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from pallas.recordings.diff_lines import (
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
from pallas.recordings.diff_tree import DiffRow, RecordingDiff
from pallas.recordings.recording_folder import read_archive
from pallas.recordings.run_diff import diff

from ..text import Line, count

_STYLES: Final[dict[DiffTone, str]] = {
    "": "", "strong": "bold", "dim": "dim", "inserted": "$text-success", "removed": "$text-error",
    "changed": "$text-warning", "moved": "$text-accent",
}  # fmt: skip


class RecordingSource(Protocol):
    """A fleet that records its runs."""

    async def recording(self, run_id: str) -> str:
        """A run as a tar archive in base64. Raises Fault."""
        ...


class CannotCompare(Exception):
    """The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two recordings compared. Of a replay, ``verdict`` says how it went, and ``is_same`` whether well."""

    found: RecordingDiff
    verdict: str = ""
    is_same: bool = True


type ReadComparison = Callable[[], Awaitable[Comparison]]


@dataclass(frozen=True, slots=True)
class DiffSource:
    """Two runs to compare, by their names. A replay and a fork run the second one each time.

    ``read`` has ``seconds``. It raises CannotCompare, Fault, and others of a remote fleet.
    """

    names: tuple[str, str]
    read: ReadComparison
    seconds: float
    kind: Literal["runs", "replay", "fork"] = "runs"


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A line of the tree: a run, a step, or steps that are left out, which have no row."""

    number: int
    line: Line
    row: DiffRow | None = None

    @property
    def differs(self) -> bool:
        """Whether it differs itself, and not only something below it."""
        return self.row is not None and self.row.node.mark != "same"

    def details(self) -> list[Line]:
        """What differs in it, or what was said where nothing does."""
        return [styled(line) for line in detail_lines(self.row.node)] if self.row is not None else []


async def compare(fleet: RecordingSource, before: str, after: str) -> Comparison:
    """Compare two runs of a fleet. Raises Fault, and BadRecording for an answer that is no recording."""
    archives = [base64.b64decode(await fleet.recording(each)) for each in (before, after)]
    return await asyncio.to_thread(lambda: Comparison(diff(*map(read_archive, archives))))


def rows_of(found: RecordingDiff, *, everything: bool) -> list[ComparedRow]:
    """The lines of the tree: of what differs, or of all."""
    rows = found.rows() if everything else differing_rows(found)
    return [
        ComparedRow(number, styled(row_line(row)), row)
        if isinstance(row, DiffRow)
        else ComparedRow(number, ((f"= {count(row, 'step')}", "dim"),))
        for number, row in enumerate(rows)
    ]


def head_of(comparison: Comparison, names: Sequence[str]) -> list[Line]:
    """What both runs took, and where they diverge."""
    found = comparison.found
    signs = (("-", _STYLES["removed"]), ("+", _STYLES["inserted"]))
    totals = (found.before, found.after)
    lines: list[Line] = [
        (sign, (f" {name}", "bold"), (f"  {totals_text(took)}", "dim"))
        for sign, name, took in zip(signs, names, totals, strict=True)
    ]
    if comparison.verdict:
        tone: DiffTone = "inserted" if comparison.is_same else "removed"
        lines.append(((comparison.verdict, _STYLES[tone]),))
    lines += [((version_line(each), ""),) for each in found.versions]
    first = found.first_divergence
    if first is None:
        return [*lines, ((no_difference(found), ""),)]
    return [*lines, ((f"They differ first at {place_of(first)}", ""),)]


def styled(line: DiffLine) -> Line:
    """A line of a difference in the colours of the screen."""
    return tuple((text, _STYLES[tone]) for text, tone in line)
