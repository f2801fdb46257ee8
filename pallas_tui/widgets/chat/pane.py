"""The chat pane: conversations with agents as tabs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import ContentSwitcher

from pallas.model import AgentSnapshot
from pallas.text import one_line

from ...chat.history import PromptHistory
from ...chat.model import last_answer
from ...client import AgentClient
from ...clipboard import copy
from ...frame import Frame
from ...state import Tone, can_answer, tone_of
from ...text import UNICODE, Glyphs
from ..pane import Pane
from ..tones import shape
from .chooser import AgentChooser, ChooserScreen
from .markdown import AnswerMarkdown
from .tabs import Tab, TabStrip
from .view import Connect, ConversationView, Desk

MAX_TABS: Final = 20


class ChatPane(Pane):
    """Talk to agents over MCP, as any other client would."""

    TITLE = "Chat"
    HELP = """\
Write to an agent and watch it answer. **Enter** sends, **alt+enter** (or ctrl+j) breaks the line; up and
down at the edges of the text go through what you sent before.

The line above the prompt says what the agent does now. **ctrl+k** cancels, **escape** twice does too;
what was received so far stays.

**ctrl+o** attaches an image by its path; dropping or pasting the path of an image file does the same.
Backspace in an empty prompt takes the last one away.

**ctrl+t** opens another conversation. Each tab is one of its own: the agent remembers what was said in
it, and nothing of the others. Agents of attached instances stand there too, with `@` and where they run.

