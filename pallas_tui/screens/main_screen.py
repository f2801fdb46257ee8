"""The one screen: agents on the left, chat on the right, feed, logs and credentials in a dock."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from pallas.model import FleetState

from ..actions import binding, bindings
from ..clipboard import copy
from ..frame import FleetFrame
from ..runs.verdict_tones import verdict_news
from ..state import EventSummary, Tone, summarise
from ..supervision import History
from ..supervision.fleet_trouble import trouble_of
from ..targets import Reveal, RunTarget, Target, opener_of, pane_of
from ..text import Glyphs
from ..widgets.agents import AgentsPane
from ..widgets.agents.agent_control import fleet_of, refusal
from ..widgets.drag_edges import Column
from ..widgets.feed import FeedPane
from ..widgets.pane import Pane
from ..widgets.start_failure import Failure
from ..widgets.status_line import Now, QuestionLine, StatusLine
from ..widgets.tones import DIM, KEY, STYLES
from ..widgets.top_line import TopLine
from ..widgets.verdict_line import VerdictLine
from .pane_places import LatePane, Places
from .screen_layout import TINY, Layouts

__all__ = ["LatePane", "MainScreen"]

_REMOVAL: Final = 2.0
_BATCH: Final = 1_000
_logger = logging.getLogger("pallas_tui")


class BrokenPane(Pane, can_focus=True):
    """Says what happened; everything else on the screen works on."""

    HELP = """\
