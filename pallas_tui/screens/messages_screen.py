"""Screens of messages: those of a run, one in full, one to be written, and one that is sent again."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from pallas.model import Envelope, PayloadDetail

from ..actions import binding, bindings
from ..agents.agent_knowledge import Knowledge
from ..forms import Memory
from ..messages import MessageBook, message_replay
from ..messages.xml_text import title_of
from ..targets import RunTarget, opener_of
from ..text import Glyphs, width_of
from ..widgets.agents import AgentsPane
from ..widgets.form import ToolPane
from ..widgets.messages import MessagesPane
from ..widgets.messages.handler_lookup import open_source
from ..widgets.messages.messages_pane import EnvelopePane
from ..widgets.messages.replay_pane import ReplayPane, caption_of
from ..widgets.messages.send_pane import SendPane
from ..widgets.status_line import QuestionLine, StatusLine
from ..widgets.title_bar import TitleBar
from .screen_layout import WIDE
from .single_pane_screen import SinglePane

if TYPE_CHECKING:
    from ..widgets.feed import FeedPane

__all__ = ["EnvelopeScreen", "MessagesScreen"]

_TITLES = (
    ("form", "tool.form", "Form"),
    ("json", "tool.raw", "JSON"),
    ("xml", "send.xml", "XML"),
    ("result", "send.result", "Answer"),
    ("about", "send.about", "About"),
)
_SECTIONS = 50
"""Cells that their titles take, with a gap before the text right of them."""

_ROOMY = 78
"""Columns from which the title has room for whose messages they are."""


class SendScreen(Screen[None]):
    """A form for one handler's payload; leaving it ends a call that is under way."""

    AUTO_FOCUS = ""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - Textual's class variable
    BINDINGS: ClassVar[list[BindingType]] = [binding("help")]

    def __init__(self, agent: str, payload: PayloadDetail, memory: Memory, glyphs: Glyphs) -> None:
        super().__init__()
        self._agent, self._payload, self._memory, self._glyphs = agent, payload, memory, glyphs

    def compose(self) -> ComposeResult:
        yield TitleBar(_TITLES, self._glyphs, id="send-title")
        yield SendPane(self._agent, self._payload, self._memory, self._glyphs)
        yield QuestionLine()
        yield StatusLine()

    @on(ToolPane.ToolSection)
    def _section(self, event: ToolPane.ToolSection) -> None:
        event.stop()
        self.query_one(TitleBar).tell(shown=event.name, focused=True, caption=self._caption())

    def on_resize(self) -> None:
        """How much of the title has room."""
        self.query_one(TitleBar).tell(caption=self._caption())

    def _caption(self) -> str:
        """Return message class and receiver, as far as that leaves every section its title."""
        whole = f"{self._payload.name} to {self._agent}"
        room = self.size.width - _SECTIONS
        return next((each for each in (whole, self._agent) if width_of(((each, ""),)) <= room), "")

    def show(self, name: str) -> None:
        """Go to a section: its title was clicked, or jumped to."""
        self.query_one(SendPane).action_section(name)

    @on(ToolPane.LeaveTool)
    def _leave(self, event: ToolPane.LeaveTool) -> None:
        event.stop()
        self.dismiss(None)

    def action_help(self) -> None:
        """Help for this screen."""
        from .help_screen import HelpScreen

        pane = self.query_one(SendPane)
        self.app.push_screen(HelpScreen(self.focused or pane, self.active_bindings.values()))


class ReplayScreen(SinglePane):
    """The old run, the new run, and the difference of their replies."""

    AUTO_FOCUS = "#replay-diff"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - Textual's class variable

    def __init__(
        self,
        letter: Envelope,
        book: MessageBook,
        feed: "FeedPane",
        glyphs: Glyphs,
        show_run: Callable[[str], None],
    ) -> None:
        """``show_run`` shows the messages of the new run, on the screen that this one was opened from."""
        self._show_run = show_run
        agents = next(iter(feed.screen.query(AgentsPane)), None)
        knowledge = agents.knowledge if agents is not None else Knowledge()
        super().__init__(
            ReplayPane(letter, book, feed, knowledge, glyphs), caption_of(letter, glyphs), glyphs
        )

    @on(ReplayPane.OpenReplayRun)
    def _open(self, event: ReplayPane.OpenReplayRun) -> None:
        """Back to where this was opened, which then shows the new run."""
        event.stop()
        self.dismiss(None)
        self._show_run(event.run_id)


