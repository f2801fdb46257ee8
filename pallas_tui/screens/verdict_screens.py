"""The verdicts on saves, and one run of one, on screens of their own."""

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.binding import BindingType

from pallas.model import RunVerdict, VerdictReached

from ..actions import binding, bindings
from ..text import Glyphs
from ..widgets.verdicts import VerdictsPane
from ..widgets.verdicts.judged_run_pane import VerdictContext
from ..widgets.verdicts.judged_run_view import JudgedRunView
from .agent_test_screens import RecordingScreens
from .pane_screen import SinglePane


class VerdictsScreen(RecordingScreens):
    """The verdicts of this session; the keys go to the runs of the newest one."""

    AUTO_FOCUS = "#judged-list"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("verdicts_screen"), binding("help")]
    SHOWN_BY = "show.verdicts"

    def __init__(
        self,
        context: VerdictContext,
        glyphs: Glyphs,
        clock: Callable[[], float],
        wanted: VerdictReached | None = None,
    ) -> None:
        super().__init__(VerdictsPane(context, glyphs, clock, wanted), glyphs)
        self._looks_at, self._clock = context, clock

    @on(VerdictsPane.OpenJudgedRun)
    def _open(self, event: VerdictsPane.OpenJudgedRun) -> None:
        event.stop()
        self.app.push_screen(
            JudgedRunScreen(self._looks_at, event.event, event.run, self._glyphs, self._clock)
        )


class JudgedRunScreen(RecordingScreens, SinglePane):
    """One run of a verdict."""

    def __init__(
        self,
        context: VerdictContext,
        event: VerdictReached,
        run: RunVerdict,
        glyphs: Glyphs,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(JudgedRunView(context, event, run, glyphs, clock), glyphs, run.name)
