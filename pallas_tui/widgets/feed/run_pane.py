"""One run with all its details: its facts, its trace, and its raw exchanges."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message

from pallas.model import Fault, Step
from pallas_tui.text import failure_text

from ...actions import bindings
from ...clipboard import copy
from ...runs.exchange_text import CallExchange, as_json, as_text, lines_of
from ...runs.feed_run import FeedRun
from ...runs.run_tree import HEAD, RunTreeRow, recorded_at
from ...targets import opener_of
from ...text import Glyphs
from ..folded_lines import FoldedLines
from ..line_view import LineView
from ..list_pane import ShowText
from ..pane import Pane
from .feed_view import run_details
from .run_list import ListedExchange, RunList

if TYPE_CHECKING:
    from .feed_pane import FeedPane

DEADLINE: Final = 35.0
"""Seconds that the exchanges may take; the fleet gives up by itself a little before."""
EVERY: Final = 1.0
"""Seconds between two reads of the steps of a run that is under way."""


class ExchangePane(Pane):
    """One exchange; it does not change after it was opened."""

    TITLE = "Exchange"
    HELP = """\
One request and its answer as they went over the wire: headers, then the JSON-RPC, indented.
Credentials are shown by their fingerprint, secrets are masked. **y** copies all of it as text, **c** as JSON.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("exchange")

    def __init__(self, exchange: CallExchange) -> None:
        super().__init__(id="exchange")
        self._exchange = exchange

    def compose(self) -> ComposeResult:
        yield FoldedLines(lines_of(self._exchange), id="exchange-lines")

    async def action_copy(self) -> None:
        """Copy all of it as text."""
        self.notify(await copy(self.app, as_text(self._exchange)), markup=False)

    async def action_copy_json(self) -> None:
        """Copy all of it as JSON."""
        self.notify(await copy(self.app, as_json(self._exchange.exchange)), markup=False)


