"""One run, and one exchange of it, on screens of their own."""

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from pallas.model import Exchange

from ..runs.exchange_text import title_of
from ..runs.run import Run
from ..targets import Reveal, RunTarget
from ..text import Glyphs
from ..widgets.feed.exchange_pane import ExchangePane
from ..widgets.feed.run_pane import RunPane
from ..widgets.pane import Pane
from ..widgets.status import StatusLine
from ..widgets.titlebar import TitleBar

if TYPE_CHECKING:
    from ..widgets.feed import FeedPane


class _Single(Screen[None]):
    """One pane under its title; escape goes back."""

    AUTO_FOCUS = "LineView"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "back", tooltip="Back to where it was opened"),
        Binding("f1,question_mark", "help", "help", tooltip="What this is and which keys work here"),
    ]

    def __init__(self, pane: Pane, caption: str, glyphs: Glyphs) -> None:
        super().__init__()
        self._pane = pane
        self._caption = caption
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        yield TitleBar(
            [(str(self._pane.id), "esc", self._pane.TITLE)], self._glyphs, id=f"{self._pane.id}-title"
        )
        yield self._pane
        yield StatusLine()

    def on_mount(self) -> None:
        """Say what it is."""
        self._pane.show_pane()
        self.query_one(TitleBar).tell(focused=True, caption=self._caption)

    def action_leave(self) -> None:
        """One step back."""
        self.dismiss()

    def action_help(self) -> None:
        """Help for this screen."""
        from .help import HelpScreen

        self.app.push_screen(HelpScreen(self.focused or self._pane, self.active_bindings.values()))


class RunScreen(_Single):
    """A run of the feed: its facts, its trace, its exchanges."""

    def __init__(self, run: Run, feed: "FeedPane", glyphs: Glyphs) -> None:
        super().__init__(RunPane(run, feed, glyphs), f"{run.agent} {run.id}", glyphs)
        self.run = run
        self._feed = feed

    @on(RunPane.Open)
    def _open(self, event: RunPane.Open) -> None:
        event.stop()
        if isinstance(event.what, Exchange):
            self.app.push_screen(ExchangeScreen(event.what, self._glyphs))
        else:
            self.app.switch_screen(RunScreen(event.what, self._feed, self._glyphs))

    @on(RunPane.Elsewhere)
    def _elsewhere(self, event: RunPane.Elsewhere) -> None:
        event.stop()
        self.dismiss()
        self._feed.post_message(Reveal(RunTarget(self.run.id, event.pane)))


class ExchangeScreen(_Single):
    """An exchange with its headers and bodies."""

    def __init__(self, exchange: Exchange, glyphs: Glyphs) -> None:
        super().__init__(ExchangePane(exchange), title_of(exchange), glyphs)
