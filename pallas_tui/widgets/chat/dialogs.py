"""Small questions over the chat: one line, yes or no, a prompt of those that were kept, several agents."""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.widgets import Input, OptionList, SelectionList, Static
from textual.widgets.option_list import Option
from textual.widgets.selection_list import Selection

from pallas.model import AgentSnapshot, Fault
from pallas.text import one_line

from ...chat.prompts import PromptBook
from ...state import can_answer, reason_of, tone_of
from ...text import UNICODE, Glyphs
from ..tones import DIM, shape

MAX_SIDE: Final = 4
"""Agents that are asked side by side at most."""


class LineScreen(ModalScreen[str | None]):
    """Asks for one line; ends with it, or with None. ``check`` says what is wrong with a line, else nothing.

    A ``secret`` line shows no character of what is typed, offers nothing and is cleared when it is left.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back")]

    def __init__(
        self,
        title: str,
        hint: str,
        value: str = "",
        *,
        secret: bool = False,
        words: Iterable[str] = (),
        check: Callable[[str], str] = lambda text: "",
    ) -> None:
        super().__init__()
        self._title, self._hint, self._check = title, hint, check
        offered = tuple(words)
        self._line = Input(
            value,
            password=secret,
            compact=True,
            suggester=SuggestFromList(offered, case_sensitive=False) if offered else None,
        )

    def compose(self) -> ComposeResult:
        with Vertical(classes="chat-dialog") as box:
            box.border_title = Content(self._title)
            yield self._line
            yield Static(self._hint, markup=False, classes="chat-dialog-hint")

    def on_mount(self) -> None:
        """Write at once."""
        self._line.focus()

    def action_leave(self) -> None:
        """Nothing is wanted after all."""
        self._end(None)

    @on(Input.Submitted)
    def _on_entered(self, event: Input.Submitted) -> None:
        event.stop()
        if problem := self._check(event.value):
            hint = self.query_one(".chat-dialog-hint", Static)
            hint.update(Content(problem))
            hint.add_class("-problem")
        else:
            self._end(event.value)

    def _end(self, text: str | None) -> None:
        if self._line.password:
            self._line.clear()
        self.dismiss(text)


class ConfirmScreen(ModalScreen[bool]):
    """A question with consequences: ``y`` says yes, everything else no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "yes"),
        Binding("escape,n,enter,q", "dismiss(False)", "no"),
    ]

    def __init__(self, title: str, question: str) -> None:
        super().__init__()
        self._title, self._question = title, question

    def compose(self) -> ComposeResult:
        with Vertical(classes="chat-dialog") as box:
            box.border_title = Content(self._title)
            box.border_subtitle = Content("y yes, escape no")
            yield Static(self._question, markup=False)


