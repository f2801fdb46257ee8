"""Fleets elsewhere, on a screen of their own."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from ..actions import binding, bindings
from ..instances import Instances
from ..text import Glyphs
from ..widgets.instances import InstancesPane
from ..widgets.status_line import QuestionLine, StatusLine
from ..widgets.title_bar import TitleBar


class InstancesScreen(Screen[str | None]):
    """Ends with the name of the agent to talk to, or None."""

    AUTO_FOCUS = "#instance-list"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("instances_screen"), binding("help")]

    def __init__(self, instances: Instances, glyphs: Glyphs) -> None:
        super().__init__(id="instances-screen")
        self._instances = instances
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        yield TitleBar(
            [("instances", "show.instances", InstancesPane.TITLE)], self._glyphs, id="instances-title"
        )
        yield InstancesPane(self._instances, self._glyphs)
        yield QuestionLine()
        yield StatusLine()

    def on_mount(self) -> None:
        """Say how often agents are polled."""
        caption = f"attached agents are polled every {self._instances.pace.interval:g} s"
        self.query_one(TitleBar).tell(focused=True, caption=caption)

    def action_leave(self) -> None:
        """Back to the fleet."""
        self.dismiss(None)

    def action_help(self) -> None:
        """Help for this screen."""
        from .help_screen import HelpScreen

        self.app.push_screen(HelpScreen(self.query_one(InstancesPane).rows, self.active_bindings.values()))

    @on(InstancesPane.TalkToInstanceAgent)
    def _open(self, event: InstancesPane.TalkToInstanceAgent) -> None:
        event.stop()
        self.dismiss(event.name)

    @on(InstancesPane.AskAboutInstance)
    def _ask(self, event: InstancesPane.AskAboutInstance) -> None:
        event.stop()
        self.query_one(QuestionLine).ask(event.question, event.yes)