This pane failed with an error. The fleet and all other panes keep running; **r** opens the pane again, with
what the fleet still remembers. The log has the details, without the content of the pane.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("broken")

    class Rebuild(Message):
        """The user wants the pane made again."""

        def __init__(self, pane: str) -> None:
            super().__init__()
            self.pane = pane

    def __init__(self, title: str, reason: str, report: str, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        """``reason`` is one clean line without secrets, ``report`` the text to copy for a report."""
        super().__init__(id=id, classes="broken")
        self._title = title
        self._reason = reason
        self._report = report
        self._glyphs = glyphs

    def render(self) -> Content:
        """The reason, and the keys."""
        return Content.assemble(
            (f"{self._glyphs.error} This pane failed: ", STYLES[Tone.ERROR]),
            self._reason,
            ("\n\n", ""),
            ("r", KEY),
            (" opens it again, ", DIM),
            ("y", KEY),
            (" copies a report, ", DIM),
            ("4", KEY),
            (" shows the log. The rest of the workbench keeps working.", DIM),
        )

    def focus_pane(self) -> None:
        self.focus()

    def action_rebuild(self) -> None:
        """Make the pane again."""
        self.post_message(self.Rebuild(str(self.id)))

    async def action_copy(self) -> None:
        """Copy what helps to fix it."""
        self.notify(await copy(self.app, self._report))


class MainScreen(Places):
    """The panes and what they ask of one another. A pane that breaks is replaced by words about it."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [binding("chat.new", action="new_conversation", show=False)]
    HELP = """\
Agents on the left, the chat beside them, feed, logs and credentials below, or on the right from 180 columns
on. In a small terminal one of them is shown at a time. The digits go to a pane, **tab** to the next one,
**J** jumps to any of them by a letter.
**Escape** goes back to where a jump from one pane to another came from.
You can drag the edges between them with the mouse.
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

    def __init__(
        self,
        late: Sequence[LatePane],
        glyphs: Glyphs,
        layouts: Layouts | None = None,
        styles: Sequence[Path] = (),
    ) -> None:
        """``styles`` are the style sheets of the late panes and of other screens."""
        super().__init__(late, glyphs, layouts or Layouts(), "main")
        self._late = late
        self._styles = styles
        self.history = History()
        """What became of edits, and which loops were blocked."""
        self._makers: dict[str, Callable[[], Pane]] = {
            "agents": lambda: AgentsPane(
                glyphs,
                folded=self._layouts.folded,
                keep=partial(setattr, self._layouts, "folded"),
                history=self.history,
            ),
            "feed": lambda: FeedPane(glyphs),
            **{pane.id: pane.make for pane in late},
        }
        self._frame: FleetFrame | None = None
        self._seen = 0
        self._last_event: EventSummary | None = None
        self._wants: list[Callable[[], None]] = []

    def compose(self) -> ComposeResult:
        titles = {late.id: late.title for late in self._late}
        yield TopLine(self._glyphs)
        with Horizontal(id="body"):
            with Column("right", id="rail"):
                yield self._title("rail-title", ("agents", AgentsPane.TITLE))
                yield self._makers["agents"]()
            with Vertical(id="main-column"):
                with Vertical(id="talk"):
                    yield self._title("talk-title", ("chat", titles.get("chat", "")))
                    yield Failure(self._glyphs)
                with Column("left", id="dock"):
                    late = ((pane, titles[pane]) for pane in self._dock if pane in titles)
                    yield self._title("dock-title", ("feed", FeedPane.TITLE), *late)
                    yield self._makers["feed"]()
        yield Static(f"Too small: make it {TINY[0]}x{TINY[1]} at least", id="too-small", markup=False)
        yield VerdictLine(self._glyphs)
        yield QuestionLine()
        yield StatusLine()

    def on_mount(self) -> None:
        """Take up the panes that are there; the late ones come after the first paint."""
        for pane in self.query(Pane):
            self._take_up(pane)
        self._arrange()
        self.call_after_refresh(self._mount_late)

    async def _mount_late(self) -> None:
        self.post_message(self.Painted())
        self.app.stylesheet.read_all(self._styles)
        self.app.stylesheet.parse()
        zoomed = self._layouts.of(self._size_class).zoomed if self._size_class else ""
        for late in self._late:
            try:
                pane = late.make()
                await self._home_of(late.id).mount(pane)
            except Exception as error:
                pane = self._stand_in(late.id, late.title, error)
                await self._home_of(late.id).mount(pane)
            self._take_up(pane)
            self._feed_one(pane)
        if self._split and zoomed in self._panes and not self._layout.zoomed:
            self._layout = self._layouts.of(self._size_class or "wide")
            self._current = zoomed
        self._arrange()
        self._focus_current()
        wants, self._wants = self._wants, []
        for want in wants:
            want()
        self.post_message(self.Complete())

    def _home_of(self, pane: str) -> Vertical:
        return self.query_one({"chat": "#talk", "agents": "#rail"}.get(pane, "#dock"), Vertical)

    # Frames

    def absorb(self, frame: FleetFrame) -> None:
        """Hand a frame to everything on the screen."""
        self._frame = frame
        if frame.events:
            self._seen = frame.events[-1].seq
        todos, questions = getattr(self.app, "todos", None), getattr(self.app, "questions", None)
        raised = todos.raised if todos is not None else 0
        asked = questions.waiting if questions is not None else 0
        summary = summarise(frame, self._last_event, raised, asked)
        self._last_event = summary.last_event
        self.history.absorb(frame)
        self.query_one(TopLine).tell(summary, trouble_of(frame.snapshot, self.history), frame.now)
        self.tell_verdict(frame.now)
        failed = frame.snapshot.state is FleetState.FAILED
        failure = self.query_one(Failure)
        if failed != failure.display:
            failure.tell(frame.snapshot if failed else None)
            self._arrange()
            if failed or self._current == "chat":
                self._focus_current()
        for pane in tuple(self._panes.values()):
            self._feed_one(pane)

    def tell_verdict(self, now: float) -> None:
        """Say what there is to say of verdicts, in a line."""
        if (verdicts := getattr(self.app, "verdicts", None)) is not None:
            self.query_one(VerdictLine).tell(verdict_news(verdicts, now))

    def _feed_one(self, pane: Pane) -> None:
        if self._frame is None:
            return
        try:
            pane.absorb(self._frame)
        except Exception as error:
            self._broke(pane, error)

    def _show_or_hide(self, pane: Pane, seen: bool) -> None:
        try:
            super()._show_or_hide(pane, seen)
        except Exception as error:
            self._broke(pane, error)

    # A pane that breaks

    def _broke(self, pane: Pane, error: Exception) -> None:
        contain = getattr(self.app, "contain", None)
        if contain is None or not contain(pane, error):
            raise error

    def pane_of(self, widget: object) -> Pane | None:
        """The pane of this screen that a widget is in."""
        for node in getattr(widget, "ancestors_with_self", ()):
            if isinstance(node, Pane) and self._panes.get(str(node.id)) is node:
                return node
        return None

    async def replace_broken(self, pane: Pane, reason: str, report: str) -> None:
        """Take a broken pane away and say in its place why; what it held is lost."""
        name = str(pane.id)
        await self._exchange(pane, BrokenPane(pane.TITLE, reason, report, self._glyphs, id=name))

    def _stand_in(self, name: str, title: str, error: Exception) -> Pane:
        explain = getattr(self.app, "explain", None)
        if explain is None or getattr(self.app, "strict", False):
            raise error
        reason, report = explain(error, f"making the {name} pane")
        return BrokenPane(title, reason, report, self._glyphs, id=name)

    @on(BrokenPane.Rebuild)
    async def _on_rebuild(self, event: BrokenPane.Rebuild) -> None:
        event.stop()
        old = self._panes.get(event.pane)
        if not isinstance(old, BrokenPane):
            return
        try:
            new = self._makers[event.pane]()
        except Exception as error:
            new = self._stand_in(event.pane, old.TITLE or event.pane, error)
        await self._exchange(old, new)

    async def _exchange(self, old: Pane, new: Pane) -> None:
        name = str(old.id)
        focused = self._current == name
        home = self._home_of(name)
        try:
            async with asyncio.timeout(_REMOVAL):
                await old.remove()
        except Exception:  # what broke it may have stopped its message loop as well
            _logger.exception("the %s pane could not be removed", name)
        if old.is_attached:
            self._panes.pop(name, None)
            old.display = False
            self.notify(f"The {name} pane could not be opened again; quit and start again.", severity="error")
            return
        await home.mount(new)
        await self._replay(new)
        self._take_up(new)
        self._feed_one(new)
        self._arrange()
        if focused:
            self._focus_current()

    async def _replay(self, pane: Pane) -> None:
        """Give a new pane what the fleet still remembers, up to what the others have seen."""
        fleet, frame, seq = getattr(self.app, "fleet", None), self._frame, 0
        while fleet is not None and frame is not None:
            batch = fleet.since(seq, _BATCH)
            events = tuple(event for event in batch.events if event.seq <= self._seen)
            if not events:
                break
            seq = events[-1].seq
            try:
                pane.absorb(replace(frame, events=events, dropped=0))
            except Exception as error:
                self._broke(pane, error)
                break
            await asyncio.sleep(0)

    # What the panes ask for

    def open_agent(self, name: str) -> None:
        """Start or select a conversation with an agent, as soon as there is a chat."""
        self.jump("chat")
        self._when_there("chat", lambda pane: getattr(pane, "open_agent", lambda name: None)(name))

    def action_new_conversation(self) -> None:
        """Choose an agent from any pane, and go to the conversation with it."""

        def choose(pane: Pane) -> None:
            show = partial(self.jump, "chat")
            getattr(pane, "choose_agent", lambda then: then())(show)

        self._when_there("chat", choose)

    def reveal(self, target: Target) -> None:
        """Go to the pane that shows ``target``, and say so where it is gone."""
        name = pane_of(target)
        self.jump(name)

        def show(pane: Pane) -> None:
            if pane.reveal(target):
                return
            missing, opener = f"That is no longer in the {pane.TITLE.lower()}.", opener_of(self.app)
            if opener is not None and pane is self.feed and isinstance(target, RunTarget):
                opener.find_run(target.run_id, missing)
            else:
                self.app.notify(missing, markup=False)

        self._when_there(name, show)

    @on(Reveal)
    def _on_reveal(self, event: Reveal) -> None:
        self.reveal(event.target)

    def _when_there(self, pane_id: str, do: Callable[[Pane], None]) -> None:
        if (pane := self._panes.get(pane_id)) is not None:
            do(pane)
        else:
            self._wants.append(lambda: self._when_there(pane_id, do))

    def ask(self, question: str, yes: Callable[[], None], now: Now | None = None) -> None:
        """Ask on the bottom line and call ``yes`` on yes; ``now`` keeps the question true."""
        self.query_one(QuestionLine).ask(question, yes, now)

    @property
    def asking(self) -> str:
        """The question that stands, empty when none does."""
        return self.query_one(QuestionLine).question

    @on(AgentsPane.TalkToAgent)
    def _on_open(self, event: AgentsPane.TalkToAgent) -> None:
        self.open_agent(event.name)

    @property
    def feed(self) -> FeedPane | None:
        """The feed, unless it broke."""
        pane = self._panes.get("feed")
        return pane if isinstance(pane, FeedPane) else None

    @property
    def agents(self) -> AgentsPane | None:
        """The agents, unless their pane broke."""
        pane = self._panes.get("agents")
        return pane if isinstance(pane, AgentsPane) else None

    @on(FeedPane.VersionAsked)
    def _on_version(self, event: FeedPane.VersionAsked) -> None:
        if (opener := opener_of(self.app)) is not None:
            opener.open_changes(event.event.agent, event.event)

    @on(FeedPane.CancelAsked)
    def _on_cancel(self, event: FeedPane.CancelAsked) -> None:
        run, feed = event.run, self.query_one(FeedPane)
        if problem := refusal(fleet_of(self)):
            self.app.notify(problem, severity="warning", markup=False)
            return

        def cancel() -> None:
            feed.mark_cancelling(run.id)
            self.post_message(self.CancelRun(run.id))

        question = f"Cancel the run of {run.agent}: {run.preview or run.id}?"
        over = f"The run of {run.agent} is over: there is nothing to cancel."
        self.ask(question, cancel, lambda: (question, "") if run.running else ("", over))
