"""The changes pane: the last versions above, the changes of the selected one below."""

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from pallas.model import Reloaded, Verb

from ...actions import bindings
from ...agents.source_line import open_source
from ...clipboard import copy
from ...supervision import Attempt
from ...supervision.version_diff import paragraphs, place_to_open, plain
from ...text import Glyphs, count
from ..agents.agent_control import control
from ..line_view import LineView
from ..pane import Pane
from ..text_lines import TextLines
from .version_list import VersionList

if TYPE_CHECKING:
    from ..agents import AgentsPane


class ChangesPane(Pane):
    """``agent`` is whose versions are shown, all of them where it is empty; they come as they are made."""

    TITLE = "Changes"
    HELP = """\
Every edit of an agent's files that had an effect: when, which version, whether it is live, how long that
took, and what changed. Below the list are the details of the selected edit: `+` is new, `-` gone, `~`
changed. For an edit that failed they show where and why, and the changes of the edit; the previous version
keeps answering.

**enter** goes to the differences and back, **e** opens the file where it changed, **y** copies everything,
**B** replaces the running version by the previous one, **r** reloads the agent, **a** shows the versions of
all agents, or of this one only.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("changes")

    def __init__(self, agents: "AgentsPane", agent: str, event: Reloaded | None, glyphs: Glyphs) -> None:
        super().__init__(id="changes")
        self._agents = agents
        self._only = agent
        self._shows_all = not agent
        self._wanted = event
        self._shown: Attempt | None = None
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        yield VersionList(self._glyphs)
        yield TextLines(id="changes-text")

    def on_mount(self) -> None:
        """Show the known versions, and follow new ones."""
        self._take()
        self.versions.go_to(self._wanted)
        self._show_details()
        self._agents.history.watchers.append(self._hear)

    def on_unmount(self) -> None:
        """Hear no more."""
        if self._hear in self._agents.history.watchers:
            self._agents.history.watchers.remove(self._hear)

    @property
    def versions(self) -> VersionList:
        """The list."""
        return self.query_one(VersionList)

    @property
    def text(self) -> TextLines:
        """The text of the changes."""
        return self.query_one("#changes-text", TextLines)

    def focus_pane(self) -> None:
        self.versions.focus()

    def _hear(self, changed: bool) -> None:
        # What breaks in here must not stop the frames of everybody.
        if changed and self.is_mounted:
            self.call_later(self._take)

    def _take(self) -> None:
        if not self.is_attached:
            return
        agent = "" if self._shows_all else self._only
        at_top = self.versions.cursor == 0 and self.versions.has_focus
        self.versions.take(self._agents.history.versions.of(agent), named=not agent)
        if at_top:  # a cursor on the newest stays on the newest
            self.versions.go_to(None)
        self._show_details()

    def _show_details(self) -> None:
        attempt, above = self.versions.selected, self.versions.above
        self.caption = f"{count(above, 'newer one')} above" if above else ""
        if attempt is None:
            self.text.put([("", "")])
        elif attempt is not self._shown:
            self.text.put(paragraphs(attempt.event, attempt.answers))
        self._shown = attempt
        self.refresh_bindings()

    @on(LineView.CursorMoved)
    def _moved(self, event: LineView.CursorMoved) -> None:
        event.stop()
        if event.view is self.versions:
            self._show_details()

    @on(LineView.LineChosen)
    def _chosen(self, event: LineView.LineChosen) -> None:
        event.stop()
        self.action_read()

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done with the selected one."""
        if not self.is_mounted:
            return True
        if action == "whole":
            return bool(self._only)
        if action == "control":
            return bool(self._agent)
        return self.versions.selected is not None if action in ("read", "edit", "copy") else True

    @property
    def _agent(self) -> str:
        """Return the agent that actions apply to, empty for none."""
        attempt = self.versions.selected
        return attempt.event.agent if attempt is not None and self._shows_all else self._only

    def action_read(self) -> None:
        """Go to the differences, and back."""
        self.screen.set_focus(self.versions if self.text.has_focus else self.text)

    def action_whole(self) -> None:
        """The versions of all agents, or of one only."""
        before = self.versions.selected
        self._shows_all = not self._shows_all
        self._take()
        self.versions.go_to(before.event if before is not None else None)

    def action_edit(self) -> None:
        """Open the file that it is about, at its line."""
        attempt = self.versions.selected
        if attempt is not None and (problem := open_source(self.app, place_to_open(attempt.event))):
            self.notify(problem, severity="warning", markup=False)

    def action_control(self, verb: Verb) -> None:
        """Roll back, or reload, the agent that it is about."""
        if (agent := self._agents.agents.agent(self._agent)) is not None:
            control(self, agent, verb, self._agents.under_way, self._agents.now)
        else:
            self.notify(f"{self._agent} is not in the fleet.", severity="warning", markup=False)

    async def action_copy(self) -> None:
        """Copy all changes."""
        if (attempt := self.versions.selected) is not None:
            self.notify(await copy(self.app, plain(attempt.event, attempt.answers)), markup=False)
