"""One run, a step and an exchange of it, and two runs compared, on screens of their own."""

from typing import TYPE_CHECKING

from textual import on

from pallas.model import Step

from ..runs.exchange_text import CallExchange
from ..runs.feed_run import FeedRun
from ..runs.run_comparison import DiffSource
from ..runs.step_text import title_of
from ..targets import Reveal, RunTarget
from ..text import Glyphs
from ..widgets.diff import DiffPane
from ..widgets.feed.run_pane import ExchangePane, RunPane
from ..widgets.feed.step_pane import StepPane
from .pane_screen import SinglePane

if TYPE_CHECKING:
    from ..widgets.feed import FeedPane


class RunScreen(SinglePane):
    """A run of the feed: its facts, its steps within the trace, its exchanges."""

    def __init__(self, run: FeedRun, feed: "FeedPane", glyphs: Glyphs) -> None:
        super().__init__(RunPane(run, feed, glyphs), glyphs, f"{run.agent} {run.id}")
        self.run = run
        self._feed = feed

    @on(RunPane.OpenRunLine)
    def _open(self, event: RunPane.OpenRunLine) -> None:
        event.stop()
        if isinstance(event.what, Step):
            self.app.push_screen(StepScreen(event.what, self._glyphs))
        elif isinstance(event.what, CallExchange):
            self.app.push_screen(ExchangeScreen(event.what, self._glyphs))
        else:
            self.app.switch_screen(RunScreen(event.what, self._feed, self._glyphs))

    @on(RunPane.ShowRunElsewhere)
    def _elsewhere(self, event: RunPane.ShowRunElsewhere) -> None:
        event.stop()
        self.dismiss()
        self._feed.post_message(Reveal(RunTarget(self.run.id, event.pane)))


class StepScreen(SinglePane):
    """A step with its request and its response."""

    def __init__(self, step: Step, glyphs: Glyphs) -> None:
        super().__init__(StepPane(step.run_id, step.number), glyphs, title_of(step))


class ExchangeScreen(SinglePane):
    """An exchange with its headers and bodies."""

    def __init__(self, exchange: CallExchange, glyphs: Glyphs) -> None:
        super().__init__(ExchangePane(exchange), glyphs, exchange.title)


class DiffScreen(SinglePane):
    """What differs between two runs, or between a recording and its replay."""

    def __init__(self, source: DiffSource, glyphs: Glyphs) -> None:
        super().__init__(DiffPane(source, glyphs), glyphs, source.names[1] if source.kind != "runs" else "")
