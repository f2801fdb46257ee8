"""A message that is sent again, on a screen of its own."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual import on
from textual.app import App

from pallas.model import Envelope

from ..agents.agent_knowledge import Knowledge
from ..messages import MessageBook, message_replay
from ..text import Glyphs
from ..widgets.agents import AgentsPane
from ..widgets.messages.replay_pane import ReplayPane, caption_of
from .single_pane_screen import SinglePane

if TYPE_CHECKING:
    from ..widgets.feed import FeedPane


def refusal_of(app: App[Any], letter: Envelope) -> str:
    """Why a message cannot be sent again, empty where it can."""
    fleet = getattr(app, "fleet", None)
    if fleet is None:
        return "The fleet is not running."
    return message_replay.refusal_of(letter, fleet.snapshot().agents)


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
