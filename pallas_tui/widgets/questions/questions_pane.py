"""The pane of questions to people: read and answered with keys, and what became of the others."""

from collections.abc import Callable, Hashable
from time import monotonic
from typing import ClassVar, Final

from textual.binding import BindingType
from textual.message import Message

from pallas.model import Fault, MessageRecord
from pallas.model.questions import Question
from pallas.safe_text import one_line

from ...actions import bindings
from ...records.question_book import Action, QuestionBook
from ...records.question_text import subject_of
from ...runs.feed_run import FeedRun
from ...state import Tone
from ...targets import RunTarget, Target, ThreadTarget
from ...text import Glyphs, Line
from ..agents.agent_control import fleet_of, refusal
from ..pages import RecordsPane
from .question_list import EMPTY, QuestionList
from .question_view import QuestionContext, details, details_text

LOOK_EVERY: Final = 0.5
"""Seconds between two checks for changes."""
READ_EVERY: Final = 20
"""Checks between two reads while a question is open: one that another replica has comes with no event."""
SHOWN_FOR: Final = 0.3
"""Seconds that a question has to be shown before a key answers it: the key may have meant the one before."""


class QuestionsPane(RecordsPane[Question, tuple[MessageRecord, ...]]):
    """Reads as many questions as the user looks at; ``run_of`` finds a run that the feed has."""

    TITLE = "Questions"
    HELP = """\
What agents ask people: whether a call may be made (`ask:` of `tools:` in agents.yaml), and forms that a
server, a handler or a worker wants filled in. The run waits for the answer, whichever surface it came from.
Open questions are listed first, with the time that is left; when that is over, the answer is no. Below them
are those that ended: how, by whom and when.

**a** allows the call once: this call, with exactly these arguments. **A** also allows every further call of
the same tool in this thread, or in this run if it has no thread. **x** refuses, and the model is told so. For
a form **a** (or **enter**) opens it and **x** declines.

**enter** or **i** shows everything: the arguments, through which agents it came, the tree of the run and its
text so far. **f** goes to the run in the feed, **t** to its thread in the chat. **y** copies everything.
A filter (**/**) searches tools, agents, arguments, messages and answers.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("questions")
    NOUN, OF, EMPTY = "question", "of", EMPTY
    FILTERED = "tool, agent, arguments, message, answer"

    _book: QuestionBook

    class OpenQuestion(Message):
        """The user wants to see the thread or the run of a question."""

        def __init__(self, target: Target) -> None:
            super().__init__()
            self.target = target

    class FillIn(Message):
        """The user wants to fill in the form of a question."""

        def __init__(self, question: Question) -> None:
            super().__init__()
            self.question = question

    def __init__(
        self,
        book: QuestionBook,
        glyphs: Glyphs,
        clock: Callable[[], float],
        run_of: Callable[[str], FeedRun | None],
    ) -> None:
        super().__init__(book, glyphs, clock)
        self._run_of = run_of
        self._looks = 0
        self._is_new = True
        self._seen: tuple[str, float] = ("", 0.0)
        """The question under the cursor, and since when it is."""

    def on_mount(self) -> None:
        """Show the known questions, then read the current ones."""
        self.set_interval(LOOK_EVERY, self._look)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self._paint()
        self._refresh()

    async def _read_first(self) -> None:
        await super()._read_first()
        if self._is_new and self._is_composed:
            self._is_new = False
            self.rows.action_move_to(0)  # an open one, if there is any

    # Reading

    def _look(self) -> None:
        """Read again when something moved since; times go on. Nothing below another screen."""
        if not self._is_composed or not self.screen.is_active:
            return
        self._looks += 1
        waits = any(each.record.state == "open" for each in self._book.listed[:1])
        if self._book.stale or self._again or (waits and self._looks >= READ_EVERY):
            self._looks = 0
            self._refresh()
        self.rows.set_time(self._clock())
        self._show_details()

    def _was_painted(self, shown: bool) -> None:
        if self._problem and shown:
            self._say(self._problem, Tone.ERROR)
        self._note_seen()
        self._rest()

    def _caption(self) -> list[str]:
        waiting = sum(each.record.state == "open" for each in self._book.listed)
        return [*super()._caption(), f"{waiting} open" if waiting else ""]

    # The selected one

    def selection_changed(self) -> None:
        super().selection_changed()
        self._note_seen()

    def _note_seen(self) -> None:
        record = self.rows.selected
        shown = record.id if record is not None else ""
        if shown != self._seen[0]:
            self._seen = shown, monotonic()

    @property
    def may_answer(self) -> bool:
        """Whether the selected question is open, and was shown long enough to be meant."""
        record = self.rows.selected
        is_meant = (
            record is not None and record.id == self._seen[0] and monotonic() - self._seen[1] >= SHOWN_FOR
        )
        return is_meant and record is not None and record.state == "open"

    def _new_rows(self) -> QuestionList:
        return QuestionList(self._glyphs)

    def _key(self, record: Question) -> Hashable:
        return record.id, record.state

    async def _look_into(self, record: Question) -> tuple[MessageRecord, ...] | None:
        try:
            return await self._book.fleet().said(record.run_id)
        except Fault:
            return ()

    def _context_of(self, record: Question) -> QuestionContext:
        run = self._run_of(record.run_id)
        return QuestionContext(
            self._run_of(record.root) or (run.root if run is not None else None),
            self._within.get(self._key(record), ()),
        )

    def _details(
        self, record: Question, within: tuple[MessageRecord, ...] | None, width: int, height: int
    ) -> list[Line]:
        return details(record, self._context_of(record), width, height, self._clock(), self._glyphs)

    def full_text(self) -> tuple[str, str] | None:
        if (record := self.rows.selected) is None:
            return None
        title = one_line(f"{record.agent} asks: {subject_of(record)}", 80)
        return title, details_text(record, self._context_of(record), self._clock(), self._glyphs)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done with the selected one is offered."""
        if not self._is_composed:
            return True
        record = self.rows.selected
        is_open = record is not None and record.state == "open"
        if action == "always":
            return is_open and record is not None and record.may_be_always
        if action in ("allow", "refuse"):
            return is_open
        if action == "thread":
            return record is not None and bool(record.thread)
        if action in ("run", "full_text", "choose", "copy"):
            return record is not None
        return super().check_action(action, parameters)

    def choose(self) -> None:
        """Fill in the form, or read everything."""
        record = self.rows.selected
        if record is not None and record.kind == "form" and record.state == "open":
            self.post_message(self.FillIn(record))
        else:
            self.action_full_text()

    def action_allow(self) -> None:
        """Allow this one call, or fill in the form."""
        record = self.rows.selected
        if record is not None and record.kind == "form" and record.state == "open":
            self.post_message(self.FillIn(record))
        else:
            self._answer("accept")

    def action_always(self) -> None:
        """Allow the tool for the rest of the thread."""
        self._answer("accept", always=True)

    def action_refuse(self) -> None:
        """Refuse the call, or decline the form."""
        self._answer("decline")

    def _answer(self, action: Action, *, always: bool = False) -> None:
        record = self.rows.selected
        if record is None or record.state != "open":
            return
        if problem := refusal(fleet_of(self)):
            self.notify(problem, severity="warning", markup=False)
        elif self.may_answer:
            self._do(self._answered(record, action, always), "answering")

    async def _answered(self, record: Question, action: Action, always: bool) -> None:
        await self._book.answer(record, action, always=always)
        await self._book.refresh()
        self._paint()
        if self._is_composed and any(each.record.state == "open" for each in self._book.listed[:1]):
            self.rows.action_move_to(0)

    def action_run(self) -> None:
        """Go to its run in the feed."""
        if (record := self.rows.selected) is not None:
            self.post_message(self.OpenQuestion(RunTarget(record.run_id)))

    def action_thread(self) -> None:
        """Open the thread of its outermost run in the chat."""
        if (record := self.rows.selected) is not None and record.thread:
            self._do(self._open_thread(record), "looking for its thread")

    async def _open_thread(self, record: Question) -> None:
        thread = await self._book.thread(record)
        if self._is_composed:
            self.post_message(self.OpenQuestion(ThreadTarget(thread)))

    def action_refresh(self) -> None:
        """Read again."""
        self._say("")
        self._within.clear()
        super().action_refresh()