**Escape** in the prompt goes to the transcript. There, **j** and **k** point at a message, **y** copies
it (without one: the last answer), **enter** goes back to the prompt. **ctrl+r** sends again what failed.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "ctrl+k", "cancel", "cancel", priority=True, id="chat.cancel", tooltip="Cancel the run in flight"
        ),
        Binding("ctrl+t", "choose", "new", id="chat.new", tooltip="Another conversation, with any agent"),
        Binding("ctrl+o", "attach", "image", id="chat.attach", tooltip="Attach an image by its path"),
        Binding(
            "y", "copy", "copy", id="chat.copy", tooltip="Copy the message pointed at, or the last answer"
        ),
        Binding("ctrl+r,r", "retry", "again", id="chat.retry", tooltip="Send again what failed"),
        Binding("enter,i", "write", "Write", show=False, id="chat.write", tooltip="Go to the prompt"),
        Binding("escape", "back", "Back", show=False, id="chat.back", tooltip="Leave the prompt"),
        Binding("ctrl+pagedown,right_square_bracket", "tab(1)", "Next", show=False, id="chat.next"),
        Binding("ctrl+pageup,left_square_bracket", "tab(-1)", "Previous", show=False, id="chat.previous"),
        Binding("alt+w", "close_tab", "Close", show=False, id="chat.close", tooltip="Close the conversation"),
    ]

    def __init__(
        self,
        glyphs: Glyphs | None = None,
        *,
        id: str = "chat",  # noqa: A002 - Textual's word
        connect: Connect = AgentClient,
        base: Path | None = None,
        stopwatch: Callable[[], float] = monotonic,
    ) -> None:
        """``connect`` makes the client of a conversation; ``base`` is where relative image paths begin.

        Without ``glyphs`` those of the application are taken.
        """
        super().__init__(id=id)
        self._desk = Desk(
            connect, PromptHistory(), glyphs or UNICODE, base or Path.cwd(), lambda: self._now, stopwatch
        )
        self._own_glyphs = glyphs is None
        self._now = 0.0
        self._own: tuple[AgentSnapshot, ...] = ()
        self._agents: tuple[AgentSnapshot, ...] = ()
        self._views: list[ConversationView] = []
        self._current: ConversationView | None = None
        self._opened = 0

    def compose(self) -> ComposeResult:
        if self._own_glyphs:
            self._desk = replace(self._desk, glyphs=getattr(self.app, "glyphs", UNICODE))
        hint = "enter begins a conversation with one that is ready"
        self._strip = TabStrip(self._glyphs)
        self._start = AgentChooser(self._glyphs, hint, id="chat-start")
        self._switcher = ContentSwitcher(self._start, initial="chat-start")
        yield self._strip
        yield self._switcher

    @property
    def _glyphs(self) -> Glyphs:
        return self._desk.glyphs

    # What the screen tells

    def absorb(self, frame: Frame) -> None:
        self._now, self._own = frame.now, frame.snapshot.agents
        self._agents = (*self._own, *frame.attached)
        if self.is_showing:
            self._paint()

    def show_pane(self) -> None:
        super().show_pane()
        self._activate()
        self._paint()

    def hide_pane(self) -> None:
        super().hide_pane()
        self._activate()

    def focus_pane(self) -> None:
        if self._current is not None:
            self._current.focus_prompt()
        else:
            self._start.focus_filter()

    def open_agent(self, name: str) -> None:
        """Go to the conversation with that agent, the newest if there are several, or begin one."""
        for view in reversed(self._views):
            if view.conversation.agent == name:
                self._switch(view, wanted=True)
                return
        self.new_conversation(name, wanted=True)

    def new_conversation(self, name: str, *, wanted: bool = False) -> None:
        """Begin another conversation and go there; ``wanted`` when a person asked, who writes next."""
        if len(self._views) >= MAX_TABS:
            self.app.notify(
                f"{MAX_TABS} conversations are open; close one first (alt+w).",
                severity="warning",
                markup=False,
            )
            return
        self._opened += 1
        view = ConversationView(name, self._desk)
        view.id = f"conversation-{self._opened}"
        self._views.append(view)
        self.run_worker(self._mount(view, wanted), group="open", description=f"open a chat with {name}")

    async def _mount(self, view: ConversationView, wanted: bool) -> None:
        await self._switcher.add_content(view)
        if self.app.is_running and view.is_attached:
            self._switch(view, wanted=wanted)

    # The screen

    def _paint(self) -> None:
        for view in self._views:
            if view.is_mounted:
                view.see(self._agent_of(view))
        if not self._views:
            self._start.show(self._agents)
            if not self._opened and not self._start.touched and (front := front_agent(self._own)):
                self.new_conversation(front)
        if isinstance(self.app.screen, ChooserScreen):
            self.app.screen.show(self._agents)
        self._show_tabs()

    def _show_tabs(self) -> None:
        tabs = tuple(self._tab(view) for view in self._views)
        active = self._views.index(self._current) if self._current in self._views else 0
        self._strip.show(tabs, active)
        agent = self._agent_of(self._current) if self._current is not None else None
        self.caption = one_line(agent.model, 60) if agent is not None else ""

    def _tab(self, view: ConversationView) -> Tab:
        conversation = view.conversation
        same = [each for each in self._views if each.conversation.agent == conversation.agent]
        name = conversation.agent if len(same) == 1 else f"{conversation.agent} {same.index(view) + 1}"
        agent = self._agent_of(view)
        mark = (
            self._glyphs.ellipsis
            if conversation.run
            else f"({conversation.unread})"
            if conversation.unread
            else ""
        )
        return Tab(shape(tone_of(agent) if agent else Tone.STOPPED, self._glyphs), name, mark)

    def _agent_of(self, view: ConversationView) -> AgentSnapshot | None:
        return next((agent for agent in self._agents if agent.name == view.conversation.agent), None)

    def _switch(self, view: ConversationView, *, wanted: bool = False) -> None:
        if view not in self._views:
            return
        inside = wanted or self.has_focus_within or self.app.focused is None
        self._current = view
        self._switcher.current = view.id
        self._activate()
        if self.is_showing:
            self._paint()
            if inside:
                view.focus_prompt()

    def _activate(self) -> None:
        for view in self._views:
            view.set_active(self.is_showing and view is self._current)

    @on(ConversationView.Changed)
    def _on_changed(self, event: ConversationView.Changed) -> None:
        event.stop()
        if self.is_showing:
            self._show_tabs()

    @on(ConversationView.Finished)
    def _on_finished(self, event: ConversationView.Finished) -> None:
        event.stop()
        if self.is_showing and event.view is self._current:
            event.view.conversation.unread = 0
        elif event.view in self._views:
            conversation = event.view.conversation
            if conversation.entries[-1].role == "error":
                self.app.notify(f"{conversation.agent} could not answer.", severity="error", markup=False)
            else:
                self.app.notify(f"{conversation.agent} has answered.", markup=False)

    @on(TabStrip.Chosen)
    def _on_tab(self, event: TabStrip.Chosen) -> None:
        event.stop()
        self._switch(self._views[event.index])

    @on(TabStrip.Wanted)
    def _on_wanted(self, event: TabStrip.Wanted) -> None:
        event.stop()
        self.action_choose()

    @on(AgentChooser.Chosen)
    def _on_chosen(self, event: AgentChooser.Chosen) -> None:
        event.stop()
        self.new_conversation(event.name)

    @on(AnswerMarkdown.LinkTaken)
    async def _on_link(self, event: AnswerMarkdown.LinkTaken) -> None:
        # Never opened from here: an agent's text decides where a link leads, a person whether to go.
        event.stop()
        said = await copy(self.app, event.href)
        self.app.notify(f"{said} It is a link: {event.href}", markup=False)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """ctrl+k is the text area's own key while nothing runs; copying and the like need a conversation."""
        view = self._current
        if action == "cancel":
            return view is not None and view.conversation.run is not None
        if action == "retry":
            return view is not None and view.conversation.can_retry
        if action in ("attach", "back", "write", "copy", "tab", "close_tab"):
            return view is not None
        return True

    def action_choose(self) -> None:
        """Choose an agent for another conversation."""

        def chosen(name: str | None) -> None:
            if name is not None:
                self.new_conversation(name, wanted=True)

        self.app.push_screen(ChooserScreen(self._agents, self._glyphs), chosen)

    def action_cancel(self) -> None:
        """Cancel the run in flight."""
        if self._current is not None:
            self._current.cancel()

    def action_attach(self) -> None:
        """Attach an image by its path."""
        if self._current is not None:
            self._current.attach()

    def action_back(self) -> None:
        """One step back: ask to cancel a run, point at no message, leave the prompt."""
        if self._current is None or self._current.ask_to_cancel():
            return
        transcript = self._current.transcript
        if not transcript.unselect():
            transcript.focus()

    def action_write(self) -> None:
        """Go to the prompt."""
        if self._current is not None:
            self._current.focus_prompt()

    async def action_copy(self) -> None:
        """Copy the message that is pointed at, else the last answer."""
        if self._current is None:
            return
        pointed = self._current.transcript.selected
        entry = pointed.entry if pointed is not None else last_answer(self._current.conversation.entries)
        self.app.notify(await copy(self.app, entry.text if entry else ""), markup=False)

    def action_retry(self) -> None:
        """Send the last question again after it failed or was cancelled."""
        if self._current is not None:
            self._current.retry()

    def action_tab(self, by: int) -> None:
        """Go to the next or previous conversation."""
        if self._current in self._views:
            self._switch(self._views[(self._views.index(self._current) + by) % len(self._views)])

    async def action_close_tab(self) -> None:
        """Close the conversation; a run in it is cancelled."""
        view = self._current
        if view is None or view not in self._views:
            return
        index = self._views.index(view)
        self._views.remove(view)
        self._current = self._views[min(index, len(self._views) - 1)] if self._views else None
        if self._current is not None:
            self._switch(self._current)
        else:
            self._switcher.current = "chat-start"
            self._paint()
            self.focus_pane()
        await view.remove()


def front_agent(agents: tuple[AgentSnapshot, ...]) -> str | None:
    """Whom to open first: the agent nobody depends on that depends on the most, once it can answer."""
    needed = {name for agent in agents for name in agent.depends_on}
    fronts = [agent for agent in agents if agent.name not in needed] or list(agents)
    if not fronts:
        return None
    front = max(fronts, key=lambda agent: len(agent.depends_on))
    return front.name if can_answer(front) else None
