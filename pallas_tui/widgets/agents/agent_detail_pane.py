"""Everything about one agent: overview, tools, instruction, registry entry; looked up when it is opened."""

import asyncio
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

from pallas.model import AgentDetail, Fault, FleetPort, ServerDetail, Verb

from ...actions import bindings
from ...agents.agent_knowledge import LookupFailed
from ...agents.source_line import open_source
from ...clipboard import copy
from ...forms import warm_up
from ...targets import opener_of
from ...text import Glyphs
from ...ui_clock import PERIOD
from ..filter_line import FilterLine
from ..folded_lines import FoldedLines
from ..line_view import LineView
from ..pane import PaneLeft, SectionShown, SectionsPane
from ..status_line import StatusLine
from ..text_lines import TextLines
from ..tones import DIM, KEY
from .agent_control import control, fleet_of, refusal
from .agent_paragraphs import about_tool, overview, plain, pretty
from .lock_lines import lock_lines, not_acceptable
from .resource_readings import ResourceReadings, about_resource
from .tool_list import ToolList
from .tool_rows import ToolRow, tool_rows

if TYPE_CHECKING:
    from .agents_pane import AgentsPane


class DetailPane(SectionsPane):
    """One agent, in sections; what must be asked for is asked for in the background."""

    TITLE = "Agent"
    HELP = """\
All details of one agent. The digits, or **tab**, go from section to section: its state, its tools and those
of the servers it calls, its instruction, its registry entry.

In the tools a **+** is new since you last saw the list, a **~** changed, a **-** is gone. A **!** differs
from `tools.lock`: **a** shows what changed, word by word, and accepts it. A **?** marks a
suspicious text. **Enter** on a tool opens a form that calls it by hand. **Enter** on a resource (**@**) reads
it, **w** subscribes to it, so that it is read again with each update, or unsubscribes; leaving this screen
unsubscribes too. **c** shows the agent's versions and what changed.
**e** opens the file in which the agent is configured, **u** looks everything up again, **y** copies what the
section shows.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("agent")

    SECTIONS = ("overview", "tools", "instruction", "registry")

    class CallTool(Message):
        """The user wants to call a tool by hand."""

        def __init__(self, row: ToolRow) -> None:
            super().__init__()
            self.row = row

    def __init__(
        self, agents: "AgentsPane", name: str, glyphs: Glyphs, section: str, server: str | None, tool: str
    ) -> None:
        super().__init__(id="agent-detail", section=section)
        self._agents = agents
        self._agent = name
        self._glyphs = glyphs
        self._wanted: tuple[str | None, str] | None = (server, tool)
        self._problem = ""
        self._loading = False
        self._beat_seen: object = None
        self._version = 0
        self._resources = ResourceReadings(self, name, self._resource_changed)

    def compose(self) -> ComposeResult:
        yield TextLines(id="agent-text")
        with Horizontal(id="agent-tools"):
            yield ToolList(self._agent, self._glyphs)
            yield TextLines(id="tool-about")
        yield FilterLine("name, description", id="tool-filter")
        yield Static(id="agent-status", markup=False)

    def on_mount(self) -> None:
        """Show the cached details, and ask for missing ones."""
        self.tools.seen_of = self._resources.of
        self._show_section()
        self._take(self._known)
        self.look_up()
        self.set_interval(PERIOD, self._beat)

    @property
    def tools(self) -> ToolList:
        """The list of tools."""
        return self.query_one(ToolList)

    @property
    def _known(self) -> AgentDetail | None:
        return self._agents.knowledge.detail(self._agent)

    def look_up(self) -> None:
        """Ask for everything again; the old details stay until the answer arrives."""
        self._loading, self._problem = True, ""
        self._say()
        self.run_worker(
            self._look_up(), group="describe", exclusive=True, description=f"describe {self._agent}"
        )

    async def _look_up(self) -> None:
        # The user may open a form next, and loading its check takes a moment.
        self.run_worker(asyncio.to_thread(warm_up), group="forms", description="load the forms")
        try:
            detail = await self._agents.knowledge.look_up(fleet_of(self), self._agent)
        except LookupFailed as failed:
            self._problem = str(failed)
        else:
            self._take(detail)
        self._loading = False
        self.tools.hint = f"Nothing is known: {self._problem}" if self._problem else "It has no tools."
        self.tools.refresh()
        self._say()

    def _take(self, detail: AgentDetail | None) -> None:
        if detail is not None:
            self.tools.take(tool_rows(detail))
            if self._wanted is not None:
                (server, tool), self._wanted = self._wanted, None
                if self.tools.select(server, tool) and tool:
                    self.choose()
        self._fill()

    def _beat(self) -> None:
        """The overview has figures that move."""
        agent, versions = self._agents.agents.agent(self._agent), self._agents.history.versions
        seen = agent, versions.broken(self._agent)
        if self._section == "overview" and seen != self._beat_seen:
            self._beat_seen = seen
            self._fill(top=False)
        version = agent.version if agent is not None else 0
        if version and version != self._version:
            # The cached details are of the previous version.
            self._version, before = version, self._version
            if before and not self._loading:
                self.look_up()

    # Showing

    def _show_section(self) -> None:
        tools = self._section == "tools"
        self.query_one("#agent-text").display = not tools
        self.query_one("#agent-tools").display = tools
        self._fill()
        self.post_message(SectionShown(self._section))

    def _fill(self, top: bool = True) -> None:
        if self._section == "tools":
            self._show_details()
        else:
            self.query_one("#agent-text", TextLines).put(self._paragraphs(), top=top)

    def _paragraphs(self) -> list[tuple[str, str]]:
        detail = self._known
        if self._section == "overview":
            agent, versions = self._agents.agents.agent(self._agent), self._agents.history.versions
            rolled_back = agent is not None and versions.rolled_back(agent.name, agent.version)
            return overview(
                agent, detail, self._agent, self._glyphs, versions.broken(self._agent), rolled_back
            )
        if detail is None:
            return [("", "")]
        if self._section == "instruction":
            return [(detail.instruction or "It has no instruction.", "")]
        return [(pretty(detail.registry_entry) if detail.registry_entry else "It is in no registry.", "")]

    def _show_details(self, top: bool = True) -> None:
        self.query_one("#tool-about", TextLines).put(self._details(), top=top)

    def _details(self) -> list[tuple[str, str]]:
        """The selected tool, server or resource."""
        row = self.tools.selected
        if row is not None and row.resource is not None:
            return about_resource(row, self._resources.of(row), self._glyphs)
        return about_tool(row, self._agent)

    def _resource_changed(self) -> None:
        """Something was read of a resource, or it was updated."""
        self.tools.refresh()
        if self._section == "tools":
            self._show_details(top=False)

    def _say(self) -> None:
        status = self.query_one("#agent-status", Static)
        status.display = self._loading or bool(self._problem)
        if self._loading:
            status.update(Content.assemble((f"looking up {self._agent}{self._glyphs.ellipsis}", DIM)))
        elif self._problem:
            status.update(
                Content.assemble((self._problem, "$text-error"), ("  u", KEY), (" tries again", DIM))
            )

    def focus_pane(self) -> None:
        self.screen.set_focus(self.tools if self._section == "tools" else self.query_one("#agent-text"))

    @on(LineView.CursorMoved)
    def _moved(self, event: LineView.CursorMoved) -> None:
        event.stop()
        if event.view is self.tools:
            self._show_details()
            self.refresh_bindings()

    @on(LineView.LineChosen)
    def _chosen(self, event: LineView.LineChosen) -> None:
        event.stop()
        self.choose()

    @on(FilterLine.Filtered)
    def _filtered(self, event: FilterLine.Filtered) -> None:
        event.stop()
        self.tools.filter_by(event.words)
        self._show_details()

    @on(FilterLine.FilterLeft)
    def _left(self, event: FilterLine.FilterLeft) -> None:
        event.stop()
        self.screen.set_focus(self.tools)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Letters are letters while the user types a filter."""
        if not self.is_mounted:
            return True
        typing = self.query_one(FilterLine).has_focus
        if action not in ("filter", "choose", "accept", "subscribe"):
            return True
        row = self.tools.selected
        if action == "accept":
            is_possible = row is not None and not not_acceptable(row.server)
        elif action == "subscribe":
            is_possible = row is not None and row.resource is not None and row.server.subscribes
        else:
            is_possible = action == "filter" or (
                row is not None and (row.tool is not None or row.resource is not None)
            )
        return self._section == "tools" and not typing and is_possible

    def choose(self) -> None:
        """Call the selected tool by hand, or read the resource."""
        row = self.tools.selected
        if row is not None and row.tool is not None:
            self.post_message(self.CallTool(row))
        elif row is not None and row.resource is not None and (fleet := self._free_fleet()) is not None:
            self._resources.read(fleet, row)

    def action_choose(self) -> None:
        """Enter."""
        self.choose()

    def action_section(self, name: str) -> None:
        """Go to a section."""
        self._section = name
        self._show_section()
        self.focus_pane()
        self.refresh_bindings()

    def action_look_up(self) -> None:
        """Ask for everything again."""
        self.look_up()

    def action_edit(self) -> None:
        """Open where the agent is configured."""
        detail, agent = self._known, self._agents.agents.agent(self._agent)
        source = (detail.source if detail else "") or (agent.source if agent else "")
        if problem := open_source(self.app, source):
            self.notify(problem, severity="warning", markup=False)

    def action_edit_code(self) -> None:
        """Open the agent's code, or its card."""
        detail = self._known
        if problem := open_source(self.app, detail.defined if detail else ""):
            self.notify(problem, severity="warning", markup=False)

    def action_control(self, verb: Verb) -> None:
        """Start, stop, restart, reload or roll back the agent."""
        if (agent := self._agents.agents.agent(self._agent)) is not None:
            control(self, agent, verb, self._agents.under_way, self._agents.now)
        else:
            self.notify(f"{self._agent} is no longer in the fleet.", severity="warning", markup=False)

    def action_changes(self) -> None:
        """Open the last versions of the agent, with the changes of each."""
        if (opener := opener_of(self.app)) is not None:
            opener.open_changes(self._agent)

    def action_accept(self) -> None:
        """Show what the selected server changed, and accept it after a yes."""
        row, fleet = self.tools.selected, fleet_of(self)
        server = row.server if row is not None else None
        if problem := refusal(fleet) or not_acceptable(server):
            self.notify(problem, severity="warning", markup=False)
            return
        assert server is not None

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._accept(server), group="accept", description=f"accept {server.server}")

        self.app.push_screen(LockScreen(server), answered)

    def action_subscribe(self) -> None:
        """Subscribe to the selected resource, or unsubscribe from it."""
        row = self.tools.selected
        if row is not None and row.resource is not None and (fleet := self._free_fleet()) is not None:
            self._resources.toggle(fleet, row)

    def _free_fleet(self) -> FleetPort | None:
        """The fleet, if it may be asked now; otherwise say why not."""
        fleet = fleet_of(self)
        if problem := refusal(fleet):
            self.notify(problem, severity="warning", markup=False)
            return None
        return fleet

    async def _accept(self, server: ServerDetail) -> None:
        fleet = fleet_of(self)
        if fleet is None or server.lock is None:
            return
        try:
            said = await fleet.accept_tools(self._agent, server.server, server.lock.digest)
        except Fault as fault:
            self.notify(fault.message, title=server.server, severity="error", timeout=15, markup=False)
        else:
            self.notify(said, markup=False)
        self.look_up()

    async def action_copy(self) -> None:
        """Copy what the section shows: in the tools the selected one."""
        tools = self._section == "tools"
        parts = self._details() if tools else self._paragraphs()
        self.notify(await copy(self.app, plain(parts)), markup=False)

    async def action_copy_source(self) -> None:
        """Copy the place in which the agent is configured."""
        detail, agent = self._known, self._agents.agents.agent(self._agent)
        source = (detail.source if detail else "") or (agent.source if agent else "")
        self.notify(await copy(self.app, source), markup=False)

    def action_filter(self) -> None:
        """Filter the tools."""
        self.query_one(FilterLine).open()

    def action_leave(self) -> None:
        """One step back: the filter first, then the screen."""
        line = self.query_one(FilterLine)
        if line.words:
            line.clear_filter()
            self.screen.set_focus(self.tools)
        else:
            self.post_message(PaneLeft())


class LockScreen(ModalScreen[bool]):
    """Shows the changes of one server, word by word; ends with whether they are accepted."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("lock")

    def __init__(self, server: ServerDetail) -> None:
        super().__init__()
        self._server = server

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet", id="lock"):
            title = f" Accept what {self._server.server} lists now?"
            yield Static(Content(title), classes="title -focused", markup=False)
            yield FoldedLines(lock_lines(self._server), id="lock-lines")
            yield StatusLine()

    def on_mount(self) -> None:
        """Read first."""
        self.screen.set_focus(self.query_one(FoldedLines))

    def action_accept(self) -> None:
        """Yes."""
        self.dismiss(True)

    def action_leave(self) -> None:
        """No."""
        self.dismiss(False)
