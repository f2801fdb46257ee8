"""The keys of the chat: actions on the conversation in front."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import dropwhile, islice, takewhile
from typing import Any, Final

from textual import on, work

from pallas.commands import Typed
from pallas.model import AgentSnapshot, Exchange, Fault, StepDetail
from pallas.model.step_view import view_of

from ...chat.answer_runs import Runs
from ...chat.call_outline import figures_of, tree_details
from ...chat.call_results import call_details, exchange_of, result_text
from ...chat.call_tree import Node, Tree
from ...chat.conversation import ChatConversation, ChatEntry, last_answer
from ...chat.mcp_talk import ERAS, Options
from ...clipboard import copy
from ...runs.step_text import as_text
from ...targets import Reveal, RunTarget, opener_of
from ..dialogs.line_dialog import LineScreen
from ..list_pane import ShowText
from .agent_chooser import ChooserScreen
from .answer_lines import AnswerLines
from .chat_desk import ChatDesk
from .chat_dialogs import ConfirmScreen, PromptsScreen, SideScreen
from .conversation_view import ConversationView
from .message_parts import PartsPane
from .queued_messages import QueuedMessages
from .thread_title import rename
from .tool_tree import ToolTree
from .transcript import Transcript

_TIMEOUT: Final = 10.0
_NO_RUN: Final = "The fleet reported no run for that answer: the agent may run elsewhere."

_WITH_VIEW = frozenset(
    {
        "attach",
        "back",
        "write",
        "tab",
        "close_tab",
        "principal",
        "protocol",
        "rename",
        "prompts",
        "reasoning",
        "find",
    }
)
_WITH_ENTRIES = frozenset({"copy", "edit", "branch", "export"})


class ChatActions(PartsPane):
    """The actions of the chat; the subclass has the conversations they act on."""

    _desk: ChatDesk
    _agents: tuple[AgentSnapshot, ...]
    _views: list[ConversationView]
    _beside: list[ConversationView]
    _current: ConversationView | None
    _runs: Runs
    _working: tuple[str, ...] = ()

    @abstractmethod
    def new_conversation(
        self,
        name: str,
        *,
        wanted: bool = False,
        conversation: ChatConversation | None = None,
        options: Options | None = None,
    ) -> None:
        """Begin another conversation and show it."""

    @abstractmethod
    def begin_beside(self, names: tuple[str, ...]) -> None:
        """Ask these agents side by side."""

    @abstractmethod
    def end_beside(self) -> None:
        """Make each column a normal tab again."""

    @abstractmethod
    def _switch(self, view: ConversationView, *, wanted: bool = False) -> None:
        """Show that conversation."""

    @abstractmethod
    async def _close(self, view: ConversationView) -> None:
        """Close that conversation; a run in it is cancelled."""

    def _say(self, text: str) -> None:
        self.app.notify(text, severity="warning", markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave ctrl+k to the text area while nothing runs; others need a conversation."""
        view = self._current
        if action == "cancel":
            return any(each.conversation.run is not None for each in self._asked)
        if action == "question":
            return view is not None and view.card.question is not None
        if action == "retry":
            return view is not None and view.conversation.can_retry
        if action in _WITH_ENTRIES:
            return view is not None and bool(view.conversation.entries)
        if action in ("calls", "show_run", "keep"):
            return self._answer is not None
        return view is not None if action in _WITH_VIEW else True

    @on(Transcript.TranscriptMoved)
    def offer_keys(self) -> None:
        """Update the bottom line when other keys work than before."""
        actions = ("question", "cancel", "retry", "copy", "calls", "write")
        working = tuple(name for name in actions if self.check_action(name, ()))
        if working != self._working:
            self._working = working
            self.refresh_bindings()

    @property
    def _asked(self) -> list[ConversationView]:
        """Return the conversations that are asked together."""
        return self._beside if self._current in self._beside else [self._current] if self._current else []

    @property
    def _answer(self) -> ChatEntry | None:
        """Return the selected answer, or that of the selected question; else the last one."""
        if self._current is None:
            return None
        pointed, entries = self._current.transcript.selected, self._current.conversation.entries
        if pointed is not None and pointed.entry.role != "user":
            return pointed.entry
        entry = last_answer(entries) if pointed is None else _answer_to(pointed.entry, entries)
        return entry if entry is not None and entry.role in ("assistant", "error") else None

    # Conversations

    def action_choose(self) -> None:
        """Choose an agent for another conversation."""
        self.choose_agent(lambda: None)

    def choose_agent(self, then: Callable[[], None]) -> None:
        """Choose an agent for another conversation; call ``then`` before it begins."""

        def chosen(name: str | None) -> None:
            if name is not None:
                then()
                self.new_conversation(name, wanted=True)

        self.app.push_screen(ChooserScreen(self._agents, self._desk.glyphs), chosen)

    def action_protocol(self) -> None:
        """Begin another conversation with the same agent, in the other protocol version."""
        if (view := self._current) is not None:
            spoken = "legacy" if view.talk.options.era == "legacy" else "modern"
            other = replace(
                view.talk.options,
                era=ERAS["handshake"] if spoken == "modern" else ERAS["modern"],
                principal=view.talk.options.principal.lend(),
            )
            self.new_conversation(view.conversation.agent, wanted=True, options=other)

    def action_branch(self) -> None:
        """Begin another conversation with all messages up to the selected one."""
        view = self._current
        if view is None or not view.conversation.entries:
            return
        pointed = view.transcript.selected
        entry = pointed.entry if pointed is not None else last_answer(view.conversation.entries)
        if entry is None:
            return
        branch = view.conversation.branch(entry)
        options = replace(view.talk.options, principal=view.talk.options.principal.lend())
        self.new_conversation(view.conversation.agent, wanted=True, conversation=branch, options=options)

    def action_tab(self, by: int) -> None:
        """Show the next or previous conversation."""
        if self._current in self._views:
            self._switch(self._views[(self._views.index(self._current) + by) % len(self._views)])

    async def action_close_tab(self) -> None:
        """Close the conversation; a run in it is cancelled."""
        if self._current is not None and self._current in self._views:
            await self._close(self._current)

    def action_rename(self) -> None:
        """Give the thread another title."""
        view = self._current
        if view is None:
            return

        async def renaming(name: str) -> None:
            try:
                told = await rename(self.app, view.conversation, name)
            except Fault as fault:
                self.app.notify(f"It is not renamed: {fault.message}", severity="error", markup=False)
            else:
                if told:
                    self.app.notify(told, markup=False)

        def named(name: str | None) -> None:
            if name is not None:
                self.run_worker(renaming(name), group="rename", description="rename a thread")

        hint = "The title of its thread. Leave it empty to use the first message."
        self.app.push_screen(LineScreen("Name of the conversation", hint, view.conversation.name), named)

    def action_side(self) -> None:
        """Ask several agents side by side, or end that."""
        if self._beside and self._current in self._beside:
            self.end_beside()
            self.focus_pane()
            return

        def chosen(names: tuple[str, ...] | None) -> None:
            if names:
                self.begin_beside(names)

        agent = self._current.conversation.agent if self._current is not None else ""
        self.app.push_screen(SideScreen(self._agents, agent, self._desk.glyphs), chosen)

    # Sending

    def action_cancel(self) -> None:
        """Cancel the run in flight; side by side all of them."""
        for view in self._asked:
            view.cancel()

    @work(group="retry", exclusive=True)
    async def action_retry(self) -> None:
        """Ask the last question again; a good answer is replaced only after a confirmation."""
        view = self._current
        if view is None:
            return
        last = last_answer(view.conversation.entries)
        answered = last is not None and last.role == "assistant" and not last.cut
        if answered and view.conversation.run is None:
            question = "The last answer is removed, also for the agent. Ask again?"
            if await self.app.push_screen_wait(ConfirmScreen("Ask again", question)) is not True:
                return
        view.retry()

    def action_edit(self) -> None:
        """Change a message and send it again."""
        if self._current is not None:
            self._current.edit()

    def action_attach(self) -> None:
        """Attach an image by its path."""
        if self._current is not None:
            self._current.attach()

    def action_prompts(self) -> None:
        """Take, keep or delete a prompt."""
        view = self._current
        if view is None:
            return

        def taken(text: str | None) -> None:
            if text is not None:
                view.write(text)

        self.app.push_screen(PromptsScreen(self._desk.prompts, view.draft), taken)

    @work(group="principal", exclusive=True)
    async def action_principal(self) -> None:
        """Choose whose bearer token this conversation sends."""
        if (view := self._current) is not None:
            try:
                note = await view.host.choose_principal()
            except Fault as fault:
                self._say(fault.message)
            else:
                if note:
                    view.conversation.note(note, view.desk.clock())

    def action_export(self) -> None:
        """Write the transcript to a file."""
        if self._current is not None:
            self._current.run_command(Typed("export", ""))

    # Reading

    def action_back(self) -> None:
        """Go one step back, from the prompt to the transcript and from there to it; twice cancels a run."""
        view, focused = self._current, self.app.focused
        if view is None:
            return
        step_out: Callable[[], bool] = getattr(self.screen, "step_out", bool)
        if isinstance(focused, QueuedMessages):
            self.focus_pane()
        elif view.stop_editing():
            if view.transcript.selected is not None:
                view.transcript.focus()
        elif view.sure:
            view.cancel()
            self.focus_pane()
        elif focused is view.transcript:
            if not view.transcript.unselect() and not step_out():
                self.focus_pane()
                view.ask_to_cancel()
        elif focused is not None and view.transcript in focused.ancestors:
            view.transcript.focus()
        elif view.draft or not self.returns or not step_out():
            view.transcript.focus()
            view.ask_to_cancel()

    def action_write(self) -> None:
        """Focus the prompt."""
        self.focus_pane()

    async def action_copy(self) -> None:
        """Copy the selected message, else the last answer."""
        if self._current is None:
            return
        pointed = self._current.transcript.selected
        entry = pointed.entry if pointed is not None else last_answer(self._current.conversation.entries)
        self.app.notify(await copy(self.app, entry.text if entry else ""), markup=False)

    def action_calls(self) -> None:
        """Unfold the calls of the answer and focus them."""
        if self._current is not None and not self._current.transcript.open_calls():
            self._say("That answer made no calls.")

    def action_question(self) -> None:
        """Go to the question that the run in front waits for."""
        if self._current is not None and self._current.card.question is not None:
            self.screen.set_focus(self._current.card)

    def action_find(self) -> None:
        """Find text in the conversation; from that line, in all threads."""
        if self._current is None:
            return
        line = self._current.find_line
        search: Callable[[str], None] | None = getattr(self.app, "open_threads", None)
        if line.has_focus_within and line.text and search is not None:
            line.action_close()
            search(line.text)
        else:
            line.open()

    def action_reasoning(self) -> None:
        """Show or hide the reasoning of the answer."""
        if self._current is not None and not self._current.transcript.toggle_reasoning():
            self._say("No reasoning came with that answer.")

    def action_show_run(self, pane: str = "feed") -> None:
        """Show the answer's run in the feed, or in the credentials."""
        entry = self._answer
        run_id = self._runs.of(entry) if entry is not None else ""
        if run_id:
            self.post_message(Reveal(RunTarget(run_id, pane)))
        else:
            self._say(_NO_RUN)

    def action_keep(self) -> None:
        """Make a test of the answer's run."""
        entry, opener = self._answer, opener_of(self.app)
        if entry is None or opener is None:
            return
        if run_id := self._runs.of(entry) or entry.run_id:  # runs of a thread are older than the feed
            opener.keep_run(run_id)
        else:
            self._say(_NO_RUN)

    @on(ToolTree.CallAsked)
    def _on_asked(self, event: ToolTree.CallAsked) -> None:
        event.stop()
        opener = opener_of(self.app)
        if event.what != "open":
            self._tell_of_call(event)
        elif event.node is not None and event.node.record is not None and opener is not None:
            opener.open_step(event.node.record)

    @work(group="calls", exclusive=True)
    async def _tell_of_call(self, event: ToolTree.CallAsked) -> None:
        view = self._current
        if view is None:
            return
        entry = next((e for e in view.conversation.entries if e.tree is event.tree), None)
        run_id = self._runs.of(entry) if entry is not None else ""
        fleet, now = getattr(self.app, "fleet", None), view.conversation.now()
        if event.what == "details":
            title, text = await details_of_call(fleet, run_id, event.tree, event.node, now)
            self.post_message(ShowText(title, text))
        else:
            text = await result(fleet, run_id, event.tree, event.node, now)
            self.app.notify(await copy(self.app, text), markup=False)

    @on(AnswerLines.LinkTaken)
    async def _on_link(self, event: AnswerLines.LinkTaken) -> None:
        # Never opened from here: an agent's text decides where a link leads, the user whether to open it.
        event.stop()
        note = await copy(self.app, event.href)
        self.app.notify(f"{note} It is a link: {event.href}", markup=False)


