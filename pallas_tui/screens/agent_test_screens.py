"""The tests of the project's agents, and the recording of one, on screens of their own."""

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.binding import BindingType

from ..actions import binding, bindings
from ..records.agent_test_book import AgentTestBook, shown_name
from ..text import Glyphs
from ..widgets.agent_tests import AgentTestsPane
from ..widgets.agent_tests.recording_pane import RecordingPane
from .pane_screen import PaneScreen, SinglePane


class RecordingScreens(PaneScreen[None]):
    """The base of screens whose pane may ask for the recording of a test."""

    @on(AgentTestsPane.OpenRecording)
    def _open_recording(self, event: AgentTestsPane.OpenRecording) -> None:
        event.stop()
        pane = RecordingPane(event.test, event.outcome)
        self.app.push_screen(SinglePane(pane, self._glyphs, shown_name(event.test)))


class AgentTestsScreen(RecordingScreens):
    """The tests of the project; what they run ends with it."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("tests_screen"), binding("help")]
    SHOWN_BY = "show.tests"

    def __init__(self, book: AgentTestBook, glyphs: Glyphs, clock: Callable[[], float]) -> None:
        super().__init__(AgentTestsPane(book, glyphs, clock), glyphs)
