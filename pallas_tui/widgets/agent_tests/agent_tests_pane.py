"""The tests of the project: listed, run, and run again when files are saved."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.message import Message

from ...actions import bindings
from ...agents.source_line import open_source
from ...records.agent_test_book import AgentTestBook, AgentTestOutcome, shown_name, words_of
from ...state import Tone
from ...targets import opener_of
from ...text import Glyphs, Line, count, duration, joined
from ..detailed_list_pane import DetailedListPane
from ..fact_lines import ActionStatus, DetailLines
from ..filter_line import NOTHING_MATCHES, FilterLine
from .agent_test_list import (
    ELSEWHERE,
    EMPTY,
    AgentTestLines,
    ListedAgentTest,
    details,
    details_text,
)

if TYPE_CHECKING:
    from pallas.agent_tests.agent_test import AgentTest, Verdict

LOOK_EVERY: Final = 1.0
"""Seconds between two looks for saved files."""
_ORDER: Final[tuple["Verdict", ...]] = ("failed", "error", "passed", "skipped")


class AgentTestsPane(DetailedListPane):
    """Follows the files of the tests while it is mounted; what it runs ends with it."""

    TITLE = "Tests"
    HELP = """\
The tests of the project's agents, from `tests/agents`: how each went last in this workbench, how long it
took, and the first reason why it did not pass. They run from their recordings in a process of their own: no
model, no tool and no network. One run of tests at a time.

