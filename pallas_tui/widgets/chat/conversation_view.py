"""One conversation on the screen: its transcript, its status line, its prompt."""

from typing import Final

from textual import events, on
from textual.app import ComposeResult
from textual.message import Message
from textual.timer import Timer
from textual.widgets import TextArea
from textual.worker import Worker

from pallas.commands import CommandOutcome, Typed, read
from pallas.model import AgentSnapshot, Fault, FaultType

from ...chat.chat_readiness import PASSING, ChatReadiness, readiness_of, welcome, why_no_images
from ...chat.conversation import ChatConversation, ChatRun, last_question
from ...chat.mcp_talk import Options, Talk
from ...instances.attached_snapshots import is_attached_name
from ...runs.feed_run import QUIET_AFTER
from ...state import Tone
from .chat_desk import ChatDesk
from .command_host import Slash, ViewHost
from .command_menu import CommandCompleter, CommandMenu
from .conversation_lines import Banner, ColumnTitle, RunLine
from .find_line import FindLine
from .message_edit import MessageEdit
from .painter import Painter
from .picture_tray import Tray
from .prompt_area import PromptArea
from .question_card import QuestionCard
from .queued_messages import QueuedMessages
from .thread_reader import ThreadReader
from .transcript import Transcript

SURE_WITHIN: Final = 3.0