class EnvelopeScreen(SinglePane):
    """One message: its facts and its whole XML."""

    def __init__(self, letter: Envelope, running: bool, glyphs: Glyphs) -> None:
        super().__init__(EnvelopePane(letter, running, glyphs), title_of(letter, glyphs.outbound), glyphs)


class MessagesScreen(Screen[RunTarget | None]):
    """Ends with the run to show and where, or None."""

    AUTO_FOCUS = "#message-list"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - Textual's class variable
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("messages_screen"), binding("help")]

    def __init__(self, book: MessageBook, feed: "FeedPane", glyphs: Glyphs, run_id: str = "") -> None:
        super().__init__(id="messages-screen")
        self._book, self._feed, self._glyphs = book, feed, glyphs
        self._run_id = run_id

    def compose(self) -> ComposeResult:
        yield TitleBar([("messages", "show.messages", MessagesPane.TITLE)], self._glyphs, id="messages-title")
        yield MessagesPane(self._book, self._feed, self._glyphs, self._run_id)
        yield QuestionLine()
        yield StatusLine()

    def on_mount(self) -> None:
        """Say whose they are and how many."""
        pane = self.query_one(MessagesPane)
        self.query_one(TitleBar).tell(focused=True, caption=self._whose())
        self.watch(pane, "caption", self._say, init=False)

    def on_screen_resume(self) -> None:
        """Show the messages that came while another screen covered this one."""
        for pane in self.query(MessagesPane):
            pane.advance(self._feed.now, changed=True)

    def _whose(self) -> str:
        run = self._feed.feed.run(self._run_id)
        known = self._book.run(self._run_id)
        agent = run.agent if run is not None else known.agent if known is not None else ""
        return f"{agent} {self._run_id[:8]}".strip()

    def _say(self, caption: str) -> None:
        whose = self._whose() if self.size.width >= _ROOMY else ""
        told = f" {self._glyphs.dot} ".join(part for part in (caption, whose) if part)
        self.query_one(TitleBar).tell(caption=told)

    def action_leave(self) -> None:
        """One step back."""
        self.dismiss(None)

    def action_help(self) -> None:
        """Help for this screen."""
        from .help_screen import HelpScreen

        self.app.push_screen(HelpScreen(self.query_one(MessagesPane).view, self.active_bindings.values()))

    @on(MessagesPane.RunOfMessagesShown)
    def _shown(self, event: MessagesPane.RunOfMessagesShown) -> None:
        event.stop()
        self._run_id = event.run_id
        self._say(self.query_one(MessagesPane).caption)

    @on(MessagesPane.ShowMessagesElsewhere)
    def _elsewhere(self, event: MessagesPane.ShowMessagesElsewhere) -> None:
        event.stop()
        self.dismiss(RunTarget(event.run_id, event.pane))

    @on(MessagesPane.ReplayMessage)
    def _replay(self, event: MessagesPane.ReplayMessage) -> None:
        event.stop()
        if problem := refusal_of(self.app, event.letter):
            self.app.notify(problem, severity="warning", markup=False)
        else:
            self.app.push_screen(
                ReplayScreen(event.letter, self._book, self._feed, self._glyphs, self._show_run)
            )

    def _show_run(self, run_id: str) -> None:
        self.query_one(MessagesPane).show_run(run_id)

    @on(MessagesPane.Source)
    def _source(self, event: MessagesPane.Source) -> None:
        event.stop()
        open_source(self.query_one(MessagesPane), event.agent)

    @on(MessagesPane.Send)
    def _send(self, event: MessagesPane.Send) -> None:
        event.stop()
        if (opener := opener_of(self.app)) is not None:
            opener.open_send(event.agent)

    @on(MessagesPane.OpenEnvelope)
    def _open(self, event: MessagesPane.OpenEnvelope) -> None:
        event.stop()
        running = self.query_one(MessagesPane).view.running(event.letter.run_id)
        self.app.push_screen(EnvelopeScreen(event.letter, running, self._glyphs))


def refusal_of(app: App[Any], letter: Envelope) -> str:
    """Why a message cannot be sent again, empty where it can."""
    fleet = getattr(app, "fleet", None)
    if fleet is None:
        return "The fleet is not running."
    return message_replay.refusal_of(letter, fleet.snapshot().agents)
