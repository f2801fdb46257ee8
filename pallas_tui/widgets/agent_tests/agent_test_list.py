"""The list of tests: one line each, with how it went last."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pallas.safe_text import one_line

from ...records.agent_test_book import AgentTestOutcome, shown_name
from ...state import Tone
from ...text import Glyphs, Line, cropped, duration, fit, moment, right, wrapped
from ..fact_lines import ended, fact
from ..row_list import RowList
from ..tones import DIM, STRONG, STYLES, shape

if TYPE_CHECKING:
    from pallas.agent_tests.agent_test import AgentTest, Verdict

TONES: Final[dict["Verdict", Tone]] = {
    "passed": Tone.OK,
    "failed": Tone.ERROR,
    "error": Tone.ERROR,
    "skipped": Tone.DEGRADED,
}
EMPTY: Final = (
    "This project has no tests yet.\n"
    "\n"
    "Keep a run that went well: s on it in the feed, or on its answer in the chat. That writes the test and "
    "its recording into tests/agents, and it is listed here.\n"
    "\n"
    "Escape goes back."
)
ELSEWHERE: Final = (
    "Tests are files of a project, and that of this fleet is not in this workbench.\n"
    "\n"
    "Where the project is, `pallas dev DIR` shows its tests here, and `pallas test -p DIR` runs them.\n"
    "\n"
    "Escape goes back."
)
_VERDICT: Final = 8
_NAME: Final = 26
_SECONDS: Final = 8


@dataclass(frozen=True, slots=True)
class ListedAgentTest:
    """A test, how it went last, and whether it runs now."""

    test: "AgentTest"
    outcome: AgentTestOutcome | None
    runs: bool

    @property
    def word(self) -> tuple[str, Tone]:
        """How it is, in a word."""
        if self.runs:
            return "running", Tone.STARTING
        if self.outcome is None:
            return "not run", Tone.STOPPED
        return self.outcome.verdict, TONES[self.outcome.verdict]


class AgentTestLines(RowList[ListedAgentTest]):
    """Verdict, name, seconds, and the first failure, or else the question."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(glyphs, id="test-list")

    def row_key(self, row: ListedAgentTest) -> Hashable:
        return row.test.name

    def line_at(self, index: int, width: int) -> Line:
        row, glyphs = self.rows[index], self._glyphs
        word, tone = row.word
        took = duration(row.outcome.seconds) if row.outcome is not None else ""
        failures = row.outcome.failures if row.outcome is not None else ()
        name = min(_NAME, max(10, width // 3))
        room = max(4, width - 1 - _VERDICT - 2 - name - _SECONDS - 3)
        text, style = (failures[0], "") if failures else (row.test.turns[0].ask, DIM)
        return cropped(
            (
                shape(tone, glyphs),
                (f" {word:<{_VERDICT}} ", DIM if tone is Tone.OK else STYLES[tone]),
                (fit(shown_name(row.test), name, glyphs), STRONG),
                (f" {right(took, _SECONDS)}  ", DIM),
                (fit(one_line(text, 300), room, glyphs), style),
            ),
            width,
        )


def facts_of(row: ListedAgentTest, now: float) -> Iterator[tuple[str, str]]:
    """Yield the facts about a test, by name."""
    word, outcome = row.word[0], row.outcome
    if outcome is None or row.runs:
        yield "is", word
    else:
        yield "is", f"{word} after {duration(outcome.seconds)}, at {moment(outcome.at, now)}"
    yield "agent", one_line(row.test.agent, 100)
    questions = row.test.turns
    yield "asks", one_line(questions[0].ask, 300)
    if len(questions) > 1:
        yield "turns", str(len(questions))
    yield "file", one_line(str(row.test.where), 200)


def details(row: ListedAgentTest, width: int, height: int, now: float) -> list[Line]:
    """The details next to the list: why it did not pass first."""
    lines: list[Line] = [((shown_name(row.test), STRONG),), ()]
    for failure in row.outcome.failures if row.outcome is not None else ():
        lines += [((line, STYLES[Tone.ERROR]),) for line in wrapped(failure, width)]
        lines.append(())
    for label, text in facts_of(row, now):
        lines += fact(label, text, width)
    return ended(lines, height)


def details_text(row: ListedAgentTest, now: float) -> str:
    """The same as text."""
    failures = row.outcome.failures if row.outcome is not None else ()
    known = "\n".join(f"{label:<8}{text}" for label, text in facts_of(row, now))
    return "\n\n".join((shown_name(row.test), *failures, known))
