"""The chat pane: conversations with agents as tabs."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from pallas.model import AgentSnapshot, FleetState
from pallas.safe_text import one_line

from ...actions import bindings
from ...chat.answer_runs import Runs
from ...chat.conversation import ChatConversation
from ...chat.mcp_talk import ERAS, Connect, Options
from ...chat.prompt_history import PromptHistory
from ...chat.saved_prompts import PromptBook
from ...chat.token_prices import price_of
from ...chat_client import ChatClient
from ...frame import FleetFrame
from ...state import Tone, can_answer, tone_of
from ...targets import ConversationTarget, Entity, Target, ThreadTarget
from ...text import UNICODE, Glyphs, count, fit, joined
from ..removal import remove
from ..tones import shape
from .agent_chooser import AgentChooser, ChooserScreen
from .chat_desk import ChatDesk, setting
from .chat_dialogs import SideScreen
from .conversation_deck import Deck, SharedPrompt, window
from .conversation_view import ConversationView
from .tab_strip import Tab, TabStrip
from .thread_tabs import ThreadTabs

MAX_TABS: Final = 100
"""Conversations that may be open: each keeps its messages, and its widgets once it was shown."""
MAX_THREADS: Final = 500
"""Threads that the palette finds."""
_LABEL: Final = 40
"""Cells of a tab's name."""