**enter** or **r** runs the selected test, **a** all that are listed: with a filter those that match. **x**,
ctrl+c or escape ends the run, and so does leaving the screen. **o** shows why a test failed and, below that,
the steps of its recording. **p** replays that recording, and shows it beside its replay. **e** opens its
file, **i** shows all about it, **y** copies that. A filter (**/**) searches names, agents, verdicts and
failures.

**w** watches: after a file is saved, the tests run again whose agent, or one that it reaches, has a new
version; all of them where no agent is named, or where the tests themselves were saved.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("tests")
    PARTS = (*DetailedListPane.PARTS, ActionStatus)

    class OpenRecording(Message):
        """The user wants to read the recording of a test, with the reason why it failed."""

        def __init__(self, test: "AgentTest", outcome: AgentTestOutcome | None) -> None:
            super().__init__()
            self.test, self.outcome = test, outcome

    def __init__(self, book: AgentTestBook, glyphs: Glyphs, clock: Callable[[], float]) -> None:
        super().__init__(glyphs, id="tests")
        self._book, self._clock = book, clock
        self._is_watching = False
        self._is_looking = False
        self._wanted: set[str] = set()
        """Tests that saved files affect and that did not run since."""

    def compose(self) -> ComposeResult:
        with Container(id="test-columns"):
            yield AgentTestLines(self._glyphs)
            yield DetailLines(id="test-details")
        yield FilterLine("name, agent, verdict, failure", id="test-filter")
        yield ActionStatus(self._glyphs, id="test-status")

    @property
    def rows(self) -> AgentTestLines:
        """The list."""
        return self.query_one(AgentTestLines)

    def on_mount(self) -> None:
        """Read the tests, and follow their files."""
        self._book.forget_saved()
        self.set_interval(LOOK_EVERY, self._look)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self._paint()
        self._look()

    # Files

    def _look(self) -> None:
        if self._is_composed and not self._is_looking and self._book.root is not None:
            self._is_looking = True
            self.run_worker(self._looked(), group="tests look", description="look for saved tests")
        if self._book.running:
            self._tell_running()

    async def _looked(self) -> None:
        try:
            is_first = not self._book.is_read
            are_others = await self._book.look()
            affected = await self._book.take_affected()
        finally:
            self._is_looking = False
        if are_others and not is_first:
            affected = {test.name for test in self._book.listed}
        if self._is_watching:
            self._wanted |= affected
        if self._wanted and not self._book.running:
            wanted, self._wanted = self._wanted, set()
            self._run(wanted)
        self._paint()

    def action_watch(self) -> None:
        """Run affected tests after each save, or no longer."""
        self._is_watching = not self._is_watching
        self._wanted.clear()
        self._book.forget_saved()
        if self._is_watching:
            self.notify(self._watch_words(), markup=False)
        self._paint()

    def _watch_words(self) -> str:
        fleet: Any = getattr(self.app, "fleet", None)
        watch = fleet.snapshot().watch if fleet is not None else None
        if watch is None:
            return "Tests run again when they are saved. This fleet does not watch its own files."
        if watch.mode == "paused":
            return "Tests run again when they are saved. Saved agents are ignored until W resumes watching."
        return "Saved files run the tests that they affect."

    # Running

    def choose(self) -> None:
        """Run the selected test."""
        if (row := self.rows.selected) is not None:
            self._run({row.test.name})

    def action_all(self) -> None:
        """Run all tests that are listed."""
        self._run({row.test.name for row in self.rows.rows})

    def _run(self, names: Collection[str]) -> None:
        known = {test.name for test in self._book.listed}
        if self._book.running:
            self.notify("Tests run already; x ends that run.", severity="warning", markup=False)
        elif chosen := known & set(names):
            self.run_worker(self._ran(chosen), group="tests run", description="run tests")

    async def _ran(self, names: set[str]) -> None:
        if self._book.running:  # two keys, one after the other
            return
        self.call_after_refresh(self._paint_running)
        said, tone = "The run of tests was ended; what it found is not known.", Tone.STOPPED
        try:
            said, tone = await self._book.run(names), Tone.ERROR
        finally:
            if self._is_composed:
                self._say(said, tone)
                self._paint()

    def _paint_running(self) -> None:
        if self._is_composed and self._book.running:
            self._tell_running()
            self._paint()

    def _tell_running(self) -> None:
        so_far = duration(self._clock() - self._book.began, running=True)
        self._say(f"{count(len(self._book.running), 'test')} running for {so_far}; x ends it")

    def action_cancel(self) -> None:
        """End the tests that run."""
        self._wanted.clear()
        self.workers.cancel_group(self, "tests run")

    def action_unfilter(self) -> None:
        """End the tests that run; without any, show all tests again."""
        if self._book.running:
            self.action_cancel()
        else:
            super().action_unfilter()

    # Painting

    def _paint(self) -> None:
        if not self._is_composed:
            return
        book = self._book
        rows = [
            ListedAgentTest(test, book.outcomes.get(test.name), test.name in book.running)
            for test in book.listed
        ]
        shown = [row for row in rows if self._has_words(row)]
        self.rows.hint = self._hint(bool(rows))
        self.rows.show_rows(shown, self._clock())
        total = count(len(rows), "test") if rows else ""
        verdicts = [row.outcome.verdict for row in rows if row.outcome is not None]
        self.caption = joined(
            (
                "watching" if self._is_watching else "",
                *(f"{verdicts.count(each)} {each}" for each in _ORDER if each in verdicts),
                f"{len(shown)} of {total}" if self._words else total,
            ),
            self._glyphs,
        )
        self._show_details()
        self.refresh_bindings()

    def _has_words(self, row: ListedAgentTest) -> bool:
        text = words_of(row.test, row.outcome)
        return all(word in text for word in self._words)

    def _hint(self, any_known: bool) -> str:
        book = self._book
        if book.root is None:
            return ELSEWHERE
        if book.problem:
            return f"The tests cannot be read:\n\n{book.problem}\n\nThey are read again when that is saved."
        if any_known:
            return NOTHING_MATCHES
        return EMPTY if book.is_read else f"reading{self._glyphs.ellipsis}"

    def _detail_lines(self, width: int, height: int) -> Iterable[Line]:
        row = self.rows.selected
        return details(row, width, height, self._clock()) if row else ()

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done with the selected one is offered."""
        if not self._is_composed:
            return True
        row, runs = self.rows.selected, bool(self._book.running)
        if action in ("choose", "all"):
            return row is not None and not runs
        if action in ("full_text", "copy", "edit"):
            return row is not None
        if action in ("recording", "replay"):
            return row is not None and _last_recording(row.test) is not None
        if action == "watch":
            return self._book.root is not None
        if action == "cancel":
            return runs
        return (action == "unfilter" and runs) or super().check_action(action, parameters)

    def full_text(self) -> tuple[str, str] | None:
        row = self.rows.selected
        return None if row is None else (f"test {row.test.name}", details_text(row, self._clock()))

    def action_recording(self) -> None:
        """Read the recording of the selected one, with the reason why it failed."""
        if (row := self.rows.selected) is not None:
            self.post_message(self.OpenRecording(row.test, row.outcome))

    def action_replay(self) -> None:
        """Replay the recording of the selected one: of its last turn, which has what was said before."""
        row, opener = self.rows.selected, opener_of(self.app)
        path = _last_recording(row.test) if row is not None else None
        if row is not None and path is not None and opener is not None:
            opener.replay_recording(f"test {shown_name(row.test)}", path)

    def action_edit(self) -> None:
        """Open the file of the selected one."""
        row = self.rows.selected
        if row is not None and (problem := open_source(self.app, str(row.test.where))):
            self.notify(problem, severity="warning", markup=False)


def _last_recording(test: "AgentTest") -> Path | None:
    return next((turn.recording for turn in reversed(test.turns) if turn.recording is not None), None)