class ConversationView(ThreadReader):
    """A conversation with one agent. The model is the truth; ``_paint`` updates the screen from it.

    As a ``column`` it shares one prompt with the other columns, and hides its own.
    """

    class Changed(Message):
        """Something changed that the tabs show too."""

    class RunEnded(Message):
        """A run ended, with any outcome."""

        def __init__(self, view: "ConversationView") -> None:
            super().__init__()
            self.view = view

    class AskSideBySide(Message):
        """These agents should be asked side by side; none: end that."""

        def __init__(self, view: "ConversationView", agents: tuple[str, ...]) -> None:
            super().__init__()
            self.view, self.agents = view, agents

    def __init__(
        self,
        agent: str,
        desk: ChatDesk,
        *,
        conversation: ChatConversation | None = None,
        options: Options | None = None,
    ) -> None:
        """``conversation`` is one that was begun elsewhere."""
        super().__init__(classes="chat-conversation")
        self.conversation = conversation or ChatConversation(agent, stopwatch=desk.stopwatch)
        self.conversation.changed = self.touch
        self.talk = Talk(self.conversation, desk.connect, desk.clock, options or Options())
        self.host = ViewHost(self)
        self.completer = CommandCompleter(self.host)
        self._menu = CommandMenu(self.completer, desk.glyphs)
        self.slash = Slash(self.host, desk.history, self._tell_outcome)
        self.readiness = ChatReadiness(Tone.STARTING, False, "Waiting for the fleet.")
        self.beside = ""
        self.desk = desk
        self._agent: AgentSnapshot | None = None
        self.known: tuple[AgentSnapshot, ...] = ()
        self._worker: Worker[None] | None = None
        self._painter = Painter(self._paint, self._is_seen, self._tell_changed)
        self._active = self._column = False
        self._sure: Timer | None = None
        self._hint = ""
        self._give_back_focus = False
        self._column_title = ColumnTitle()
        self._banner = Banner()
        self.transcript = Transcript(self.conversation, desk.glyphs)
        self.card = QuestionCard(desk.glyphs)
        self._status = RunLine(desk.glyphs)
        self.find_line = FindLine(self.conversation, self.transcript)
        self.tray = Tray(desk.glyphs, desk.base)
        self._queued = QueuedMessages(self.conversation.queue, desk.glyphs)
        self._prompt = PromptArea(desk.history, self._submit, self.completer.complete, self._queued.enter)
        self._editing = MessageEdit(self._prompt, self.tray, self.conversation.queue)

    def compose(self) -> ComposeResult:
        yield self._column_title
        yield self._banner
        yield self.transcript
        yield self.card
        yield self._menu
        yield self.find_line
        yield self._status
        yield self._queued
        yield self.tray
        yield self._prompt

    def on_mount(self) -> None:
        """Start painting."""
        self._stand()
        self.touch()
        self.run_worker(self._painter.run(), group="paint", description=f"paint {self.conversation.agent}")

    async def on_unmount(self) -> None:
        """Close the connection of a closed tab; Textual has cancelled its workers."""
        await self.talk.close()

    # Queries

    @property
    def url(self) -> str:
        """The agent's URL now, empty when it is not there."""
        return self._agent.url if self._agent is not None else ""

    @property
    def model(self) -> str:
        """The agent's model, empty when it is not known."""
        return self._agent.model if self._agent is not None else ""

    @property
    def draft(self) -> str:
        """The text of the prompt that is not sent."""
        return self._prompt.text

    # Calls from the pane

    def see(self, agent: AgentSnapshot | None, known: tuple[AgentSnapshot, ...] = ()) -> None:
        """Take in the newest snapshot of the agent, None when the fleet does not have it, and all agents."""
        self.known = known
        changed = agent is not self._agent and agent != self._agent
        if changed and agent is None and is_attached_name(self.conversation.agent):
            self._let_go()
        self._agent = agent
        if changed or self.readiness.tone in PASSING:
            self.talk.price = self.desk.price(self.model)
            self.judge(force=changed)
        if self.conversation.run is not None and self._active:
            self.transcript.tick()
            self._tell()

    def judge(self, *, force: bool = False) -> None:
        """Check whether the agent can be written to now."""
        held, now, bearer = self.conversation, self.desk.clock(), bool(self.talk.options.principal.token)
        new = readiness_of(held.agent, self._agent, with_bearer=bearer, now=now, owner=held.owner)
        if new != self.readiness or force:
            self.readiness = new
            self._stand()
            self._send_next()

    def _let_go(self) -> None:
        """Close the connection: the instance was detached."""
        self.cancel()
        self.run_worker(self.talk.hang_up(), group="close", description="let go of a detached agent")

    def set_active(self, active: bool) -> None:
        """Set whether the user can see this conversation now."""
        self._active = active
        if active:
            self.conversation.unread = 0
            self.look()
            self.touch()

    def set_column(self, column: bool) -> None:
        """Set whether it is one of several columns with a shared prompt."""
        self._column = column
        self.set_class(column, "-column")

    def ask_beside(self, agents: tuple[str, ...]) -> None:
        """Post a request to ask these agents side by side; none: end that."""
        self.post_message(self.AskSideBySide(self, agents))

    def touch(self) -> None:
        """Note that the model changed."""
        self._painter.touch()

    def _tell_changed(self) -> None:
        self.post_message(self.Changed())

    def focus_prompt(self) -> None:
        """Focus the prompt, or the transcript while the user cannot write.

        At once, not after the message queue: keys typed in between would reach the prompt of the conversation
        that was open before.
        """
        self._give_back_focus = self._prompt.disabled
        usable = not self._prompt.disabled and not self._column
        self.screen.set_focus(self._prompt if usable else self.transcript)

    def write(self, text: str) -> None:
        """Append ``text`` to the prompt."""
        self._prompt.insert(text)
        self.focus_prompt()

    # Talking

    def _submit(self, text: str) -> bool:
        """Send the user's ``text``; return False when it stays in the prompt."""
        if not text.strip() and not self.tray.attachments:
            self._send_next(asked=True)
            return False
        typed = read(text)
        if typed.command:
            self.run_command(typed, self._prompt)
            return False
        return self.offer(typed.rest)

    def offer(self, text: str) -> bool:
        """Send ``text`` with the attached pictures, or queue it; say why if neither is possible."""
        queue, run = self.conversation.queue, self.conversation.run
        waits = run is not None or self.readiness.may_queue or (bool(queue.messages) and not queue.held)
        problem = why_no_images(self.conversation.agent, self._agent) if self.tray.attachments else ""
        if not waits:
            problem = self.why_not_now() or problem
        try:
            if problem:
                raise Fault(FaultType.CONFIG, problem)
            if self._editing.is_queued:
                self._editing.replace(text)
            elif waits:
                queue.add(text, self.tray.attachments, self.desk.clock())
                self.tray.empty()
            else:
                if (changed := self._editing.take()) is not None:
                    self.conversation.rewind(changed)
                self.transcript.anchor()
                self._begin(self.conversation.begin(text, self.tray.empty(), self.desk.clock()))
        except Fault as fault:
            self.app.notify(fault.message, severity="warning", markup=False)
            return False
        self._send_next()
        return True

    def _send_next(self, *, asked: bool = False) -> None:
        """Send the first message of the queue, if that is possible now; when it is held, if ``asked``."""
        queue = self.conversation.queue
        may_send = self._editing.entry is None and (asked or not queue.held)
        if queue.messages and may_send and not self.why_not_now():
            first = queue.messages.pop(0)
            self._begin(self.conversation.begin(first.text, first.attachments, self.desk.clock()))
        self.touch()

    @on(QueuedMessages.EditAsked)
    def _on_edit_asked(self, event: QueuedMessages.EditAsked) -> None:
        event.stop()
        if self._column:
            self.app.notify("alt+s ends side by side; then it can be changed.", markup=False)
            return
        self._editing.begin(event.entry)
        self.focus_prompt()
        self._tell()

    def why_not_now(self) -> str:
        """Say why a message cannot be sent now, empty when it can."""
        if self.conversation.run is not None:
            return f"{self.conversation.agent} is still answering; ctrl+k cancels that."
        return "" if self.readiness.may_write else self.readiness.text

    def _refuses(self, possible: bool, otherwise: str) -> bool:
        """Say why an action is not possible now, if it is not."""
        problem = otherwise if not possible else self.why_not_now()
        if problem:
            self.app.notify(problem, severity="warning", markup=False)
        return bool(problem)

    def retry(self) -> None:
        """Send the last question again."""
        was_asked = self.conversation.can_retry or self.conversation.run is not None
        if self._refuses(was_asked, "Nothing was asked."):
            return
        if (run := self.conversation.retry(self.desk.clock())) is not None:
            self.transcript.anchor()
            self._begin(run)

    def edit(self) -> None:
        """Edit the selected question, else the last one, in the prompt; sending it drops the rest."""
        pointed = self.transcript.selected
        entry = pointed.entry if pointed is not None else last_question(self.conversation.entries)
        if self._refuses(entry is not None and entry.role == "user", "Point at a message of yours (j, k)."):
            return
        assert entry is not None
        self._editing.begin(entry)
        self.focus_prompt()
        self._tell()

    def stop_editing(self) -> bool:
        """Leave the message unchanged; return False when none is being edited."""
        left = self._editing.leave()
        self._send_next()
        return left

    def cancel(self) -> bool:
        """Cancel the run in flight; return False when there is none."""
        if self.conversation.run is None or self._worker is None:
            return False
        self._unsure()
        self._worker.cancel()
        return True

    @property
    def sure(self) -> bool:
        """Whether escape cancels the run: it asked within the last 3 s."""
        return self._sure is not None and self.conversation.run is not None

    def ask_to_cancel(self) -> None:
        """Say, while something runs, that another escape cancels it."""
        if self.conversation.run is not None:
            self._unsure()
            self._sure = self.set_timer(SURE_WITHIN, self._unsure)
            self._tell()

    def _unsure(self) -> None:
        if self._sure is not None:
            self._sure.stop()
        self._sure = None
        self._tell()

    def _begin(self, run: ChatRun) -> None:
        self._unsure()
        self._worker = self.run_worker(
            self._converse(run), group="talk", description=f"ask {self.conversation.agent}"
        )

    async def _converse(self, run: ChatRun) -> None:
        try:
            await self.talk.converse(run, self.url)
        finally:
            self._send_next()
            self.post_message(self.RunEnded(self))

    # Commands

    def run_command(self, typed: Typed, prompt: PromptArea | None = None) -> None:
        """Run the command that was typed into ``prompt``, or that a key is bound to."""
        self.run_worker(self.slash.run(typed, prompt), group="command", description="a slash command")

    def _tell_outcome(self, outcome: CommandOutcome) -> None:
        if outcome.text and outcome.ok:
            self.transcript.anchor()
            self.conversation.note(outcome.text, self.desk.clock())
        elif outcome.text:
            self.app.notify(outcome.text, severity="warning", markup=False, timeout=8)

    @on(TextArea.Changed)
    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def _on_written(self) -> None:
        self.show_hint(self._prompt.text)

    def show_hint(self, line: str) -> None:
        """Show how a command in ``line`` may go on."""
        if (hint := self._menu.follow(line)) != self._hint:
            self._hint = hint
            self._tell()

    @on(FindLine.FindLeft)
    def _on_find_left(self, event: FindLine.FindLeft) -> None:
        event.stop()
        if event.found:
            self.screen.set_focus(self.transcript)
        else:
            self.focus_prompt()

    # Images

    def attach(self) -> None:
        """Ask for the path of an image."""
        self.tray.open()

    @on(Tray.TrayLeft)
    @on(QueuedMessages.QueueLeft)
    @on(QuestionCard.CardLeft)
    def _on_left(self, event: Message) -> None:
        event.stop()
        self.focus_prompt()

    @on(PromptArea.TakeBack)
    def _on_take_back(self, event: PromptArea.TakeBack) -> None:
        event.stop()
        self.tray.drop_last()

    @on(PromptArea.ImagesPasted)
    async def _on_pasted(self, event: PromptArea.ImagesPasted) -> None:
        event.stop()
        for path in event.paths:
            if not await self.tray.take(path):
                break

    # Painting

    async def _paint(self) -> None:
        await self.transcript.paint()
        self._queued.paint()
        self._tell()

    def _is_seen(self) -> bool:
        return self._active and self.app.is_running and self.is_attached

    @on(Transcript.TranscriptMoved)
    def _on_moved(self, event: Transcript.TranscriptMoved) -> None:
        self._tell()

    def _tell(self) -> None:
        """Show what the run does now in the status line (PI-25), or nothing."""
        run = self.conversation.run
        elapsed = self.conversation.elapsed(run) if run is not None else None
        text = self._editing.hint(self.desk.glyphs.dot) or (self._doing(run) if run is not None else "")
        text = "press escape again to cancel" if self.sure else self._hint or text
        self._status.show(running=run is not None, text=text, elapsed=elapsed, below=self.transcript.below)

    def _doing(self, run: ChatRun) -> str:
        """Return what the run does now, or what it waits for."""
        if waits := self.desk.waits_for(run.trace.trace_id):
            return waits
        quiet = self.conversation.now() - run.heard
        if run.awaits_text and quiet >= QUIET_AFTER:
            return f"{run.status} {self.desk.glyphs.dot} no text for {quiet:.0f} s"
        return run.status

    def _stand(self) -> None:
        """Show the banner, and whether the user can write (PI-17)."""
        if not self.is_mounted:
            return
        name, agent, dot = self.conversation.agent, self._agent, self.desk.glyphs.dot
        self._banner.show(self.readiness, self.desk.glyphs)
        self._column_title.show(name, self.readiness, self.desk.glyphs)
        self.transcript.welcome(welcome(name, agent))
        prompt, usable = self._prompt, self.readiness.may_write or self.readiness.may_queue
        enter = "enter sends" if self.readiness.may_write else "it is sent as soon as it is ready"
        prompt.placeholder = (
            f"Write to {name} {dot} {enter} {dot} alt+enter new line {dot} / commands"
            if usable
            else "You cannot write now"
        )
        if prompt.disabled == usable:
            self._enable(usable)
        self.tray.tell(why_no_images(name, agent))

    def _enable(self, may_write: bool) -> None:
        # The screen knows at once which widget has the focus; the widget only after its message queue.
        prompt, transcript, screen = self._prompt, self.transcript, self.screen
        if not may_write and screen.focused is prompt:
            # A disabled widget loses the focus, and with it the keys of the pane.
            screen.set_focus(transcript)
            self._give_back_focus = True
        prompt.disabled = not may_write
        if may_write and self._give_back_focus:
            self._give_back_focus = False
            if screen.focused is transcript and not self._column:
                screen.set_focus(prompt)
