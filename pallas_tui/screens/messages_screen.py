"""The messages of a run, and one of them in full, on screens of their own."""

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from pallas.model import Envelope

from ..actions import binding, bindings
from ..messages import MessageBook
from ..messages.xml_text import title_of
from ..targets import RunTarget, opener_of
from ..text import Glyphs
from ..widgets.messages import MessagesPane
from ..widgets.messages.envelope_pane import EnvelopePane
from ..widgets.messages.handler_lookup import open_source
from ..widgets.status_line import QuestionLine, StatusLine
from ..widgets.title_bar import TitleBar
from .replay_screen import ReplayScreen, refusal_of
from .screen_layout import WIDE
from .single_pane_screen import SinglePane

if TYPE_CHECKING:
    from ..widgets.feed import FeedPane

__all__ = ["EnvelopeScreen", "MessagesScreen"]

_ROOMY = 78
"""Columns from which the title has room for whose messages they are."""


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
        """What came while another screen stood above this one."""
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


class EnvelopeScreen(SinglePane):
    """One message: what is known of it, and its whole XML."""

    def __init__(self, letter: Envelope, running: bool, glyphs: Glyphs) -> None:
        super().__init__(EnvelopePane(letter, running, glyphs), title_of(letter, glyphs.outbound), glyphs)
