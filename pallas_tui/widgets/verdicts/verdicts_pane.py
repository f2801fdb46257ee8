"""The verdicts of this session: the saves, and the runs of the selected one."""

from collections.abc import Callable, Iterable
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.message import Message

from pallas.model import RunVerdict, VerdictReached
from pallas.safe_text import one_line

from ...actions import binding, bindings, keys_of
from ...records.verdict_book import key_of
from ...runs.verdict_tones import TONES, asking_text, differing_text, progress_text, saved_text, words_text
from ...state import Tone
from ...text import Glyphs, Line, count, duration, joined, moment, wrapped
from ..detailed_list_pane import DetailedListPane
from ..fact_lines import DetailLines, ended, fact
from ..filter_line import NOTHING_MATCHES, FilterLine
from ..tones import DIM, STRONG, STYLES
from .judged_run_pane import JudgedRunPane, VerdictContext
from .verdict_lists import EMPTY, LEAVES, UNWATCHED, JudgedRunLines, VerdictLines

_OPEN: Final = "verdicts.open"


class VerdictsPane(JudgedRunPane, DetailedListPane):
    """Follows the verdicts while it is mounted; ``wanted`` is the one to begin with, else the newest."""

    TITLE = "Verdicts"
    HELP = """\
Each time that files were saved: which recorded runs would go differently with them. Above, or on the left,
are the saves, the newest first; beside them are the runs of the selected one, those that differ first.

`same` asks, calls and answers as it was recorded. `other words`: a request or an answer differs. `other tool
calls`: so do calls. `fails`: it ends with a fault, or its test expects something else. `costs more`: the same
for more money. `not decided`: a replay cannot say.

**enter** shows what differs in a run, with both values; on a save it goes to its runs. **tab** goes to the
other list. **o** shows what was recorded, **p** replays a test, **t** opens the test's file and **e** the
saved one. **r** lets a version through that is held back, **s** keeps the run again: a test is written from
the last run that asked the same since the save. A filter (**/**) searches words, names and differences.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("verdicts", "judged_run")
    PARTS = (VerdictLines, JudgedRunLines, DetailLines)

    class OpenJudgedRun(Message):
        """The user wants to see all of a run of a verdict."""

        def __init__(self, event: VerdictReached, run: RunVerdict) -> None:
            super().__init__()
            self.event, self.run = event, run

    def __init__(
        self,
        context: VerdictContext,
        glyphs: Glyphs,
        clock: Callable[[], float],
        wanted: VerdictReached | None = None,
    ) -> None:
        super().__init__(glyphs, id="verdicts")
        self.context = context
        self._clock = clock
        self._wanted = wanted

    def compose(self) -> ComposeResult:
        with Container(id="verdict-columns"):
            yield VerdictLines(self._glyphs)
            with Vertical(id="verdict-runs"):
                yield JudgedRunLines(self._glyphs)
                yield DetailLines(id="verdict-details")
        yield FilterLine("word, name, agent, difference", id="verdict-filter")

    @property
    def view(self) -> JudgedRunLines:
        return self.query_one(JudgedRunLines)

    @property
    def saves(self) -> VerdictLines:
        """The list of saves."""
        return self.query_one(VerdictLines)

    def on_mount(self) -> None:
        """Show what is known, and follow what comes."""
        self.context.book.watchers.append(self._hear)
        self.call_after_refresh(self._begin)

    def on_unmount(self) -> None:
        """Hear no more."""
        if self._hear in self.context.book.watchers:
            self.context.book.watchers.remove(self._hear)

    def _begin(self) -> None:
        self._paint()
        wanted = key_of(self._wanted) if self._wanted is not None else None
        if wanted is not None and self._is_composed and (index := self.saves.find(wanted)) is not None:
            self.saves.action_move_to(index)
            self._paint()

    def _hear(self) -> None:
        # What breaks in here must not stop the frames of everybody.
        if self.is_mounted:
            self.call_later(self._paint)

    @property
    def judged_in(self) -> VerdictReached | None:
        return self.saves.selected if self._is_composed else None

    @property
    def judged(self) -> tuple[VerdictReached, RunVerdict] | None:
        if not self._is_composed:
            return None
        event, run = self.saves.selected, self.view.selected
        return (event, run) if event is not None and run is not None else None

    # Painting

    def _paint(self) -> None:
        if not self._is_composed:
            return
        book, at_top = self.context.book, self.saves.cursor == 0
        self.saves.show_rows(book.saves, self._clock())
        self.query_one("#verdict-columns").set_class(not book.saves, "-empty")
        if at_top:  # a cursor on the newest stays on the newest
            self.saves.action_move_to(0)
        if self.screen.is_current:
            book.look()
        self._paint_runs()

    def _paint_runs(self) -> None:
        event = self.saves.selected
        runs = event.runs if event is not None else ()
        shown = [run for run in runs if self._has_words(run)]
        self.view.hint = self._hint(event)
        self.view.show_rows(shown)
        progress = self.context.book.progress
        self.caption = joined(
            (
                progress_text(progress) if progress is not None else "",
                differing_text(event) if event is not None and runs else "",
                asking_text(event) if event is not None else "",
                f"{len(shown)} of {count(len(runs), 'run')}" if self._words else "",
            ),
            self._glyphs,
        )
        self._show_details()
        self.refresh_bindings()

    def _has_words(self, run: RunVerdict) -> bool:
        text = f"{run.words} {run.name} {run.source} {run.agent} {run.why}".lower()
        return all(word in text for word in self._words)

    def _hint(self, event: VerdictReached | None) -> str:
        if event is None and (progress := self.context.book.progress) is not None:
            return f"{progress_text(progress)}{self._glyphs.ellipsis}\n{LEAVES}"
        if event is None:
            return f"{EMPTY}{'' if self.context.book.is_watched else UNWATCHED}{LEAVES}"
        if event.problem:
            return words_text(event)
        return NOTHING_MATCHES if event.runs else "No recorded run leads to what was saved."

    def _detail_lines(self, width: int, height: int) -> Iterable[Line]:
        if (judged := self.judged) is None:
            return ()
        event, run = judged
        tone = TONES.get(run.word, Tone.DEGRADED)
        lines: list[Line] = [((f"{run.words} ", STYLES[tone]), (run.name, STRONG), (f"  {run.agent}", DIM))]
        lines += [
            ((line, ""),) for line in wrapped(run.why or "It does not differ from its recording.", width)
        ]
        whole = fact("all", f"{saved_text(event)}: {words_text(event)}", width)
        lines += whole if len(lines) + len(whole) <= height else []
        return ended(lines, height, self._key_of_all())

    def _key_of_all(self) -> str:
        """The key that shows all of a run."""
        chosen = getattr(getattr(self.app, "settings", None), "keys", {})
        key = keys_of(_OPEN, chosen).split(",")[0]
        return self.app.get_key_display(binding(_OPEN, key=key))

    # Keys

    def selection_changed(self) -> None:
        """Another save, or another run."""
        if self._is_composed and self.saves.has_focus:
            self._paint_runs()
        else:
            self._show_details()

    def filter_by(self, words: tuple[str, ...]) -> None:
        self._words = words
        if self._is_composed:
            self._paint_runs()

    def choose(self) -> None:
        """Open the selected run; on a save go to its runs."""
        if self.saves.has_focus:
            self.view.focus()
        elif (judged := self.judged) is not None:
            self.post_message(self.OpenJudgedRun(*judged))

    def action_other_list(self) -> None:
        """From the saves to the runs, and back."""
        (self.view if self.saves.has_focus else self.saves).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if not self._is_composed:
            return True
        if action == "choose":
            return self.judged_in is not None
        if action == "other_list":
            return bool(self.context.book.saves)
        return super().check_action(action, parameters)

    def full_text(self) -> tuple[str, str] | None:
        if (judged := self.judged) is None:
            return None
        event, run = judged
        files = one_line(", ".join(event.files or event.agents), 1_000)
        saved = f"saved {files} at {moment(event.at, self._clock())}"
        took = f", judged in {duration(run.seconds)}" if run.seconds else ""
        return f"verdict on {run.name}", f"{run.name}: {run.line}\n{saved}{took}"
