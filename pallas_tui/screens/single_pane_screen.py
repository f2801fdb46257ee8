"""A screen with one pane."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from ..actions import binding, bindings
from ..text import Glyphs
from ..widgets.pane import Pane
from ..widgets.status_line import QuestionLine, StatusLine
from ..widgets.title_bar import TitleBar


class SinglePane(Screen[None]):
    """One pane under its title; escape goes back."""

    AUTO_FOCUS = "LineView"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("single_screen"), binding("help")]

    def __init__(self, pane: Pane, caption: str, glyphs: Glyphs) -> None:
        super().__init__()
        self._pane = pane
        self._caption = caption
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        yield TitleBar(
            [(str(self._pane.id), "screen.leave", self._pane.TITLE)],
            self._glyphs,
            id=f"{self._pane.id}-title",
        )
        yield self._pane
        yield QuestionLine()
        yield StatusLine()

    def on_mount(self) -> None:
        """Say what it is."""
        self._pane.show_pane()
        self.query_one(TitleBar).tell(focused=True, caption=self._caption)

        self.watch(self._pane, "caption", self._say, init=False)

    def _say(self, caption: str) -> None:
        """What the pane adds to what it is."""
        told = f" {self._glyphs.dot} ".join(part for part in (caption, self._caption) if part)
        self.query_one(TitleBar).tell(caption=told)

    def action_leave(self) -> None:
        """One step back."""
        self.dismiss()

    def action_help(self) -> None:
        """Help for this screen."""
        from .help_screen import HelpScreen

        self.app.push_screen(HelpScreen(self.focused or self._pane, self.active_bindings.values()))