def _answer_to(question: ChatEntry, entries: Sequence[ChatEntry]) -> ChatEntry | None:
    """The answer to a question; None if there is none yet."""
    later = dropwhile(lambda entry: entry is not question, entries)
    following = takewhile(lambda entry: entry.role != "user", islice(later, 1, None))
    return next((entry for entry in following if entry.role in ("assistant", "error")), None)


async def details_of_call(
    fleet: Any, run_id: str, tree: Tree, node: Node | None, now: float
) -> tuple[str, str]:
    """Return a title and the details of a call; of all calls without ``node``. ``run_id`` may be empty."""
    if node is None:
        return "Tool calls", tree_details(tree, now)
    if (detail := await _recorded(fleet, node)) is not None:
        return node.title, as_text(detail)
    exchange = await _exchange(fleet, run_id, tree, node)
    return node.label, call_details(node, exchange, figures_of(node, now))


async def result(fleet: Any, run_id: str, tree: Tree, node: Node | None, now: float) -> str:
    """Return the result of a call where it is kept; else what its progress messages reported."""
    if node is None:
        return tree_details(tree, now)
    if (detail := await _recorded(fleet, node)) is not None:
        return view_of(detail.request, detail.response).answer
    exchange = await _exchange(fleet, run_id, tree, node)
    if exchange is not None:
        return result_text(exchange)
    return node.result or node.words or f"{node.label} {figures_of(node, now)}".strip()


async def _recorded(fleet: Any, node: Node) -> StepDetail | None:
    if fleet is None or node.record is None:
        return None
    try:
        async with asyncio.timeout(_TIMEOUT):
            detail: StepDetail = await fleet.step(node.record.run_id, node.record.number)
    except (Fault, TimeoutError):
        return None
    return detail


async def _exchange(fleet: Any, run_id: str, tree: Tree, node: Node) -> Exchange | None:
    if fleet is None or not run_id:
        return None
    try:
        async with asyncio.timeout(_TIMEOUT):
            return exchange_of(tree, node, await fleet.exchanges(run_id))
    except (Fault, TimeoutError):
        return None
