"""Small dialogs over the chat: yes or no, the saved prompts, several agents."""

from collections.abc import Sequence
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from pallas.model import AgentSnapshot, Fault
from pallas.safe_text import one_line

from ...actions import bindings
from ...chat.saved_prompts import PromptBook
from ...state import can_answer, reason_of, tone_of
from ...text import UNICODE, Glyphs
from ..tones import DIM, shape

MAX_SIDE: Final = 4
"""Agents that can be asked side by side."""


class ConfirmScreen(ModalScreen[bool]):
    """A question with consequences: ``y`` says yes, any other key no."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("confirm")

    def __init__(self, title: str, question: str) -> None:
        super().__init__()
        self._title, self._question = title, question

    def compose(self) -> ComposeResult:
        with Vertical(classes="chat-dialog") as box:
            box.border_title = Content(self._title)
            box.border_subtitle = Content("y yes, escape no")
            yield Static(self._question, markup=False)


class PromptsScreen(ModalScreen[str | None]):
    """The saved prompts: enter takes one, delete deletes it, a new name saves ``draft``.

    Returns the text of the chosen prompt, or None.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("prompts")

    def __init__(self, book: PromptBook, draft: str) -> None:
        super().__init__()
        self._book, self._draft = book, draft
        self._sure = ""

    def compose(self) -> ComposeResult:
        with Vertical(classes="chat-dialog -tall") as box:
            box.border_title = Content("Saved prompts")
            box.border_subtitle = Content("enter inserts, delete twice deletes, escape leaves")
            yield Input(placeholder="a part of a name, or a new name for what is written", compact=True)
            yield OptionList(compact=True, markup=False)
            yield Static(markup=False, classes="chat-dialog-hint")

    def on_mount(self) -> None:
        """Focus the line; it passes up and down to the list."""
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
            rows.append(Option(Content(f"save the prompt as: {one_line(typed, 60)}"), id="+"))
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(rows)
        options.highlighted = 0 if rows else None
        if rows:
            self._tell("")
        elif self._draft.strip():
            self._tell("Type a name to save the prompt under.")
        else:
            self._tell("No prompts are saved. Write one, come here and give it a name.")

    def _tell(self, text: str, *, problem: bool = False) -> None:
        hint = self.query_one(".chat-dialog-hint", Static)
        hint.update(Content(text))
        hint.set_class(problem, "-problem")

    def action_move(self, by: int) -> None:
        """Highlight another prompt."""
        options = self.query_one(OptionList)
        options.action_cursor_up() if by < 0 else options.action_cursor_down()
        self._sure = ""

    def action_delete(self) -> None:
        """Delete the highlighted prompt, when asked twice."""
        option = self.query_one(OptionList).highlighted_option
        if option is None or option.id is None or option.id == "+":
            return
        name = option.id[1:]
        if self._sure != name:
            self._sure = name
            self._tell(f"delete again deletes {name}", problem=True)
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
    """The choice of two to four agents to ask side by side. Returns their names, or None."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("side", "vim")

    def __init__(self, agents: Sequence[AgentSnapshot], chosen: str, glyphs: Glyphs = UNICODE) -> None:
        super().__init__()
        self._agents, self._glyphs = tuple(agents), glyphs
        self._chosen = [each.name for each in agents if each.name == chosen]

    def compose(self) -> ComposeResult:
        with Vertical(classes="chat-dialog -tall") as box:
            box.border_title = Content("Ask side by side")
            box.border_subtitle = Content("space chooses, enter begins, escape leaves")
            yield OptionList(
                *(Option(self._line(each), each.name) for each in self._agents), compact=True, markup=False
            )
            yield Static("Two to four agents.", markup=False, classes="chat-dialog-hint")

    def on_mount(self) -> None:
        """Highlight the first agent."""
        self.query_one(OptionList).highlighted = 0 if self._agents else None

    def show(self, agents: Sequence[AgentSnapshot]) -> None:
        """Update the agents while the list is open; new agents are not added."""
        known = {each.name: each for each in agents}
        for index, old in enumerate(self._agents):
            if (new := known.get(old.name, old)) != old:
                self._agents = (*self._agents[:index], new, *self._agents[index + 1 :])
                if self.is_mounted:
                    self._paint(index)

    def _line(self, agent: AgentSnapshot) -> Content:
        about = (
            agent.description or agent.title if can_answer(agent) else reason_of(agent) or agent.state.value
        )
        # A mark, since colour alone must not show the choice.
        return Content.assemble(
            ("[x] " if agent.name in self._chosen else "[ ] ", ""),
            shape(tone_of(agent), self._glyphs),
            (f" {agent.name}  ", ""),
            (one_line(about, 80), DIM),
        )

    def _paint(self, index: int) -> None:
        self.query_one(OptionList).replace_option_prompt_at_index(index, self._line(self._agents[index]))

    def action_mark(self) -> None:
        """Choose the agent under the cursor, or undo that."""
        index = self.query_one(OptionList).highlighted
        if index is None:
            return
        name = self._agents[index].name
        if name in self._chosen:
            self._chosen.remove(name)
        else:
            self._chosen.append(name)
        self._paint(index)
        self._count()

    @on(OptionList.OptionSelected)
    def _on_clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_mark()

    def _count(self, *, wrong: bool = False) -> None:
        number = len(self._chosen)
        hint = self.query_one(".chat-dialog-hint", Static)
        hint.update(Content(f"Two to four agents: {number} chosen. Space chooses one or removes it."))
        hint.set_class(wrong or number > MAX_SIDE, "-problem")

    def action_done(self) -> None:
        """Close with the chosen agents, in the order of the list."""
        chosen = tuple(each.name for each in self._agents if each.name in self._chosen)
        if 2 <= len(chosen) <= MAX_SIDE:
            self.dismiss(chosen)
        else:
            self._count(wrong=True)
