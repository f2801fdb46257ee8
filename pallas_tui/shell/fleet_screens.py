"""The part of the workbench that opens screens: of agents, runs, threads, tasks, messages and todos."""

from collections.abc import Callable
from typing import Any

from pallas.model import AgentDetail, Reloaded, ThreadRecord

from ..frame import FleetFrame
from ..messages import MessageBook
from ..records.task_book import TaskBook
from ..records.thread_book import ThreadBook
from ..records.todo_board import TodoBoard
from ..runs.feed_run import FeedRun
from ..targets import RunTarget, Target, ThreadTarget
from ..text import Glyphs
from ..widgets.agents import AgentsPane
from .fleet_actions import Overseer


class FleetScreens(Overseer):
    """``threads`` and ``tasks`` are those of the fleet that runs, as far as the user looked at them.

    ``messages`` and ``todos`` are what its events told of them.
    """

    glyphs: Glyphs
    _clock: Callable[[], float]

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.threads = ThreadBook(lambda: self.fleet)
        self.tasks = TaskBook(lambda: self.fleet)
        self.messages = MessageBook(lambda: self.fleet)
        self.todos = TodoBoard()

    def remember(self, frame: FleetFrame) -> None:
        """Take in a frame."""
        self.tasks.absorb(frame)
        self.messages.absorb(frame)
        self.todos.absorb(frame)

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
        from ..screens.record_screens import ThreadsScreen

        def chosen(record: ThreadRecord | None) -> None:
            if record is not None:
                self.main.reveal(ThreadTarget(record))

        self.push_screen(ThreadsScreen(self.threads, self.glyphs, self.now), chosen)

    def action_tasks(self) -> None:
        """Open the durable tasks of all agents; show the run or thread that the user chooses."""
        from ..screens.record_screens import TasksScreen

        def chosen(target: Target | None) -> None:
            if target is not None:
                self.main.reveal(target)

        self.push_screen(TasksScreen(self.tasks, self.glyphs, self.now), chosen)

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
            self.notify("The feed is not there, which messages belong to.", severity="warning", markup=False)
            return

        def chosen(target: RunTarget | None) -> None:
            if target is not None:
                self._show_run(target)

        self.push_screen(MessagesScreen(self.messages, feed, self.glyphs, run_id), chosen)

    def _none_of(self, agent: str) -> str:
        known = self.fleet.snapshot().agent(agent) if self.fleet is not None else None
        if known is None or known.kind == "handler":
            return f"No messages of {agent} yet; w writes one."
        return f"No handler has written to {agent} yet: messages are what handlers say and hear."

    def _show_run(self, target: RunTarget) -> None:
        """Go to a run on the main screen, from any screen above it."""

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

    def thread_gone(self, thread: str) -> None:
        """A durable thread was deleted: no tab goes on with it."""
        for pane in self.main.query("ChatPane"):
            if (gone := getattr(pane, "thread_gone", None)) is not None:
                gone(thread)
