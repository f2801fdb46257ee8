"""One conversation on the screen: its transcript, its status line, its prompt."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final, Protocol

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import MountError
from textual.widgets import Static
from textual.worker import Worker

from pallas.model import AgentSnapshot, Fault, Image

from ...chat.history import PromptHistory
from ...chat.model import Conversation, Run
from ...chat.standing import Standing, standing, why_no_images
from ...client import OnProgress, Reply
from ...instances.snapshots import is_attached_name
from ...state import Tone
from ...text import Glyphs
from ..tones import shape
from .prompt import Prompt
from .runline import RunLine
from .transcript import Transcript
from .tray import Tray

PAINT_EVERY: Final = 0.1
"""Seconds between two paintings at least, however fast the text comes."""
SURE_WITHIN: Final = 3.0


class Client(Protocol):
    """What a conversation is held with."""

    url: str

    async def send(
        self, text: str, images: Sequence[Image] = (), on_progress: OnProgress | None = None
    ) -> Reply:
        """Ask and wait; raises Fault."""
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


Connect = Callable[[str, str], Client]
"""Makes the client for a URL and a conversation handle; connects nothing yet."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What all conversations of a pane share.

    ``clock`` gives the workbench's time in Unix seconds, as fine as its frames; ``stopwatch`` seconds.
    """

    connect: Connect
    history: PromptHistory
    glyphs: Glyphs
    base: Path
    clock: Callable[[], float]
    stopwatch: Callable[[], float]


class ConversationView(Vertical):
    """A conversation with one agent. The model is the truth; ``_paint`` makes the screen follow it."""

    class Changed(Message):
        """Something happened that the tabs show too."""

    class Finished(Message):
        """A run ended, one way or the other."""

        def __init__(self, view: "ConversationView") -> None:
            super().__init__()
            self.view = view

    def __init__(self, agent: str, desk: Desk) -> None:
        super().__init__(classes="chat-conversation")
        self.conversation = Conversation(agent, self.touch, desk.stopwatch)
        self.standing = Standing(Tone.STARTING, False, "Waiting for the fleet.")
        self._desk = desk
        self._agent: AgentSnapshot | None = None
        self._client: Client | None = None
        self._talk: Worker[None] | None = None
        self._dirty = asyncio.Event()
        self._active = False
        self._sure = False
        self._give_back_focus = False
        self._banner = Static(markup=False, classes="chat-banner")
        self.transcript = Transcript(self.conversation, desk.glyphs)
        self._status = RunLine(desk.glyphs)
        self.tray = Tray(desk.glyphs, desk.base)
        self._prompt = Prompt(desk.history, self._submit)

    def compose(self) -> ComposeResult:
        yield self._banner
        yield self.transcript
        yield self._status
        yield self.tray
        yield self._prompt

    def on_mount(self) -> None:
        """Begin to paint."""
        self._stand()
        self.run_worker(self._paint_loop(), group="paint", description=f"paint {self.conversation.agent}")

    async def on_unmount(self) -> None:
        """A closed tab ends its connection; Textual has cancelled its workers."""
        if self._client is not None:
            await self._client.close()

    # What the pane tells

    def see(self, agent: AgentSnapshot | None) -> None:
        """The agent as the newest frame has it; None when the fleet does not have it."""
        changed = agent != self._agent
        if changed and agent is None and is_attached_name(self.conversation.agent):
            self._let_go()
        self._agent = agent
        if changed or self.standing.tone is Tone.STARTING:
            new = standing(self.conversation.agent, agent)
            if new != self.standing or changed:
                self.standing = new
                self._stand()
        if self.conversation.run is not None:
            self._tell()

    def _let_go(self) -> None:
        """The instance was detached: nothing of it stays connected."""
        self.cancel()
        client, self._client = self._client, None
        if client is not None:
            self.run_worker(client.close(), group="close", description="let go of a detached agent")

    def set_active(self, active: bool) -> None:
        """Whether a person can see this conversation now."""
        self._active = active
        if active:
            self.conversation.unread = 0
            self.touch()

    def touch(self) -> None:
        """The model changed."""
        self._dirty.set()
        self.post_message(self.Changed())

    def focus_prompt(self) -> None:
        """Put the focus where one writes, or on the transcript while nobody can.

        At once, not when the queue has been worked off: keys typed in between would reach the prompt of
        the conversation that was open before.
        """
        self._give_back_focus = self._prompt.disabled
        self.screen.set_focus(self.transcript if self._prompt.disabled else self._prompt)

    # Talking

    def _submit(self, text: str) -> bool:
        """The person sends ``text``; False when that cannot be, which is said."""
        if not text.strip() and not self.tray.attachments:
            return False
        if problem := self._why_not_now():
            self.app.notify(problem, severity="warning", markup=False)
            return False
        self.transcript.anchor()
        self._begin(self.conversation.begin(text, self.tray.empty(), self._desk.clock()))
        return True

    def _why_not_now(self) -> str:
        name = self.conversation.agent
        if self.conversation.run is not None:
            return f"{name} is still answering; ctrl+k cancels that."
        if not self.standing.may_write:
            return self.standing.text
        return why_no_images(name, self._agent) if self.tray.attachments else ""

    def retry(self) -> None:
        """Send the last question again after it failed or was cancelled."""
        if not self.conversation.can_retry:
            self.app.notify("There is nothing to send again.", markup=False)
        elif problem := self._why_not_now():
            self.app.notify(problem, severity="warning", markup=False)
        elif (run := self.conversation.retry(self._desk.clock())) is not None:
            self._begin(run)

    def cancel(self) -> bool:
        """Cancel the run in flight; False when there is none."""
        if self.conversation.run is None or self._talk is None:
            return False
        self._sure = False
        self._talk.cancel()
        return True

    def ask_to_cancel(self) -> bool:
        """Escape: the first one asks, the second within 3 s cancels; False when nothing runs."""
        if self.conversation.run is None:
            return False
        if self._sure:
            return self.cancel()
        self._sure = True
        self.set_timer(SURE_WITHIN, self._unsure)
        self._tell()
        return True

    def _unsure(self) -> None:
        self._sure = False
        self._tell()

    def _begin(self, run: Run) -> None:
        self._sure = False
        self._talk = self.run_worker(
            self._converse(run), group="talk", description=f"ask {self.conversation.agent}"
        )

    async def _converse(self, run: Run) -> None:
        conversation, clock = self.conversation, self._desk.clock
        question = run.question
        try:
            reply = await (await self._connected()).send(
                question.text,
                [one.image for one in question.attachments],
                lambda message: conversation.hear(run, message),
            )
        except asyncio.CancelledError:
            conversation.cancel(run, clock())
            raise
        except Fault as fault:
            conversation.fail(run, fault, clock())
        else:
            conversation.answer(run, reply, clock())
        finally:
            self._sure = False
            self.post_message(self.Finished(self))

    async def _connected(self) -> Client:
        url = self._agent.url if self._agent is not None else ""
        if self._client is not None and self._client.url != url:
            await self._client.close()
            self._client = None
        if self._client is None:
            self._client = self._desk.connect(url, self.conversation.handle)
        return self._client

    # Images

    def attach(self) -> None:
        """Ask for the path of an image."""
        self.tray.open()

    @on(Tray.Left)
    def _on_tray_left(self, event: Tray.Left) -> None:
        event.stop()
        self.focus_prompt()

    @on(Prompt.TakeBack)
    def _on_take_back(self, event: Prompt.TakeBack) -> None:
        event.stop()
        self.tray.drop_last()

    @on(Prompt.ImagesPasted)
    async def _on_pasted(self, event: Prompt.ImagesPasted) -> None:
        event.stop()
        for path in event.paths:
            if not await self.tray.take(path):
                break

    # Painting

    async def _paint_loop(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            started = perf_counter()
            if self._active and self.app.is_running and self.is_attached:
                try:
                    await self.transcript.paint()
                except MountError:  # the screen goes away in the middle of it
                    return
                self._tell()
            # What takes long is done less often: the keys get most of the time.
            await asyncio.sleep(max(PAINT_EVERY, 4 * (perf_counter() - started)))

    @on(Transcript.Moved)
    def _on_moved(self, event: Transcript.Moved) -> None:
        event.stop()
        self._tell()

    def _tell(self) -> None:
        """The status line: what the run does now (PI-25), or nothing."""
        run, elapsed = self.conversation.run, None
        text = ""
        if run is not None:
            text, elapsed = run.status, self.conversation.elapsed(run)
            if self._sure:
                text = "press escape again to cancel"
        below = self.transcript.below
        self._status.show(running=run is not None, text=text, elapsed=elapsed, below=below)

    def _stand(self) -> None:
        """Show how the agent stands: the banner, and whether one can write (PI-17)."""
        if not self.is_mounted:
            return
        name, agent, dot = self.conversation.agent, self._agent, self._desk.glyphs.dot
        banner = self._banner
        banner.update(Content.assemble(shape(self.standing.tone, self._desk.glyphs), " ", self.standing.text))
        banner.display = bool(self.standing.text)
        banner.set_classes(f"chat-banner -{self.standing.tone.value}")
        about = agent.description or agent.title if agent is not None else ""
        self.transcript.welcome(f"A new conversation with {name}.\n\n{about}".rstrip())
        prompt = self._prompt
        prompt.placeholder = (
            f"Write to {name} {dot} enter sends {dot} alt+enter new line {dot} ctrl+o image"
            if self.standing.may_write
            else "You cannot write now"
        )
        if prompt.disabled == self.standing.may_write:
            self._enable(self.standing.may_write)
        self.tray.tell(why_no_images(name, agent))

    def _enable(self, may_write: bool) -> None:
        prompt, transcript = self._prompt, self.transcript
        if not may_write and prompt.has_focus:
            # A disabled widget loses the focus, and with it the keys of the pane.
            transcript.focus()
            self._give_back_focus = True
        prompt.disabled = not may_write
        if may_write and self._give_back_focus:
            self._give_back_focus = False
            if transcript.has_focus:
                prompt.focus()