class RunPane(Pane):
    """Follows its run for as long as the feed keeps it."""

    TITLE = "Run"
    HELP = """\
All details of one run, in three parts. First the facts: its caller, how it ended, and what happened to calls
whose answers were lost when a fleet ended. Then the steps of the whole trace, with number and time:
questions to models, calls of tools and agents, each below the step that caused it. Last the exchanges, which
are what went over the wire: each request with its answer, the agent's own and those to its downstreams. A
request of a step has the step's number and duration. Credentials are shown by their fingerprint only. For a
run of another replica there are its question and its text so far.

The cursor begins at the first step. **tab** goes to the next part: steps, exchanges, facts. **enter** on a
step, or on a line below it, shows what was sent and what came back; on the run itself the first step.
On an exchange it shows headers and bodies, on another run of the trace it opens that run, on a fact it shows
all details as text. **d** marks the run, or compares it with the marked one. **r** reads everything again.
**y** copies the line of the cursor as text, **c** an exchange as JSON.

When a run is over, **w** writes a recording and **s** makes a test. **F** on a step starts another run from
there, with another question, model or result; when that is over, both are compared.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("run")

    class OpenRunLine(Message):
        """Another run, a step or an exchange should be shown."""

        def __init__(self, what: FeedRun | CallExchange | Step) -> None:
            super().__init__()
            self.what = what

    class ShowRunElsewhere(Message):
        """Another pane should show the run."""

        def __init__(self, pane: str) -> None:
            super().__init__()
            self.pane = pane

    def __init__(self, run: FeedRun, feed: "FeedPane", glyphs: Glyphs) -> None:
        super().__init__(id="run")
        self.run = run
        self._feed = feed
        self._glyphs = glyphs
        self._was_running = run.running

    def compose(self) -> ComposeResult:
        yield RunList(self.run, self._relatives, self._glyphs, self._feed.now)

    @property
    def rows(self) -> RunList:
        """The lines."""
        return self.query_one(RunList)

    def on_mount(self) -> None:
        """Subscribe to the feed, and fetch the exchanges."""
        self._feed.watchers.append(self._advance)
        self.set_interval(EVERY, self._follow_steps)
        self.action_read()

    def on_unmount(self) -> None:
        """Unsubscribe from the feed."""
        if self._advance in self._feed.watchers:
            self._feed.watchers.remove(self._advance)

    def _relatives(self) -> list[FeedRun]:
        """Return the topmost runs of the trace; without a trace the one above this run."""
        root = self.run.root
        trace = self.run.trace_id
        found = [each for each in self._feed.feed.roots if trace and each.trace_id == trace]
        return found if root in found else [*found, root]

    def _advance(self, now: float, changed: bool) -> None:
        if not self.is_mounted or not self.query(RunList):  # its content is removed before it is
            return
        self.rows.advance(now, changed)
        if self._was_running != self.run.running:
            self._was_running = self.run.running
            self.action_read()
            self.refresh_bindings()

    def action_read(self) -> None:
        """Fetch the steps and the exchanges."""
        self._fetch_steps()
        if not self.rows.exchanges:
            self.rows.tell((), "reading ...")
        self.run_worker(self._read(), group="exchanges", exclusive=True, exit_on_error=False)

    def _follow_steps(self) -> None:
        if self.run.running:
            self._fetch_steps()

    def _fetch_steps(self) -> None:
        self.run_worker(self._read_steps(), group="steps", exclusive=True, exit_on_error=False)

    async def _read_steps(self) -> None:
        fleet: Any = getattr(self.app, "fleet", None)
        if fleet is not None:
            # An older fleet has no steps, and why none can be read is said of the exchanges.
            with suppress(Fault, TimeoutError, OSError):
                async with asyncio.timeout(DEADLINE):
                    self._feed.feed.learn(self.run, await fleet.steps(self.run.id))
                    self.rows.advance(self._feed.now, True)
                    self.rows.tell_unfinished(await fleet.unfinished_calls(self.run.id))
                    if self.run.replica or self.rows.said:  # another one may have taken it over
                        self.rows.tell_said(await fleet.said(self.run.id))
                    self.rows.tell_limits(await fleet.run_limits(self.run.id))

    async def _read(self) -> None:
        fleet: Any = getattr(self.app, "fleet", None)
        try:
            if fleet is None:
                self.rows.tell((), "The fleet is not running.")
                return
            async with asyncio.timeout(DEADLINE):
                exchanges = await fleet.exchanges(self.run.id)
        except Exception as error:  # a remote fleet may raise others than Fault
            self._failed(failure_text(error, DEADLINE))
        else:
            none = "Nothing of it is kept: only the last runs are, and only while the fleet records them."
            if self.run.replica:
                none = f"Replica {self.run.replica} has them: attach a workbench to that one."
            self.rows.tell(tuple(exchanges), "" if exchanges else none)
        self.refresh_bindings()

    def _failed(self, why: str) -> None:
        self.rows.tell(self.rows.exchanges, f"The exchanges could not be read: {why}. r tries again.")

    @property
    def _exchange(self) -> CallExchange | None:
        entry = self.rows.selected
        return entry.exchange if isinstance(entry, ListedExchange) else None

    def action_choose(self) -> None:
        """Open the line under the cursor; of a fact the whole text of the run."""
        if (target := self._target) is not None:
            self.post_message(self.OpenRunLine(target))
        else:
            self.action_full_text()

    @property
    def _target(self) -> Step | CallExchange | FeedRun | None:
        """What the line under the cursor opens: the run itself leads to its first step."""
        entry = self.rows.selected
        if isinstance(entry, ListedExchange):
            return entry.exchange
        if not isinstance(entry, RunTreeRow):
            return None
        if entry.place != HEAD:
            return recorded_at(entry)
        return entry.run.first_step if entry.run is self.run else entry.run

    @property
    def _step(self) -> tuple[FeedRun, Step] | None:
        """The recorded step that the cursor is on, with its run."""
        entry = self.rows.selected
        if not isinstance(entry, RunTreeRow) or entry.place < 0:
            return None
        record = entry.run.steps[entry.place].record
        return (entry.run, record) if record is not None else None

    def action_full_text(self) -> None:
        """Show the details of the run as text."""
        self.post_message(ShowText(f"{self.run.agent} run", run_details(self.run, self._feed.now)))

    def action_messages(self) -> None:
        """Show the messages between its handlers."""
        if (opener := opener_of(self.app)) is not None:
            opener.open_messages(self.run.id)

    def action_diff(self) -> None:
        """Mark the run in the feed, or compare it with the marked one."""
        self._feed.compare(self.run)
        marked = self._feed.runs.marked
        if marked is self.run:
            self.notify("The run is marked. d on another run compares that one with it.")
        elif marked is None:
            self.notify("No run is marked any more.")

    def action_part(self, by: int) -> None:
        """Go to the part after, or before."""
        self.rows.go_to_part(by)

    def action_fork(self) -> None:
        """Have a run go on from the step under the cursor."""
        found, opener = self._step, opener_of(self.app)
        if found is not None and opener is not None:
            opener.fork_run(found[0], found[1].number)

    def action_record(self) -> None:
        """Write the run into a folder of recordings."""
        if (opener := opener_of(self.app)) is not None:
            opener.record_run(self.run)

    def action_keep(self) -> None:
        """Make a test of the run."""
        if (opener := opener_of(self.app)) is not None:
            opener.keep_run(self.run.id)

    def action_replay(self) -> None:
        """Replay the run."""
        if (opener := opener_of(self.app)) is not None:
            opener.replay_run(self.run)

    async def action_copy(self) -> None:
        """Copy the exchange under the cursor as text, anywhere else the details of the run."""
        exchange = self._exchange
        text = run_details(self.run, self._feed.now) if exchange is None else as_text(exchange)
        self.notify(await copy(self.app, text), markup=False)

    async def action_copy_json(self) -> None:
        """Copy the exchange under the cursor as JSON."""
        if (exchange := self._exchange) is not None:
            self.notify(await copy(self.app, as_json(exchange.exchange)), markup=False)

    def action_elsewhere(self, pane: str) -> None:
        """Show the run in another pane."""
        self.post_message(self.ShowRunElsewhere(pane))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer only what can be done with the line under the cursor."""
        if not self.is_mounted or not self.query(RunList):
            return True
        if action in ("record", "keep", "replay"):
            return not self.run.running
        if action == "fork":
            return (found := self._step) is not None and not found[0].running
        return self._exchange is not None if action == "copy_json" else True

    @on(LineView.CursorMoved)
    def _moved(self, event: LineView.CursorMoved) -> None:
        event.stop()
        self.refresh_bindings()

    @on(LineView.LineChosen)
    def _chosen(self, event: LineView.LineChosen) -> None:
        event.stop()
        self.action_choose()
