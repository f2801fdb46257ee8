"""The bases of the screens with one pane: its title above it, questions and keys below it."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from ..actions import binding, bindings
from ..text import Glyphs, joined
from ..widgets.pane import Pane, PaneLeft, SectionShown, SectionsPane
from ..widgets.status_line import QuestionLine, StatusLine
from ..widgets.title_bar import TitleBar
from .screen_layout import WIDE


class PaneScreen[R](Screen[R]):
    """One pane under its title, with ``caption`` behind the words that the pane has there."""

    AUTO_FOCUS = "LineView"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - Textual's class variable
    SHOWN_BY: ClassVar[str] = "screen.leave"
    """The action whose key is in the title."""

    def __init__(self, pane: Pane, glyphs: Glyphs, caption: str = "") -> None:
        super().__init__()
        self._pane = pane
        self._caption = caption
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        yield TitleBar(self.titles(), self._glyphs, id=f"{self._pane.id}-title")
        yield self._pane
        yield QuestionLine()
        yield StatusLine()

    def titles(self) -> Sequence[tuple[str, str, str]]:
        """Return the titles as ``TitleBar`` takes them."""
        return [(str(self._pane.id), self.SHOWN_BY, self._pane.TITLE)]

    def on_mount(self) -> None:
        """Show the pane and its caption."""
        self._pane.show_pane()
        self.query_one(TitleBar).tell(focused=True)
        self.watch(self._pane, "caption", self.show_caption)
        self.when_shown()

    def when_shown(self) -> None:
        """Do what a subclass does when it is mounted. Textual would call each class's own ``on_mount``."""

    def show_caption(self, caption: str) -> None:
        """Show the words of the pane, and those of the screen."""
        self.query_one(TitleBar).tell(caption=joined((caption, self._caption), self._glyphs))

    def action_leave(self) -> None:
        """One step back."""
        self.dismiss(None)

    def action_help(self) -> None:
        """Help for this screen."""
        from .help_screen import HelpScreen

        self.app.push_screen(HelpScreen(self._pane, self.active_bindings.values()))


class SinglePane(PaneScreen[None]):
    """A pane to look at; escape goes back."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("single_screen"), binding("help")]


class SectionsScreen(PaneScreen[None]):
    """A pane with several sections, each of which has a title."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [binding("help")]
    TITLES: ClassVar[Sequence[tuple[str, str, str]]]

    def __init__(self, pane: SectionsPane, glyphs: Glyphs, caption: str = "") -> None:
        super().__init__(pane, glyphs, caption)
        self._sections = pane

    def titles(self) -> Sequence[tuple[str, str, str]]:
        return self.TITLES

    def caption(self) -> str:
        """Return the words right of the titles, as many as there is room for."""
        return self._caption

    def on_resize(self) -> None:
        """Another width may have room for more words."""
        self.query_one(TitleBar).tell(caption=self.caption())

    @on(SectionShown)
    def _section(self, event: SectionShown) -> None:
        event.stop()
        self.query_one(TitleBar).tell(shown=event.name, caption=self.caption())

    def show(self, name: str) -> None:
        """Go to a section: its title was clicked, or jumped to."""
        self._sections.action_section(name)

    @on(PaneLeft)
    def _leave(self, event: PaneLeft) -> None:
        event.stop()
        self.dismiss(None)
