"""One message sent again: its original run, the new run, and the differences of the replies."""

from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static
from textual.worker import Worker

from pallas.model import AgentSnapshot, Envelope, Fault, ToolOutcome

from ...actions import bindings
from ...agents.agent_knowledge import Knowledge, LookupFailed
from ...clipboard import copy
from ...messages import MessageBook
from ...messages.message_replay import Replies, message_of, old_reply, replies, run_id_of, run_of
from ...messages.message_tree import MessageQuery, MessageRow, rows_of
from ...messages.reply_difference import difference, difference_lines, readable
from ...messages.xml_text import title_of
from ...runs.feed_run import FeedRun
from ...state import Tone
from ...text import Glyphs, Line, count, duration
from ..agents.agent_control import fleet_of, refusal
from ..folded_lines import FoldedLines
from ..form.tool_call import Subject, call
from ..line_view import LineView
from ..pane import Pane
from ..tones import DIM, STRONG, STYLES, shape
from .message_list import MessageList

if TYPE_CHECKING:
    from ..feed import FeedPane


class ReplayPane(Pane):
    """Sends the message on mount, and again on request; leaving it cancels a call in progress."""

    TITLE = "Replay"
    HELP = """\
One message sent again, as a call from outside, to the same agent as it is now: after a reload that is its
new version. The messages of the old run are on the left, those of the new one on the right as they arrive,
and the difference of the two replies below: `-` is only in the old one, `+` only in the new one.

**r** sends it again, **enter** opens the messages of the run that has the focus (**tab** goes from one to the
other), **y** copies the difference.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("replay")

    class OpenReplayRun(Message):
        """The messages of a run should be shown."""

        def __init__(self, run_id: str) -> None:
            super().__init__()
            self.run_id = run_id

    def __init__(
        self, letter: Envelope, book: MessageBook, feed: "FeedPane", knowledge: Knowledge, glyphs: Glyphs
    ) -> None:
        super().__init__(id="replay")
        self._letter, self._book, self._feed, self._glyphs = letter, book, feed, glyphs
        self._knowledge = knowledge
        self._before: frozenset[str] = frozenset()
        self._message = ""
        self._new: FeedRun | None = None
        self._began = 0.0
        self._busy = False
        self._problem = ""
        self._outcome: ToolOutcome | None = None
        self._replies: Replies | None = None
        self._work: Worker[None] | None = None
        self._state: object = None

    def compose(self) -> ComposeResult:
        with Container(id="replay-runs"):
            with Vertical():
                yield Static(classes="replay-head", id="replay-then", markup=False)
                yield MessageList(self._book, self._glyphs, id="replay-old")
            with Vertical(id="replay-right"):
                yield Static(classes="replay-head", id="replay-now", markup=False)
                yield MessageList(self._book, self._glyphs, id="replay-new")
        yield Static(classes="replay-head", id="replay-status", markup=False)
        yield FoldedLines(id="replay-diff")

    def on_mount(self) -> None:
        """Send the message, and subscribe to the feed."""
        self._feed.watchers.append(self._advance)
        self.call_after_refresh(self.action_again)

    def on_unmount(self) -> None:
        """Unsubscribe from the feed."""
        if self._advance in self._feed.watchers:
            self._feed.watchers.remove(self._advance)
        if self._work is not None:
            self._work.cancel()
        if self._new is not None and (messages := self._book.run(self._new.id)) is not None:
            messages.lighten()

    @property
    def _is_composed(self) -> bool:
        return self.is_mounted and self.is_attached and len(self.query("#replay-diff, #replay-new")) == 2

    # Showing

    def _advance(self, now: float, changed: bool) -> None:
        if not self._is_composed or self.app.screen is not self.screen:
            return
        if self._new is None and self._message:
            self._new = run_of(self._feed.feed.runs, self._before, self._letter.to, self._message)
        self._paint()

    def _paint(self) -> None:
        now = self._feed.now
        old = self._feed.feed.run(self._letter.run_id)
        new = self._new.id if self._new is not None else ""
        trees = tuple(run.tree_version if run is not None else 0 for run in (old, self._new))
        state = (self._book.version, trees, new)
        if state != self._state:
            self._state = state
            self._show_run("#replay-old", self._letter.run_id, old, "It is no longer kept.")
            self._show_run(
                "#replay-new", new, self._new, "It is being sent." if self._busy else "No messages."
            )
        else:
            for view in self.query(MessageList):
                view.tick(now)
        self._say()

    def _show_run(self, view: str, run_id: str, run: FeedRun | None, hint: str) -> None:
        rows: list[MessageRow] = rows_of(self._book, run_id, run, MessageQuery()) if run_id else []
        runs = {each.id: each for each in run.family()} if run is not None else {}
        self.query_one(view, MessageList).take(rows, runs, self._feed.now, hint)

    def _say(self) -> None:
        snapshot = self._agent()
        version = f" v{snapshot.version}" if snapshot is not None and snapshot.version else ""
        agent = self._letter.to
        self._head("#replay-then", (("then", STRONG), (f"  {agent}, run {self._letter.run_id[:8]}", DIM)))
        run = f", run {self._new.id[:8]}" if self._new is not None else ""
        self._head("#replay-now", (("now", STRONG), (f"  {agent}{version}{run}", DIM)))
        self._head("#replay-status", self._verdict())

    def _agent(self) -> AgentSnapshot | None:
        fleet = fleet_of(self)
        return fleet.snapshot().agent(self._letter.to) if fleet is not None else None

    def _head(self, which: str, line: Line) -> None:
        static, content = self.query_one(which, Static), Content.assemble(*line)
        if static.content != content:
            static.update(content, layout=False)

    def _verdict(self) -> Line:
        glyphs = self._glyphs
        if self._busy:
            took = duration(monotonic() - self._began, running=True)
            return ((f"{glyphs.running} sending {took}", STYLES[Tone.STARTING]),)
        if self._problem:
            return ((f"{glyphs.error} {self._problem}", STYLES[Tone.ERROR]),)
        found, outcome = self._replies, self._outcome
        if found is None or outcome is None:
            return ()
        took = f" after {duration(outcome.seconds)}"
        if not found.ok:
            return (shape(Tone.ERROR, glyphs), (f" it failed{took}", STYLES[Tone.ERROR]))
        if found.none:
            return (shape(Tone.OK, glyphs), (f" answered{took}; {found.none[0].lower()}{found.none[1:]}", ""))
        if found.same:
            return (shape(Tone.OK, glyphs), (f" the same reply{took}", STYLES[Tone.OK]))
        lines = sum(line[:1] in "+-" for line in difference(found.old, found.new))
        return (shape(Tone.DEGRADED, glyphs), (f" another reply{took}: {count(lines, 'line')} differ", ""))

    def _differing(self) -> list[Line]:
        found = self._replies
        if found is None:
            return []
        if not found.ok or found.none or found.same:
            return [((line, STYLES[Tone.ERROR] if not found.ok else ""),) for line in readable(found.new)]
        return difference_lines(found.old, found.new)

    # Sending

    def action_again(self) -> None:
        """Send it once more."""
        if self._busy:
            return
        if problem := refusal(fleet_of(self)):
            self._problem = problem
            self._paint()
            return
        self._busy, self._began, self._problem = True, monotonic(), ""
        self._new, self._replies, self._message = None, None, ""
        self._before = frozenset(run.id for run in self._feed.feed.runs)
        self._work = self.run_worker(
            self._send(), group="replay", exit_on_error=False, description="replay message"
        )
        self._paint()

    async def _send(self) -> None:
        letter = self._letter
        try:
            letter = await self._whole(letter)
            detail = await self._knowledge.look_up(fleet_of(self), letter.to)
            message = message_of(letter, detail)
            fleet = fleet_of(self)
            if not message or fleet is None:
                self._problem = "Its text is no longer kept; write it again: s."
                return
            answer = await self._answer(letter)
            self._message = message
            subject = Subject(letter.to, "", "send_message")
            self._outcome = await call(fleet, subject, {"message": message}, None)
            self._replies = replies(answer, self._outcome)
            # The run id in its answer is more reliable than a run that began at the same time.
            self._new = self._feed.feed.run(run_id_of(self._outcome)) or self._new
        except LookupFailed as error:
            self._problem = f"{letter.to}: {error}"
        except Fault as fault:
            self._problem = fault.message
        finally:
            self._busy = False
            if self._is_composed:
                self._state = None
                self._paint()
                self.query_one("#replay-diff", FoldedLines).put(self._differing())

    async def _whole(self, letter: Envelope) -> Envelope:
        """Return the message with its XML."""
        if not letter.xml:
            await self._book.read(letter.run_id, letter.agent, letter.number - 1)
            messages = self._book.run(letter.run_id)
            letter = (messages.get(letter.number) if messages is not None else None) or letter
        return letter

    async def _answer(self, letter: Envelope) -> Envelope | None:
        found = old_reply(self._book.run(letter.run_id), letter)
        return await self._whole(found) if found is not None else None

    # Keys

    @on(LineView.LineChosen)
    def _chosen(self, event: LineView.LineChosen) -> None:
        event.stop()
        self.action_messages()

    def action_messages(self) -> None:
        """Open the messages of the run that has the focus."""
        old = self.query_one("#replay-old").has_focus
        run_id = self._letter.run_id if old else self._new.id if self._new is not None else ""
        if run_id:
            self.post_message(self.OpenReplayRun(run_id))

    async def action_copy(self) -> None:
        """Copy the difference."""
        found = self._replies
        if found is not None:
            text = "\n".join(difference(found.old, found.new)) if not found.none else ""
            self.notify(await copy(self.app, text or found.new), markup=False)


def caption_of(letter: Envelope, glyphs: Glyphs) -> str:
    """Return the caption of the message that is sent again."""
    return f"{title_of(letter, glyphs.outbound)} {letter.payload}"
