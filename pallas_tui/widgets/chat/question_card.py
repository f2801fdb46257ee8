"""The question that the run of a conversation waits for, below its transcript, to be answered there."""

from dataclasses import replace
from time import monotonic
from typing import Any, ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from pallas.model import Fault
from pallas.model.questions import Question
from pallas.safe_text import one_line

from ...actions import binding, bindings, keys_of
from ...records.question_book import Action, QuestionBook
from ...records.question_text import subject_of
from ...state import Tone
from ...text import Glyphs, Line, count
from ..agents.agent_control import fleet_of, refusal
from ..button_bar import Bar, Button
from ..list_pane import ShowText
from ..questions.question_list import time_left
from ..questions.question_view import QuestionContext, asked_parts, asker_text, details_text, wrapped_code
from ..questions.questions_pane import SHOWN_FOR
from ..tones import DIM, KEY, STRONG, STYLES, shape

_MOST: Final = 8
"""Lines of a question; a terminal of 24 lines has half of them."""
_OFFERS: Final = (
    ("questions.allow", "allow once"),
    ("questions.refuse", "refuse"),
    ("questions.always", "always"),
    ("questions.details", "all"),
)
_OF_FORM: Final = {"questions.allow": "fill in", "questions.refuse": "decline"}


class CardKeys(Bar):
    """The keys of the card; a click on one goes to the card and presses it."""

    def on_click(self, event: events.Click) -> None:
        """Take the keys there first: elsewhere they are letters."""
        if isinstance(self.parent, QuestionCard):
            self.screen.set_focus(self.parent)
        super().on_click(event)


class QuestionCard(Vertical, can_focus=True):
    """Shows the oldest of the open questions of a conversation; hidden while there is none.

    It never takes the focus by itself: a key that the user meant for the prompt must not answer.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        *(binding(action_id) for action_id, _ in _OFFERS),
        *bindings("question_card"),
    ]

    class CardLeft(Message):
        """The user goes back to the prompt, or the question that had the focus is over."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(classes="chat-question")
        self.display = False
        self.question: Question | None = None
        self._glyphs = glyphs
        self._more, self._now, self._since = 0, 0.0, 0.0
        self._text = Static(markup=False)
        self._keys = CardKeys()
        self._shown: object = None

    def compose(self) -> ComposeResult:
        yield self._text
        yield self._keys

    def show(self, waiting: list[Question], now: float) -> None:
        """Show the first of these questions as of ``now``; none hides the card."""
        question = next(iter(waiting), None)
        changed = (question.id if question else "") != (self.question.id if self.question else "")
        self.question, self._more, self._now = question, len(waiting) - 1, now
        if changed:
            self._since = monotonic()
            self.refresh_bindings()
        if question is None and self.display and self.has_focus:
            self.post_message(self.CardLeft())
        self.display = question is not None
        self._draw()

    def on_resize(self) -> None:
        """What fits depends on the width."""
        self._draw()

    def _draw(self) -> None:
        question, width = self.question, self.content_size.width
        if question is None or not width:
            return
        lines = [self._heading(question), *self._asked(question, width)]
        if (new := (lines, width, question.kind)) != self._shown:
            self._shown = new
            self._text.update(Content("\n").join(Content.assemble(*line) for line in lines))
            self._keys.put(self._offers(question))

    def _heading(self, question: Question) -> Line:
        more = f"  and {count(self._more, 'more question')}" if self._more else ""
        return (
            shape(Tone.DEGRADED, self._glyphs),
            (f" {asker_text(question, self._glyphs)}", STRONG),
            (" asks you" if question.kind == "approval" else " wants a form filled in", ""),
            (f"  {time_left(question, self._now)}", STYLES[Tone.DEGRADED]),
            (more, DIM),
        )

    def _asked(self, question: Question, width: int) -> list[Line]:
        lines: list[Line] = []
        for text, style in asked_parts(question, width - 2):
            lines += [((f"  {line}", style),) for line in wrapped_code(text, width - 2)]
        most = min(_MOST, max(3, self.screen.size.height // 6))
        if len(lines) > most:
            rest = len(lines) - most + 1
            lines[most - 1 :] = [((f"  {self._glyphs.ellipsis} {count(rest, 'more line')}", DIM),)]
        return lines

    def _offers(self, question: Question) -> tuple[Button, ...]:
        of_form = _OF_FORM if question.kind == "form" else {}
        return tuple(
            Button(
                ((f"  {self._display(action_id, key)}", KEY), (f" {of_form.get(action_id, word)}", DIM)), key
            )
            for action_id, word in _OFFERS
            if self._may(action_id.partition(".")[2]) and (key := self._key(action_id))
        )

    def _key(self, action_id: str) -> str:
        settings = getattr(self.app, "settings", None)
        return keys_of(action_id, settings.keys if settings is not None else {}).partition(",")[0]

    def _display(self, action_id: str, key: str) -> str:
        return self.app.get_key_display(replace(binding(action_id), key=key))

    # Keys

    @property
    def may_answer(self) -> bool:
        """Whether the question was shown long enough to be meant."""
        return self.question is not None and monotonic() - self._since >= SHOWN_FOR

    def _may(self, action: str) -> bool:
        question = self.question
        if action == "always":
            return question is not None and question.kind == "approval"
        return question is not None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done with this question is offered."""
        return self._may(action)

    def action_allow(self) -> None:
        """Allow this one call, or fill in the form."""
        question = self.question
        if question is not None and question.kind == "form":
            fill_in: Any = getattr(self.app, "fill_in", None)
            if fill_in is not None:
                fill_in(question)
        else:
            self._answer("accept")

    def action_always(self) -> None:
        """Allow the tool for the rest of the thread."""
        self._answer("accept", always=True)

    def action_refuse(self) -> None:
        """Refuse the call, or decline the form."""
        self._answer("decline")

    def action_full_text(self) -> None:
        """Read everything about the question."""
        if (question := self.question) is not None:
            run_of: Any = getattr(self.app, "run_of", lambda run_id: None)
            context = QuestionContext(run_of(question.root))
            title = one_line(f"{question.agent} asks: {subject_of(question)}", 80)
            self.post_message(ShowText(title, details_text(question, context, self._now, self._glyphs)))

    def action_leave(self) -> None:
        """Go back to the prompt."""
        self.post_message(self.CardLeft())

    def _answer(self, action: Action, *, always: bool = False) -> None:
        question, book = self.question, getattr(self.app, "questions", None)
        if question is None or not isinstance(book, QuestionBook) or not self.may_answer:
            return
        if problem := refusal(fleet_of(self)):
            self.app.notify(problem, severity="warning", markup=False)
            return

        async def answer() -> None:
            try:
                await book.answer(question, action, always=always)
            except Fault as fault:
                self.app.notify(fault.message, severity="error", markup=False)

        self.app.run_worker(answer(), group="answer", description="answer a question")
