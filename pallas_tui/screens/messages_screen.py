"""Screens of messages: those of a run, one in full, one to be written, and one that is sent again."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import App
from textual.binding import BindingType

from pallas.model import Envelope, PayloadDetail

from ..actions import binding, bindings
from ..agents.agent_knowledge import Knowledge
from ..forms import Memory
from ..messages import MessageBook, message_replay
from ..messages.xml_text import title_of
from ..targets import RunTarget
from ..text import Glyphs, width_of
from ..widgets.agents import AgentsPane
from ..widgets.messages import MessagesPane
from ..widgets.messages.messages_pane import EnvelopePane
from ..widgets.messages.replay_pane import ReplayPane, caption_of
from ..widgets.messages.send_pane import SendPane
from ..widgets.title_bar import TitleBar
from .pane_screen import PaneScreen, SectionsScreen, SinglePane

if TYPE_CHECKING:
    from ..widgets.feed import FeedPane


_SECTIONS = 50
"""Cells that the titles of a message's form take, with a gap before the text right of them."""
_ROOMY = 78
"""Columns from which the title has room for whose messages they are."""


class SendScreen(SectionsScreen):
    """A form for one handler's payload; leaving it ends a call that is under way."""

    TITLES = (
        ("form", "tool.form", "Form"),
        ("json", "tool.raw", "JSON"),
        ("xml", "send.xml", "XML"),
        ("result", "send.result", "Answer"),
        ("about", "send.about", "About"),
    )

    def __init__(self, agent: str, payload: PayloadDetail, memory: Memory, glyphs: Glyphs) -> None:
        super().__init__(SendPane(agent, payload, memory, glyphs), glyphs)
        self._agent, self._payload = agent, payload

    def caption(self) -> str:
        """Return message class and receiver, as far as that leaves every section its title."""
        whole = f"{self._payload.name} to {self._agent}"
        room = self.size.width - _SECTIONS
        return next((each for each in (whole, self._agent) if width_of(((each, ""),)) <= room), "")


class ReplayScreen(SinglePane):
    """The old run, the new run, and the difference of their replies."""

    AUTO_FOCUS = "#replay-diff"

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
            ReplayPane(letter, book, feed, knowledge, glyphs), glyphs, caption_of(letter, glyphs)
        )

    @on(ReplayPane.OpenReplayRun)
    def _open(self, event: ReplayPane.OpenReplayRun) -> None:
        """Back to where this was opened, which then shows the new run."""
        event.stop()
        self.dismiss(None)
        self._show_run(event.run_id)


class MessagesScreen(PaneScreen[RunTarget | None]):
    """Ends with the run to show and where, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("messages_screen"), binding("help")]
    SHOWN_BY = "show.messages"

    def __init__(self, book: MessageBook, feed: "FeedPane", glyphs: Glyphs, run_id: str = "") -> None:
        self._messages = MessagesPane(book, feed, glyphs, run_id)
        super().__init__(self._messages, glyphs)
        self._book, self._feed = book, feed
        self._run_id = run_id

    def when_shown(self) -> None:
        """Say whose they are and how many."""
        self.query_one(TitleBar).tell(caption=self._whose())

    def on_screen_resume(self) -> None:
        """Show the messages that came while another screen covered this one."""
        self._messages.advance(self._feed.now, changed=True)

    def _whose(self) -> str:
        run = self._feed.feed.run(self._run_id)
        known = self._book.run(self._run_id)
        agent = run.agent if run is not None else known.agent if known is not None else ""
        return f"{agent} {self._run_id[:8]}".strip()

    def show_caption(self, caption: str) -> None:
        self._caption = self._whose() if self.size.width >= _ROOMY else ""
        super().show_caption(caption)

    @on(MessagesPane.RunOfMessagesShown)
    def _shown(self, event: MessagesPane.RunOfMessagesShown) -> None:
        event.stop()
        self._run_id = event.run_id
        self.show_caption(self._messages.caption)

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
                ReplayScreen(event.letter, self._book, self._feed, self._glyphs, self._messages.show_run)
            )

    @on(MessagesPane.OpenEnvelope)
    def _open(self, event: MessagesPane.OpenEnvelope) -> None:
        event.stop()
        running = self._messages.view.running(event.letter.run_id)
        self.app.push_screen(EnvelopeScreen(event.letter, running, self._glyphs))


class EnvelopeScreen(SinglePane):
    """One message: its facts and its whole XML."""

    def __init__(self, letter: Envelope, running: bool, glyphs: Glyphs) -> None:
        super().__init__(EnvelopePane(letter, running, glyphs), glyphs, title_of(letter, glyphs.outbound))


def refusal_of(app: App[Any], letter: Envelope) -> str:
    """Why a message cannot be sent again, empty where it can."""
    fleet = getattr(app, "fleet", None)
    if fleet is None:
        return "The fleet is not running."
    return message_replay.refusal_of(letter, fleet.snapshot().agents)
