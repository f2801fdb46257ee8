"""The one screen: agents on the left, chat on the right, feed, logs and traces in a dock below it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.dom import DOMNode
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, TextArea

from pallas.model import FleetState

from ..actions import DEFAULT_KEYS
from ..frame import Frame
from ..state import Headline, summarise
from ..targets import Reveal, Target, pane_of
from ..text import Glyphs
from ..widgets.agents import AgentsPane
from ..widgets.failure import Failure
from ..widgets.feed import FeedPane
from ..widgets.pane import Pane
from ..widgets.status import Ask, StatusLine
from ..widgets.titlebar import TitleBar
from ..widgets.topline import TopLine

WIDE: Final = 100
TALL: Final = 30
_RAIL: Final = (24, 60)
_DOCK_LEAST: Final = 5
_CHAT_LEAST: Final = 8
_BESIDE_DOCK: Final = ("agents", "chat")


@dataclass(frozen=True, slots=True)
class LatePane:
    """A pane that is made after the first paint: ``make`` may import what takes its time."""

    id: str
    title: str
    make: Callable[[], Pane]


class MainScreen(Screen[None]):
    """Arranges the panes, and knows which of them can be seen.

    From 100 columns and 30 rows on all places are on screen; below that, and while zoomed, one pane is.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - Textual's class variable
    VERTICAL_BREAKPOINTS = [(0, "-short"), (TALL, "-tall")]  # noqa: RUF012
    AUTO_FOCUS = ""
    HELP = """\
Agents on the left, the chat beside them, feed, logs and traces below. In a small terminal one of them is
shown at a time. The digits go from one to the other, **tab** goes round.
"""

    class Painted(Message):
        """The screen stands, with everything but the late panes on it."""

    class Complete(Message):
        """The late panes are there too."""

    class CancelRun(Message):
        """The user said yes to cancelling a run."""

        def __init__(self, run_id: str) -> None:
            super().__init__()
            self.run_id = run_id

    def __init__(self, late: Sequence[LatePane], glyphs: Glyphs) -> None:
        super().__init__(id="main")
        self._late = late
        self._glyphs = glyphs
        self._dock = ("feed", *(pane.id for pane in late if pane.id not in _BESIDE_DOCK))
        self._panes: dict[str, Pane] = {}
        self._current = "chat"
        self._dock_tab = "feed"
        self._zoomed = False
        self._rail_hidden = False
        self._split = True
        self._frame: Frame | None = None
        self._headline: Headline | None = None
        self._wants: list[Callable[[], None]] = []

    def compose(self) -> ComposeResult:
        titles = {late.id: late.title for late in self._late}
        yield TopLine(self._glyphs)
        with Horizontal(id="body"):
            with Vertical(id="rail"):
                yield self._title("rail-title", ("agents", AgentsPane.TITLE))
                yield AgentsPane(self._glyphs)
            with Vertical(id="main-column"):
                with Vertical(id="talk"):
                    yield self._title("talk-title", ("chat", titles.get("chat", "")))
                    yield Failure(self._glyphs)
                with Vertical(id="dock"):
                    late = ((pane, titles[pane]) for pane in self._dock if pane in titles)
                    yield self._title("dock-title", ("feed", FeedPane.TITLE), *late)
                    yield FeedPane(self._glyphs)
        yield Ask()
        yield StatusLine()

    def _title(self, id: str, *panes: tuple[str, str]) -> TitleBar:  # noqa: A002 - Textual's word
        titles = [(pane, DEFAULT_KEYS[f"show.{pane}"].split(",")[0], title) for pane, title in panes]
        return TitleBar(titles, self._glyphs, id=id)

    def on_mount(self) -> None:
        """Take up the panes that are there; the late ones come after the first paint."""
        for pane in self.query(Pane):
            self._take_up(pane)
        self._arrange()
        self.call_after_refresh(self._mount_late)

    async def _mount_late(self) -> None:
        self.post_message(self.Painted())
        for late in self._late:
            pane = late.make()
            await self.query_one("#talk" if late.id == "chat" else "#dock").mount(pane)
            self._take_up(pane)
            if self._frame is not None:
                pane.absorb(self._frame)
        self._arrange()
        self._focus_current()
        wants, self._wants = self._wants, []
        for want in wants:
            want()
        self.post_message(self.Complete())

    def _take_up(self, pane: Pane) -> None:
        self._panes[str(pane.id)] = pane
        self.watch(pane, "caption", lambda: self._tell_titles(), init=False)

    # Frames

    def absorb(self, frame: Frame) -> None:
        """Hand a frame to everything on the screen."""
        self._frame = frame
        summary = summarise(frame, self._headline)
        self._headline = summary.headline
        self.query_one(TopLine).tell(summary)
        failed = frame.snapshot.state is FleetState.FAILED
        failure = self.query_one(Failure)
        if failed != failure.display:
            failure.tell((frame.snapshot.error or "no reason was given; the log may tell") if failed else "")
            self._arrange()
            if failed or self._current == "chat":
                self._focus_current()
        for pane in self._panes.values():
            pane.absorb(frame)

    def open_agent(self, name: str) -> None:
        """Start or select a conversation with an agent, as soon as there is a chat."""
        self.show("chat")
        self._when_there("chat", lambda pane: pane.open_agent(name))  # type: ignore[attr-defined]

    def reveal(self, target: Target) -> None:
        """Go to the pane that shows ``target``, and say so where it is gone."""
        name = pane_of(target)
        self.show(name)

        def show(pane: Pane) -> None:
            if not pane.reveal(target):
                self.app.notify(f"That is no longer in the {pane.TITLE.lower()}.", markup=False)

        self._when_there(name, show)

    @on(Reveal)
    def _on_reveal(self, event: Reveal) -> None:
        self.reveal(event.target)

    def _when_there(self, pane_id: str, do: Callable[[Pane], None]) -> None:
        if (pane := self._panes.get(pane_id)) is not None:
            do(pane)
        else:
            self._wants.append(lambda: self._when_there(pane_id, do))

    # Places

    @property
    def current(self) -> str:
        """The pane that was gone to last."""
        return self._current

    def show(self, pane: str) -> None:
        """Go to a pane: bring it into view and put the focus in it."""
        self._go(pane)
        self._focus_current()

    def _go(self, pane: str) -> None:
        self._current = pane
        if pane in self._dock:
            self._dock_tab = pane
        if pane == "agents":
            self._rail_hidden = False
        self._arrange()

    def _visible(self) -> set[str]:
        if not self._split or self._zoomed:
            return {self._current}
        return {"chat", self._dock_tab} | (set() if self._rail_hidden else {"agents"})

    def _arrange(self) -> None:
        visible = self._visible()
        self.query_one("#rail").display = "agents" in visible
        self.query_one("#main-column").display = visible != {"agents"}
        self.query_one("#talk").display = "chat" in visible
        dock = self.query_one("#dock")
        dock.display = not visible.isdisjoint(self._dock)
        dock.set_class("chat" not in visible, "-alone")
        failed = self.query_one(Failure).display
        for name, pane in self._panes.items():
            seen = name in visible and not (name == "chat" and failed)
            pane.display = seen
            if seen != pane.is_showing:
                pane.show_pane() if seen else pane.hide_pane()
        self._tell_titles()

    def _focus_current(self) -> None:
        if self._current == "chat" and self.query_one(Failure).display:
            self.query_one(Failure).focus()
        elif (pane := self._panes.get(self._current)) is not None:
            pane.focus_pane()

    def _tell_titles(self) -> None:
        place = self._place_of(self.focused)
        for title, panes in (("rail", ("agents",)), ("talk", ("chat",)), ("dock", self._dock)):
            shown = self._dock_tab if panes is self._dock else panes[0]
            pane = self._panes.get(shown)
            self.query_one(f"#{title}-title", TitleBar).tell(
                shown=shown, focused=place in panes, caption=pane.caption if pane is not None else ""
            )

    def _place_of(self, widget: DOMNode | None) -> str | None:
        for node in widget.ancestors_with_self if widget is not None else ():
            if isinstance(node, Pane):
                return node.id
            if isinstance(node, Failure):
                return "chat"
        return None

    def on_resize(self, event: events.Resize) -> None:
        """Large enough for all places, or one at a time."""
        split = event.size.width >= WIDE and event.size.height >= TALL
        if split != self._split:
            self._split = split
            self._arrange()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Whoever clicks or tabs into a pane has gone to it."""
        if (place := self._place_of(event.widget)) is not None and place != self._current:
            self._go(place)
        self._tell_titles()

    def on_descendant_blur(self) -> None:
        """The mark leaves with the focus."""
        self._tell_titles()

    def zoom(self) -> None:
        """The current pane takes the whole screen, or steps back."""
        self._zoomed = self._split and not self._zoomed
        self._arrange()
        self._focus_current()
        self.refresh_bindings()

    def resize_dock(self, lines: int) -> None:
        """Give the dock that many more lines, within what leaves the chat usable."""
        dock = self.query_one("#dock")
        most = self.query_one("#main-column").size.height - _CHAT_LEAST
        dock.styles.height = max(_DOCK_LEAST, min(dock.size.height + lines, most))

    def resize_rail(self, columns: int) -> None:
        """Give the agents that many more columns, between 24 and 60."""
        rail = self.query_one("#rail")
        rail.styles.width = max(_RAIL[0], min(rail.outer_size.width + columns, _RAIL[1]))

    def toggle_rail(self) -> None:
        """Hide the agents, or show them."""
        self._rail_hidden = not self._rail_hidden
        if self._rail_hidden and self._current == "agents":
            self._go("chat")
            self._focus_current()
        self._arrange()

    @property
    def can_go_back(self) -> bool:
        """Whether ``back`` would do anything."""
        return self._zoomed or isinstance(self.focused, Input | TextArea)

    def back(self) -> None:
        """One step back: out of a line of text, or out of the zoom. Never further."""
        if isinstance(self.focused, Input | TextArea):
            self._leave_text()
        elif self._zoomed:
            self.zoom()

    def _leave_text(self) -> None:
        if "agents" in self._visible():
            self.show("agents")
        else:
            self.set_focus(None)

    # What the panes ask for

    def ask(self, question: str, yes: Callable[[], None]) -> None:
        """Ask on the bottom line and call ``yes`` on yes."""
        self.query_one(Ask).ask(question, yes)

    @property
    def asking(self) -> str:
        """The question that stands, empty when none does."""
        return self.query_one(Ask).question

    @on(AgentsPane.Open)
    def _on_open(self, event: AgentsPane.Open) -> None:
        self.open_agent(event.name)

    @on(FeedPane.CancelAsked)
    def _on_cancel(self, event: FeedPane.CancelAsked) -> None:
        run, feed = event.run, self.query_one(FeedPane)

        def cancel() -> None:
            feed.mark_cancelling(run.id)
            self.post_message(self.CancelRun(run.id))

        self.ask(f"Cancel the run of {run.agent}: {run.preview or run.id}?", cancel)

    def focus_target(self) -> Widget | None:
        """The widget whose help and keys are meant now."""
        return self.focused or self._panes.get(self._current)
