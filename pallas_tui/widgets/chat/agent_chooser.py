"""The chooser of the agent to talk to."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from pallas.model import AgentSnapshot

from ...actions import bindings
from ...state import can_answer, reason_of, tone_of
from ...text import UNICODE, Glyphs
from ..tones import DIM, shape


class AgentChooser(Vertical):
    """The agents with their shapes, filtered as the user types; enter chooses."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("chooser")

    class AgentChosen(Message):
        """An agent was chosen."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(
        self,
        glyphs: Glyphs = UNICODE,
        hint: str = "",
        *,
        id: str | None = None,  # noqa: A002 - Textual's word
    ) -> None:
        super().__init__(classes="chat-chooser", id=id)
        self._glyphs = glyphs
        self._hint = hint
        self._agents: tuple[AgentSnapshot, ...] = ()
        self._shown: tuple[AgentSnapshot, ...] = ()
        self._front = ""
        self.touched = False
        self.is_entered = False
        """Whether enter was pressed on the text of the filter before there was any agent to choose."""
        self._is_chosen = False

    def compose(self) -> ComposeResult:
        yield Input(placeholder="type a part of the name", compact=True)
        yield OptionList(compact=True, markup=False)
        if self._hint:
            yield Static(self._hint, classes="chat-chooser-hint")
        yield Static(classes="chat-chooser-empty")

    def on_mount(self) -> None:
        """Focus the filter; it passes up and down to the list."""
        self.query_one(OptionList).can_focus = False
        self._fill()

    def show(self, agents: tuple[AgentSnapshot, ...], front: str = "") -> None:
        """List these agents, if they are not listed already; the highlight stays.

        ``front`` gets the text of the filter, once it is ready, when that matches no agent: see ``take``.
        """
        if (agents, front) != (self._agents, self._front):
            self._agents, self._front = agents, front
            if self.is_mounted:
                self._fill()
                if self.is_entered and not self._is_chosen:
                    self._is_chosen = self._choose()

    @property
    def question(self) -> str:
        """The text of the filter when it cannot be the name of an agent, else empty."""
        text = self.query_one(Input).value if self.is_mounted else ""
        return text if text.strip() and not self._shown else ""

    def take(self) -> str:
        """Return ``question`` and clear the filter."""
        text, self.is_entered, self._is_chosen = self.question, False, False
        if text:
            self.query_one(Input).clear()
        return text

    def focus_filter(self) -> None:
        """Focus the filter."""
        self.query_one(Input).focus()

    def action_move(self, by: int) -> None:
        """Highlight another agent."""
        self.touched = True
        options = self.query_one(OptionList)
        if by < 0:
            options.action_cursor_up()
        else:
            options.action_cursor_down()

    def _fill(self) -> None:
        words = self.query_one(Input).value.lower().split()
        shown = tuple(
            agent
            for agent in self._agents
            if all(word in f"{agent.name} {agent.title}".lower() for word in words)
        )
        options = self.query_one(OptionList)
        if [agent.name for agent in shown] == [agent.name for agent in self._shown]:
            for index, (old, new) in enumerate(zip(self._shown, shown, strict=True)):
                if old != new:
                    options.replace_option_prompt_at_index(index, self._line(new))
        else:
            highlighted = options.highlighted_option.id if options.highlighted_option else None
            options.clear_options()
            options.add_options(Option(self._line(agent), id=agent.name) for agent in shown)
            names = [agent.name for agent in shown]
            if names:
                options.highlighted = names.index(highlighted) if highlighted in names else 0
        self._shown = shown
        for hint in self.query(".chat-chooser-hint"):
            hint.display = bool(shown)
        empty = self.query_one(".chat-chooser-empty", Static)
        empty.display = not shown
        if self._front and words:
            empty.update(
                Content(
                    f"No agent has that in its name: {self._front} gets it as text once it is ready. "
                    "Enter sends it then."
                )
            )
        elif self._agents:
            empty.update("No agent has that in its name.")
        elif self.is_entered and self._hint:
            empty.update("The fleet has no agents yet. What you wrote is sent once there is one to talk to.")
        else:
            empty.update("The fleet has no agents yet. They appear here while it starts.")

    def _line(self, agent: AgentSnapshot) -> Content:
        about = reason_of(agent) if not can_answer(agent) else agent.description or agent.title
        if not about:
            about = agent.state.value
        return Content.assemble(
            shape(tone_of(agent), self._glyphs), (f" {agent.name:<16} ", ""), (about.split("\n")[0], DIM)
        )

    @on(Input.Changed)
    def _on_typed(self, event: Input.Changed) -> None:
        event.stop()
        self.touched = self.touched or bool(event.value)
        self.is_entered = self._is_chosen = False
        self._fill()

    @on(Input.Submitted)
    def _on_entered(self, event: Input.Submitted) -> None:
        event.stop()
        if self._agents:
            self._choose()
        else:
            self.is_entered = bool(self.question)
            self._fill()

    def _choose(self) -> bool:
        """Choose the highlighted agent, else the front agent for a question; return whether there is one."""
        option = self.query_one(OptionList).highlighted_option
        name = option.id if option is not None else self._front if self.question else ""
        if name:
            self.post_message(self.AgentChosen(name))
        return bool(name)

    @on(OptionList.OptionSelected)
    def _on_clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option.id is not None:
            self.post_message(self.AgentChosen(event.option.id))


class ChooserScreen(ModalScreen[str | None]):
    """The chooser as a modal; returns the agent's name, or None."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("chooser_screen")

    def __init__(self, agents: tuple[AgentSnapshot, ...], glyphs: Glyphs = UNICODE) -> None:
        super().__init__()
        self._chooser = AgentChooser(glyphs)
        self._chooser.show(agents)

    def compose(self) -> ComposeResult:
        with Vertical(id="chat-chooser-box") as box:
            box.border_title = "Talk to"
            box.border_subtitle = "enter chooses, escape leaves"
            yield self._chooser

    def on_mount(self) -> None:
        """Focus the filter."""
        self._chooser.focus_filter()

    def show(self, agents: tuple[AgentSnapshot, ...]) -> None:
        """Update the agents while the list is open."""
        self._chooser.show(agents)

    @on(AgentChooser.AgentChosen)
    def _on_chosen(self, event: AgentChooser.AgentChosen) -> None:
        event.stop()
        self.dismiss(event.name)
