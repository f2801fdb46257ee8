"""The form of a question: what a server, a handler or a worker wants filled in."""

import json
from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from pallas.model import Fault
from pallas.model.questions import Question

from ...actions import binding, bindings
from ...forms import Form
from ...records.question_book import Action, QuestionBook
from ...text import Glyphs
from ..agents.agent_control import fleet_of, refusal
from ..form.field_keys import FieldKeys
from ..form.form_view import summary
from ..pane import PaneLeft
from ..tones import DIM, KEY, STRONG
from .question_list import time_left
from .question_view import asker_text

_TICK = 1.0
_OF_FIELDS = ("edit", "next", "unset", "null", "empty", "default", "add", "variant", "json", "fold", "unfold")


class QuestionFormPane(FieldKeys):
    """Fields of a question's schema. It is left once the question is answered, here or elsewhere."""

    TITLE = "Form"
    HELP = """\
A form that a server, a handler or a worker wants filled in; its run waits. Each line is a field: **enter**
edits it or chooses, **delete** sends nothing for it. A `*` marks a required field.

**c** (while you write `ctrl+r`) sends the form, **x** declines it. **escape** goes back and answers nothing.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("question_form"),
        *(binding(f"tool.{action}") for action in _OF_FIELDS),
    ]
    SECTIONS: ClassVar[tuple[str, ...]] = ("form",)

    def __init__(
        self, question: Question, book: QuestionBook, glyphs: Glyphs, clock: Callable[[], float]
    ) -> None:
        super().__init__(Form(json.dumps(dict(question.schema))), glyphs, id="question-form")
        self.question = question
        self._book, self._clock = book, clock
        self._is_answering = False

    def compose(self) -> ComposeResult:
        yield Static(id="question-message", markup=False)
        with Vertical(id="tool-form"):
            yield from self.compose_fields()
        yield Static(id="tool-status", markup=False)

    def on_mount(self) -> None:
        """Begin with the first field that must be filled in."""
        self.begin_fields()
        self.set_interval(_TICK, self._tick)
        self._tick()

    def form_changed(self) -> None:
        super().form_changed()
        self._tell()

    def focus_pane(self) -> None:
        self.focus_fields()

    def action_section(self, name: str) -> None:
        """There is one section."""

    def _tick(self) -> None:
        question = self.question
        server = f", for the server {question.server}" if question.server else ""
        self.query_one("#question-message", Static).update(
            Content.assemble(
                (question.message or "A form to fill in.", STRONG),
                (f"\n{asker_text(question, self.glyphs)}{server}  {time_left(question, self._clock())}", DIM),
            )
        )
        if not self._is_answering and question.id in self._book.ended:
            self.notify("This question was answered elsewhere, or its run ended.", markup=False)
            self.post_message(PaneLeft())

    def _tell(self) -> None:
        words = summary(len(self.form.mistakes.fields), self.form.mistakes.note)
        parts = [(words, "$text-warning")] if words else [("c", KEY), (" sends it", DIM)]
        self.query_one("#tool-status", Static).update(Content.assemble(*parts), layout=False)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The keys of a field work while none is written."""
        if not self.is_mounted:
            return True
        return not (self.writing and (action in self.OF_FIELDS or action == "decline"))

    def action_submit(self) -> None:
        """Send the form, once it is as its schema says."""
        if not self.finish_writing():
            return
        mistakes = self.form.mistakes
        if mistakes.fields:
            self.notify(
                f"{summary(len(mistakes.fields), '').capitalize()}.", severity="warning", markup=False
            )
            self.fields.select(next(iter(mistakes.fields)))
        else:
            self._answer("accept", dict(self.form.value))

    def action_decline(self) -> None:
        """Fill in nothing; the asker gets that as the answer."""
        self._answer("decline")

    def action_leave(self) -> None:
        """Go back; the question stays open."""
        self.post_message(PaneLeft())

    def _answer(self, action: Action, content: dict[str, Any] | None = None) -> None:
        if problem := refusal(fleet_of(self)):
            self.notify(problem, severity="warning", markup=False)
        elif not self._is_answering:
            self._is_answering = True
            self.app.run_worker(self._answered(action, content), group="answer", description="answer")

    async def _answered(self, action: Action, content: dict[str, Any] | None) -> None:
        try:
            await self._book.answer(self.question, action, content=content)
        except Fault as fault:
            self.app.notify(fault.message, severity="error", markup=False)
        else:
            if self.is_attached:
                self.post_message(PaneLeft())
        finally:
            self._is_answering = False