class ChatPane(ThreadTabs):
    """Talk to agents over MCP, as any MCP client does."""

    TITLE = "Chat"
    HELP = """\
Write to an agent and watch it answer. **Enter** sends, **alt+enter** (or ctrl+j) breaks the line; up and
down at the edges of the text go through what you sent before. A line that begins with **/** is a command
(`/help` lists them, **tab** completes); `//` sends a slash.

What you write while an agent starts or answers is queued and sent after that: **up** in an empty prompt goes
to the queue, **enter** changes a message, **x** removes it.

The line above the prompt shows what the agent is doing. **ctrl+k** cancels, **escape** twice does too;
what was received so far stays. The calls of an answer are below the text before them: **t** goes there,
**left** and **right** fold, **y** copies the result of a call, **i** shows all details. **o** shows or hides
the reasoning of an answer.

**ctrl+o** attaches an image by its path, **alt+o** chooses it among the files, **ctrl+v** (or alt+v) takes
it from the clipboard; dropping or pasting the path of an image file does the same. Backspace in an empty
prompt removes the last one. **v** shows the pictures of a message in full. **ctrl+g** opens your own
editor on what you write.

**ctrl+t** opens another conversation, from any pane. In each tab the agent remembers the messages of that
tab only. Agents of attached instances are listed too, with `@` and where they
run. **alt+s** asks several agents side by side; **alt+p** chooses whose bearer a conversation sends.

**Escape** in the prompt goes to the transcript, a second one goes back. There, **j** and **k** point at a
message, **y** copies it (without one: the last answer), **c** a block of code in it, **e** changes a message
and sends it again, **a** branches off another conversation, **f** shows the run in the feed, **enter** goes
back to the prompt. **ctrl+r** asks again.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("chat")

    def __init__(
        self,
        glyphs: Glyphs | None = None,
        *,
        id: str = "chat",  # noqa: A002 - Textual's word
        connect: Connect = ChatClient,
        base: Path | None = None,
        stopwatch: Callable[[], float] = monotonic,
        prompts: PromptBook | None = None,
    ) -> None:
        """``connect`` makes the client of a conversation; ``base`` is the folder of relative paths.

        Without ``glyphs`` those of the application are used. ``prompts`` are the saved prompts.
        """
        super().__init__(id=id)
        self._desk = ChatDesk(
            connect,
            PromptHistory(),
            glyphs or UNICODE,
            base or Path.cwd(),
            lambda: self._now,
            stopwatch,
            prompts or PromptBook(),
            lambda model: price_of(model, setting(self.app, "prices", None)),
            lambda trace_id: self.asks_for(trace_id) or self._runs.waits_for(trace_id, self._now),
        )
        self._own_glyphs = glyphs is None
        self._now = 0.0
        self._own: tuple[AgentSnapshot, ...] = ()
        self._agents: tuple[AgentSnapshot, ...] = ()
        self._views: list[ConversationView] = []
        self._current: ConversationView | None = None
        self._beside: list[ConversationView] = []
        self._runs = Runs()
        self._opened = 0

    def compose(self) -> ComposeResult:
        if self._own_glyphs:
            self._desk = replace(self._desk, glyphs=getattr(self.app, "glyphs", UNICODE))
        hint = "enter begins a conversation with one that is ready"
        self._strip = TabStrip(self._glyphs)
        self._start = AgentChooser(self._glyphs, hint, id="chat-start")
        self._deck = Deck(self._start)
        self._shared = SharedPrompt(self._desk.history, self._send_to_all, self._complete)
        yield self._strip
        yield self._deck
        yield self._shared

    @property
    def _glyphs(self) -> Glyphs:
        return self._desk.glyphs

    # Calls from the screen

    def absorb(self, frame: FleetFrame) -> None:
        self._now, self._own = frame.now, frame.snapshot.agents
        self._agents = (*self._own, *frame.attached)
        self._runs.absorb(frame.events)
        self.note_compacted(frame.events)
        self.explain_failures(frame.events)
        self.show_recorded_calls()
        self.note_reasoning(frame.events)
        self.show_questions(frame.events, frame.now)
        if frame.snapshot.state is FleetState.RUNNING:
            self.learn_threads()
        if isinstance(self.app.screen, (ChooserScreen, SideScreen)):
            self.app.screen.show(self._agents)
        if self.is_showing:
            self._paint()

    def show_pane(self) -> None:
        super().show_pane()
        self._arrange()
        self._paint()

    def hide_pane(self) -> None:
        super().hide_pane()
        self._arrange()

    def focus_pane(self) -> None:
        if self._current is None:
            self._start.focus_filter()
        elif self._together:
            self.screen.set_focus(self._shared)
        else:
            self._current.focus_prompt()

    def entities(self) -> Iterable[Entity]:
        for view in reversed(self._views):
            asked = next((e.text for e in view.conversation.entries if e.role == "user"), "nothing said yet")
            title = f"Conversation: {view.conversation.name or self._tab(view).name}"
            yield Entity(title, one_line(asked, 80), ConversationTarget(str(view.id)))

        for record in getattr(getattr(self.app, "threads", None), "records", ())[:MAX_THREADS]:
            yield Entity(f"Thread: {record.title or record.id}", f"with {record.agent}", ThreadTarget(record))

    def reveal(self, target: Target) -> bool:
        if isinstance(target, ThreadTarget):
            self.open_thread(target.record)
            return True
        view = next((v for v in self._views if target == ConversationTarget(str(v.id))), None)
        if view is not None:
            self._switch(view, wanted=True)
        return view is not None

    # Conversations

    def open_agent(self, name: str) -> None:
        """Show the newest conversation with that agent, or begin one."""
        for view in reversed(self._views):
            if view.conversation.agent == name:
                self._switch(view, wanted=True)
                return
        self.new_conversation(name, wanted=True)

    def new_conversation(
        self,
        name: str,
        *,
        wanted: bool = False,
        conversation: ChatConversation | None = None,
        options: Options | None = None,
    ) -> None:
        """Begin another conversation and show it; ``wanted`` when the user asked for it and writes next.

        ``conversation`` is one that already has a transcript.
        """
        if (view := self._make(name, conversation, options)) is not None:
            self.run_worker(self._mount([view], wanted), group="open", description=f"open a chat with {name}")

    def _make(
        self, name: str, conversation: ChatConversation | None = None, options: Options | None = None
    ) -> ConversationView | None:
        if len(self._views) >= MAX_TABS:
            self.app.notify(
                f"{MAX_TABS} conversations are open; close one first (alt+w).",
                severity="warning",
                markup=False,
            )
            return None
        self._opened += 1
        if options is None:
            options = Options(era=ERAS.get(str(setting(self.app, "protocol", "auto")), "auto"))
        view = ConversationView(name, self._desk, conversation=conversation, options=options)
        view.id = f"conversation-{self._opened}"
        view.conversation.callers = self._callers
        at = self._views.index(self._current) + 1 if conversation and self._current in self._views else None
        self._views.insert(len(self._views) if at is None else at, view)
        return view

    def _callers(self, server: str) -> set[str]:
        return {each.name for each in self._agents if any(one.name == server for one in each.downstreams)}

    async def _mount(self, views: list[ConversationView], wanted: bool) -> None:
        for view in views:
            view.display = False
        await self._deck.mount(*views)
        if not self.app.is_running or not views[0].is_attached:
            return
        if wanted or self._current is None:  # else the user went elsewhere while this was created
            self._switch(views[0], wanted=wanted)
            is_entered = self._start.is_entered
            text = self._start.take()  # typed before there was an agent to write to
            if text and not (is_entered and views[0].offer(text)):
                views[0].write(text)

    # The screen

    def _paint(self) -> None:
        by_name = {agent.name: agent for agent in self._agents}
        for view in self._views:
            if view.is_mounted:
                view.see(by_name.get(view.conversation.agent), self._agents)
        if not self._reopened and self._own:
            self.reopen()
        if not self._views:
            front = None if self._opened else front_agent(self._own)
            hoped = front is not None and tone_of(front) not in (Tone.ERROR, Tone.CRASH_LOOP, Tone.STOPPED)
            self._start.show(self._agents, front.name if front is not None and hoped else "")
            wanted = not self._start.touched or self._start.question
            if front is not None and can_answer(front) and wanted and not self._start.is_entered:
                self.new_conversation(front.name)
        self._show_tabs()

    def _show_tabs(self) -> None:
        counted = Counter(view.conversation.agent for view in self._views)
        tabs = tuple(self._tab(view, counted) for view in self._views)
        active = self._views.index(self._current) if self._current in self._views else 0
        self._strip.show(tabs, active)
        self.keep_tabs()
        self.caption = self._caption()
        self.offer_keys()

    def _caption(self) -> str:
        """Return principal, protocol version and model."""
        view = self._current
        if view is None:
            return ""
        talk = view.talk
        principal_text = f"as {talk.options.principal.label}" if talk.options.principal.token else ""
        era = " ".join(filter(None, (talk.era, talk.protocol)))
        params = count(len(view.conversation.params.values), "parameter") if view.conversation.params else ""
        return one_line(joined((principal_text, params, era, view.model), self._glyphs), 90)

    def _tab(self, view: ConversationView, counted: Counter[str] | None = None) -> Tab:
        conversation = view.conversation
        counted = counted or Counter(each.conversation.agent for each in self._views)
        name = fit(conversation.name or conversation.agent, _LABEL, self._glyphs).rstrip()
        if not conversation.name and counted[conversation.agent] > 1:
            same = [each for each in self._views if each.conversation.agent == conversation.agent]
            name = f"{name} {same.index(view) + 1}"
        agent = next((agent for agent in self._agents if agent.name == conversation.agent), None)
        mark = (
            self._glyphs.ellipsis
            if conversation.run
            else f"({conversation.unread})"
            if conversation.unread
            else ""
        )
        return Tab(shape(tone_of(agent) if agent else Tone.STOPPED, self._glyphs), name, mark)

    def _switch(self, view: ConversationView, *, wanted: bool = False) -> None:
        if view not in self._views:
            return
        inside = wanted or self.has_focus_within or self.app.focused is None
        self._current = view
        self._arrange()
        if self.is_showing:
            self._paint()
            if inside:
                self.focus_pane()

    def _arrange(self) -> None:
        """Show the conversation in front, or the columns that are side by side with it."""
        if not self.is_mounted or not hasattr(self, "_deck"):
            return
        members = [view for view in self._beside if view in self._views]
        current = self._current
        together = current in members and len(members) > 1
        shown = [current] if current is not None else []
        if together and current is not None:
            shown = [v for v in members if v in window(members, current, self._deck.columns)]
        for view in members:
            view.set_column(together)
            view.beside = " ".join(each.conversation.agent for each in members)
        self._deck.show(shown or [self._start])
        self._shared.address([view.conversation.agent for view in members] if together else ())
        for view in self._views:
            view.set_active(self.is_showing and view in shown)

    @on(ConversationView.Changed)
    def _on_changed(self, event: ConversationView.Changed) -> None:
        event.stop()
        if self.is_showing:
            self._show_tabs()

    @on(ConversationView.RunEnded)
    def _on_finished(self, event: ConversationView.RunEnded) -> None:
        event.stop()
        view = event.view
        self._follow(view.conversation)
        if self.is_showing and view.display and (view is self._current or self._together):
            view.conversation.unread = 0
            self._show_tabs()
        elif view in self._views and view.conversation.entries:
            agent = view.conversation.agent
            if view.conversation.entries[-1].role == "error":
                self.app.notify(f"{agent} could not answer.", severity="error", markup=False)
            else:
                self.app.notify(f"{agent} has answered.", markup=False)

    @on(TabStrip.TabChosen)
    def _on_tab(self, event: TabStrip.TabChosen) -> None:
        event.stop()
        self._switch(self._views[event.index])

    @on(TabStrip.NewTabWanted)
    def _on_wanted(self, event: TabStrip.NewTabWanted) -> None:
        event.stop()
        self.action_choose()

    @on(AgentChooser.AgentChosen)
    def _on_chosen(self, event: AgentChooser.AgentChosen) -> None:
        event.stop()
        conversation = ChatConversation(event.name, stopwatch=self._desk.stopwatch)
        if question := self._start.take():
            conversation.queue.add(question, (), self._now)
        self.new_conversation(event.name, wanted=True, conversation=conversation)

    async def _close(self, view: ConversationView) -> None:
        index = self._views.index(view)
        self._views.remove(view)
        self._beside = [each for each in self._beside if each is not view]
        if len(self._beside) < 2:
            self.end_beside()
        self._current = self._views[min(index, len(self._views) - 1)] if self._views else None
        if self._current is not None:
            self._switch(self._current)
        else:
            self._arrange()
            self._paint()
            self.focus_pane()
        await remove([view])


def front_agent(agents: tuple[AgentSnapshot, ...]) -> AgentSnapshot | None:
    """Return the agent to open first: of those that no agent depends on, the one with most dependencies."""
    needed = {name for agent in agents for name in agent.depends_on}
    fronts = [agent for agent in agents if agent.name not in needed] or list(agents)
    return max(fronts, key=lambda agent: len(agent.depends_on), default=None)