class PromptsScreen(ModalScreen[str | None]):
    """The prompts that were kept: enter takes one, delete forgets it, a new name keeps ``draft``.

    Ends with the text of the prompt that was taken, or None.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "back"),
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        # Before the line, which would delete a character at the end where there is none.
        Binding("delete,ctrl+d", "delete", "delete", priority=True),
    ]

    def __init__(self, book: PromptBook, draft: str) -> None:
        super().__init__()
        self._book, self._draft = book, draft
        self._sure = ""

    def compose(self) -> ComposeResult:
        with Vertical(classes="chat-dialog -tall") as box:
            box.border_title = Content("Saved prompts")
            box.border_subtitle = Content("enter takes, delete twice forgets, escape leaves")
            yield Input(placeholder="a part of a name, or a new name for what is written", compact=True)
            yield OptionList(compact=True, markup=False)
            yield Static(markup=False, classes="chat-dialog-hint")

    def on_mount(self) -> None:
        """Keys go to the line; it hands up and down to the list."""
        self.query_one(OptionList).can_focus = False
        self.query_one(Input).focus()
        self._fill()
        if self._book.problem:
            self._tell(self._book.problem, problem=True)

    def _fill(self) -> None:
        typed = self.query_one(Input).value.strip()
        words = typed.lower().split()
        rows = [
            Option(
                Content.assemble((f"{each.name}  ", "bold"), (one_line(each.text, 200), DIM)),
                id=f"p{each.name}",
            )
            for each in self._book.prompts
            if all(word in f"{each.name} {each.text}".lower() for word in words)
        ]
        if typed and self._draft.strip():
            rows.append(Option(Content(f"keep what is written as: {one_line(typed, 60)}"), id="+"))
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(rows)
        options.highlighted = 0 if rows else None
        if rows:
            self._tell("")
        elif self._draft.strip():
            self._tell("Type a name to keep what is written in the prompt.")
        else:
            self._tell("Nothing is kept. Write a prompt, come here and give it a name.")

    def _tell(self, text: str, *, problem: bool = False) -> None:
        hint = self.query_one(".chat-dialog-hint", Static)
        hint.update(Content(text))
        hint.set_class(problem, "-problem")

    def action_move(self, by: int) -> None:
        """Highlight another one."""
        options = self.query_one(OptionList)
        options.action_cursor_up() if by < 0 else options.action_cursor_down()
        self._sure = ""

    def action_delete(self) -> None:
        """Forget the highlighted prompt, when asked twice."""
        option = self.query_one(OptionList).highlighted_option
        if option is None or option.id is None or option.id == "+":
            return
        name = option.id[1:]
        if self._sure != name:
            self._sure = name
            self._tell(f"delete again forgets {name}", problem=True)
            return
        try:
            self._book.delete(name)
        except Fault as fault:
            self._tell(fault.message, problem=True)
        else:
            self._fill()

    @on(Input.Changed)
    def _on_typed(self, event: Input.Changed) -> None:
        event.stop()
        self._sure = ""
        self._fill()

    @on(Input.Submitted)
    def _on_entered(self, event: Input.Submitted) -> None:
        event.stop()
        self._take(self.query_one(OptionList).highlighted_option)

    @on(OptionList.OptionSelected)
    def _on_clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._take(event.option)

    def _take(self, option: Option | None) -> None:
        if option is None or option.id is None:
            return
        if option.id != "+":
            self.dismiss(next(each.text for each in self._book.prompts if each.name == option.id[1:]))
            return
        name = self.query_one(Input).value
        try:
            self._book.save(name, self._draft)
        except Fault as fault:
            self._tell(fault.message, problem=True)
        else:
            self.app.notify(f"Kept as {one_line(name, 60)}.", markup=False)
            self.dismiss(None)


class SideScreen(ModalScreen[tuple[str, ...] | None]):
    """Which agents to ask side by side: two to four. Ends with their names, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "back"),
        Binding("enter", "done", "begin", priority=True),
    ]

    def __init__(self, agents: Sequence[AgentSnapshot], chosen: str, glyphs: Glyphs = UNICODE) -> None:
        super().__init__()
        self._agents, self._chosen, self._glyphs = agents, chosen, glyphs

    def compose(self) -> ComposeResult:
        with Vertical(classes="chat-dialog -tall") as box:
            box.border_title = Content("Ask side by side")
            box.border_subtitle = Content("space chooses, enter begins, escape leaves")
            yield SelectionList[str](
                *(Selection(self._line(each), each.name, each.name == self._chosen) for each in self._agents),
                compact=True,
            )
            yield Static("Two to four agents.", markup=False, classes="chat-dialog-hint")

    def _line(self, agent: AgentSnapshot) -> Content:
        about = (
            agent.description or agent.title if can_answer(agent) else reason_of(agent) or agent.state.value
        )
        return Content.assemble(
            shape(tone_of(agent), self._glyphs), (f" {agent.name}  ", ""), (one_line(about, 80), DIM)
        )

    def action_done(self) -> None:
        """Begin with those that were chosen."""
        chosen = tuple(self.query_one(SelectionList).selected)
        if 2 <= len(chosen) <= MAX_SIDE:
            self.dismiss(chosen)
        else:
            hint = self.query_one(".chat-dialog-hint", Static)
            hint.update(Content(f"Two to four agents: {len(chosen)} chosen. Space chooses and takes back."))
            hint.add_class("-problem")
