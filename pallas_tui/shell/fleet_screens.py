"""Opens screens of the workbench: of agents, runs, threads, questions, messages, replicas, tests and more."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from pallas.model import AgentDetail, Fault, Reloaded, Step, ThreadRecord, VerdictReached
from pallas.model.questions import Question

from ..frame import FleetFrame
from ..messages import MessageBook
from ..records.agent_test_book import AgentTestBook
from ..records.question_book import QuestionBook
from ..records.replica_book import ReplicaBook
from ..records.task_book import TaskBook
from ..records.thread_book import ThreadBook
from ..records.todo_board import TodoBoard
from ..records.verdict_book import VerdictBook
from ..runs.feed_run import FeedRun
from ..runs.past_runs import PastRuns
from ..runs.runs_elsewhere import RunsElsewhere
from ..targets import RunTarget, Target, ThreadTarget
from ..text import Glyphs
from ..widgets.agents import AgentsPane
from .run_replayer import RunReplayer

COMPARED_WITHIN: Final = 130.0
"""Seconds that two runs may take to be read; the fleet gives up by itself a little before."""


class FleetScreens(RunReplayer):
    """``threads``, ``tasks``, ``questions`` and ``replicas`` are those of the fleet that runs, as far as
    the user looked, ``runs_elsewhere`` the runs of its other replicas, ``past_runs`` those from before.

    ``agent_tests`` are those of its project, None before they were looked at. ``messages`` and ``todos``
    are what its events told of them, ``verdicts`` those on saves.
    """

    glyphs: Glyphs
    agent_tests: AgentTestBook | None = None
    _clock: Callable[[], float]

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.threads = ThreadBook(lambda: self.fleet)
        self.tasks = TaskBook(lambda: self.fleet)
        self.questions = QuestionBook(lambda: self.fleet)
        self.messages = MessageBook(lambda: self.fleet)
        self.todos = TodoBoard()
        self.replicas = ReplicaBook(lambda: self.fleet)
        self.verdicts = VerdictBook(lambda: self.fleet)
        self.runs_elsewhere = RunsElsewhere(lambda: self.fleet)
        self.past_runs = PastRuns(lambda: self.fleet)
        self._last_frame: FleetFrame | None = None

    def remember(self, frame: FleetFrame) -> None:
        """Take in a frame."""
        self._last_frame = frame
        self.tasks.absorb(frame)
        self.questions.absorb(frame)
        if self.fleet is not None and self.questions.due(frame):
            self._read_questions()
        self.messages.absorb(frame)
        self.todos.absorb(frame)
        self.verdicts.absorb(frame)
        if self.fleet is not None and self.verdicts.is_due(frame):
            self._read_verdict()
        if self.agent_tests is not None:
            self.agent_tests.absorb(frame)

    def _read_questions(self) -> None:
        """Learn which questions are open; a fleet that does not tell them is asked again later."""

        async def read() -> None:
            with suppress(Fault):
                await self.questions.read_open(self.now())

        self.run_worker(read(), group="questions", description="read questions", exit_on_error=False)

    def _read_verdict(self) -> None:
        """Learn the last verdict of a fleet that was attached; a token that may only look gets none."""

        async def read() -> None:
            with suppress(Fault):
                await self.verdicts.read(self.now())
                self.main.tell_verdict(self.now())

        self.run_worker(read(), group="verdict", description="read the last verdict", exit_on_error=False)

    def look_elsewhere(self) -> None:
        """Learn what is new of the runs of other replicas, for the feed; returns at once."""
        if not self.screen_stack:  # a last tick, while the workbench ends
            return
        feed, frame = self.main.feed, self._last_frame
        if self.fleet is None or feed is None or frame is None:
            return
        snapshot, doubtful = frame.snapshot, feed.feed.doubtful
        if self.runs_elsewhere.is_due(snapshot, doubtful):
            work = self.runs_elsewhere.look(snapshot, doubtful)
            self.run_worker(work, group="elsewhere", exit_on_error=False)
        if self.past_runs.is_due(snapshot):
            self._recall_runs()

    def _recall_runs(self) -> None:
        """Give the feed the last runs of the ledger."""

        async def recall() -> None:
            feed, fleet = self.main.feed, self.fleet
            if fleet is not None and feed is not None:
                feed.recall(await self.past_runs.read(fleet.snapshot()))

        self.run_worker(recall(), group="past runs", exit_on_error=False)

    def now(self) -> float:
        """The workbench's time, in Unix seconds."""
        return self._clock()

    def action_changes(self) -> None:
        """The last versions of all agents."""
        self.open_changes()

    def open_run(self, run: FeedRun) -> None:
        """Show all of a run of the feed."""
        from ..screens.run_screen import RunScreen

        if (feed := self.main.feed) is not None:
            self.push_screen(RunScreen(run, feed, self.glyphs))

    def open_step(self, step: Step) -> None:
        """Show what a step of a run sent, and what came back."""
        from ..screens.run_screen import StepScreen

        self.push_screen(StepScreen(step, self.glyphs))

    def find_run(self, run_id: str, missing: str) -> None:
        """Look in the ledger for a run that the feed does not have, and show it; else say ``missing``."""

        async def find() -> None:
            feed, fleet = self.main.feed, self.fleet
            if fleet is not None and feed is not None:
                await self.runs_elsewhere.find(run_id, fleet.snapshot())
                told = self.runs_elsewhere.take()
                feed.feed.absorb(FleetFrame(fleet.snapshot(), (), self.now(), elsewhere=told))
            if feed is None or not feed.reveal(RunTarget(run_id)):
                self.notify(missing, markup=False)

        self.run_worker(find(), group="find run", exclusive=True, exit_on_error=False)

    def open_diff(self, before: FeedRun, after: FeedRun) -> None:
        """Show what differs between two runs of the feed."""
        from ..runs.run_comparison import Comparison, DiffSource, compare
        from ..screens.run_screen import DiffScreen

        async def read() -> Comparison:
            fleet: Any = self.fleet
            return await compare(fleet, before.id, after.id)

        names = f"{before.agent} {before.id[:12]}", f"{after.agent} {after.id[:12]}"
        self.push_screen(DiffScreen(DiffSource(names, read, COMPARED_WITHIN), self.glyphs))

    def open_details(
        self, name: str, section: str = "overview", server: str | None = None, tool: str = ""
    ) -> None:
        """Show everything about an agent, from ``section`` on; in ``tools`` at ``tool`` of ``server``."""
        from ..screens.agent_screen import AgentScreen

        if (agents := self.main.agents) is not None:
            self.push_screen(AgentScreen(agents, name, section, server, tool))

    def open_changes(self, agent: str = "", event: Reloaded | None = None) -> None:
        """Show the versions of an agent, or of all; with the cursor on ``event``."""
        from ..screens.agent_screen import ChangesScreen

        if (agents := self.main.agents) is not None:
            self.push_screen(ChangesScreen(agents, agent, event))

    def open_send(self, agent: str) -> None:
        """Show a form for a message to an agent: for its payload, or for its text where it takes that."""
        from ..widgets.messages.handler_lookup import look_up

        def opened(detail: AgentDetail, agents: AgentsPane) -> None:
            from ..screens.messages_screen import SendScreen
            from ..screens.tool_screen import ToolScreen

            if detail.payload is not None:
                self.push_screen(SendScreen(agent, detail.payload, agents.knowledge.memory, agents.glyphs))
                return
            own = next((each.tools for each in detail.servers if not each.server), ())
            tool = next((each for each in own if each.name == "send_message"), None)
            if tool is None:
                self.notify(f"{agent} takes no message now.", severity="warning", markup=False)
            else:
                self.push_screen(ToolScreen(agents, agent, "", tool))

        look_up(self.screen.focused or self.screen, agent, opened)

    def action_threads(self) -> None:
        """Durable threads of all agents; whichever is chosen is opened in the chat."""
        self.open_threads()

    def open_threads(self, search: str = "") -> None:
        """The same, with ``search`` those in which that was said."""
        from ..screens.record_screens import ThreadsScreen

        def chosen(record: ThreadRecord | None) -> None:
            if record is not None:
                self.main.reveal(ThreadTarget(record))

        self.push_screen(ThreadsScreen(self.threads, self.glyphs, self.now, search), chosen)

    def action_tasks(self) -> None:
        """Open the durable tasks of all agents; show the run or thread that the user chooses."""
        from ..screens.record_screens import TasksScreen

        def chosen(target: Target | None) -> None:
            if target is not None:
                self.main.reveal(target)

        self.push_screen(TasksScreen(self.tasks, self.glyphs, self.now), chosen)

    def action_questions(self) -> None:
        """Open the questions to people; show the run or thread that the user chooses."""
        from ..screens.record_screens import QuestionsScreen

        def chosen(target: Target | None) -> None:
            if target is not None:
                self._show_on_main(target)

        if not any(isinstance(screen, QuestionsScreen) for screen in self.screen_stack):
            self.push_screen(QuestionsScreen(self.questions, self.glyphs, self.now, self.run_of), chosen)

    def fill_in(self, question: Question) -> None:
        """Open the form of a question."""
        from ..screens.record_screens import QuestionFormScreen

        self.push_screen(QuestionFormScreen(question, self.questions, self.glyphs, self.now))

    def run_in_view(self, run_id: str) -> bool:
        """Whether the conversation that waits for this run, or one above it, can be seen now."""
        run = self.run_of(run_id)
        panes = self.main.query("ChatPane") if self.screen is self.main and run is not None else ()
        return any(getattr(pane, "shows_run", lambda run: False)(run.root.id) for pane in panes if run)

    def run_of(self, run_id: str) -> FeedRun | None:
        """A run that the feed has."""
        feed = self.main.feed
        return feed.feed.run(run_id) if feed is not None and run_id else None

    def action_messages(self) -> None:
        """What handlers said to each other in the last run in which they did."""
        self.open_messages()

    def open_messages(self, run_id: str = "", agent: str = "") -> None:
        """The messages of a run; without one those of the last run, in which ``agent`` sent or got one."""
        from ..screens.messages_screen import MessagesScreen

        feed = self.main.feed
        if not run_id:
            last = self.messages.last_of(agent)
            if last is None and agent:
                self.notify(self._none_of(agent), markup=False)
                return
            run_id = last.run_id if last is not None else ""
        if feed is None:
            self.notify(
                "Messages are opened from the feed, which is not open.", severity="warning", markup=False
            )
            return

        def chosen(target: RunTarget | None) -> None:
            if target is not None:
                self._show_on_main(target)

        self.push_screen(MessagesScreen(self.messages, feed, self.glyphs, run_id), chosen)

    def _none_of(self, agent: str) -> str:
        known = self.fleet.snapshot().agent(agent) if self.fleet is not None else None
        if known is None or known.kind == "handler":
            return f"No messages of {agent} yet; w writes one."
        return f"No handler has written to {agent} yet: only handlers exchange messages."

    def _show_on_main(self, target: Target) -> None:
        """Go to a target on the main screen, from any screen above it."""

        async def show() -> None:
            while self.screen is not self.main:
                await self.pop_screen()
            self.main.reveal(target)

        self.call_next(show)

    def action_todos(self) -> None:
        """Open the todos of handlers; show the run of the chosen one."""
        from ..screens.record_screens import TodosScreen

        def chosen(found: tuple[str, bool] | None) -> None:
            if found is None:
                return
            run_id, messages = found
            if messages:
                self.open_messages(run_id)
            else:
                self.main.reveal(RunTarget(run_id))

        self.push_screen(TodosScreen(self.todos, self.glyphs, self.now), chosen)

    def action_replicas(self) -> None:
        """Open the replicas of the fleet."""
        from ..screens.record_screens import ReplicasScreen

        self.push_screen(ReplicasScreen(self.replicas, self.glyphs, self.now))

    def action_tests(self) -> None:
        """Open the tests of the project."""
        from ..screens.agent_test_screens import AgentTestsScreen

        self.push_screen(AgentTestsScreen(self._tests(), self.glyphs, self.now))

    def _tests(self) -> AgentTestBook:
        """The tests of the project, with what was said of them before anyone looked."""
        if self.agent_tests is None:
            self.agent_tests = AgentTestBook(self.root, self.now)
            for attempt in self.main.history.versions.all_broken:
                self.agent_tests.note(attempt.event)
            for verdict in reversed(self.verdicts.saves):
                self.agent_tests.note_verdict(verdict)
        return self.agent_tests

    def action_verdicts(self) -> None:
        """Open the verdicts on saves."""
        self.open_verdicts()

    def open_verdicts(self, event: VerdictReached | None = None) -> None:
        """The verdicts on saves; with the cursor on ``event``."""
        from ..screens.verdict_screens import VerdictsScreen
        from ..widgets.verdicts.judged_run_pane import VerdictContext

        context = VerdictContext(self.verdicts, self._tests(), self.main.agents, self._last_run)
        self.verdicts.look()
        self.main.tell_verdict(self.now())
        self.push_screen(VerdictsScreen(context, self.glyphs, self.now, event))

    def _last_run(self, agent: str, since: float, fits: Callable[[FeedRun], bool]) -> FeedRun | None:
        """The last run of an agent that a caller began since then, went well, and fits."""
        runs = self.main.feed.feed.runs if self.main.feed is not None else ()
        found = (
            run
            for run in runs
            if run.agent == agent and run.parent is None and run.started > since and run.state == "ok"
        )
        return max(filter(fits, found), key=lambda run: run.started, default=None)

    def show_run(self, run_id: str) -> None:
        """Go to a run in the feed, from any screen."""
        self._show_on_main(RunTarget(run_id))

    def thread_gone(self, thread: str) -> None:
        """A durable thread was deleted: no tab goes on with it."""
        for pane in self.main.query("ChatPane"):
            if (gone := getattr(pane, "thread_gone", None)) is not None:
                gone(thread)
