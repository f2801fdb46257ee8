"""The instances pane: registries elsewhere with their agents, and the details of the selected one."""

from collections.abc import Coroutine, Hashable, Iterable
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input

from pallas.model import Fault

from ...actions import bindings
from ...instances import Instances, RegisteredInstance
from ...instances.attached_snapshots import attached_name
from ...instances.registry_address import MAX_URL
from ...state import Tone
from ...text import Glyphs, Line, count
from ...ui_clock import PERIOD
from ..detailed_list_pane import DetailedListPane
from ..fact_lines import ActionStatus, DetailLines
from ..filter_line import NOTHING_MATCHES, FilterLine
from ..row_list import RowList
from ..status_line import QuestionLine
from .instance_view import InstanceRow, can_talk, details, details_text, instance_line, rows


class UrlLine(Input):
    """The URL input. Hidden until ``open``; enter submits, and the text stays until that succeeds."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("url_line")

    class UrlEntered(Message):
        """A URL was typed."""

        def __init__(self, url: str) -> None:
            super().__init__()
            self.url = url

    class UrlLineLeft(Message):
        """The focus should go back to the list."""

    def __init__(self) -> None:
        super().__init__(
            placeholder="URL of a registry, for example http://127.0.0.1:24200",
            compact=True,
            select_on_focus=False,
            max_length=MAX_URL + 1,
            id="instance-url",
        )
        self.display = False

    def open(self) -> None:
        """Show the line and type into it."""
        self.display = True
        # At once: text typed right after the key must not reach the list as keys.
        self.screen.set_focus(self)

    def close(self) -> None:
        """Take the line away, empty for the next time."""
        self.value = ""
        self.display = False

    def action_leave(self) -> None:
        """Go back, and drop the text."""
        self.close()
        self.post_message(self.UrlLineLeft())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Submit the text."""
        event.stop()
        self.post_message(self.UrlEntered(self.value))


class InstanceList(RowList[InstanceRow]):
    """One line an instance, and one for each of its agents below it."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(glyphs, id="instance-list")
        self._words: tuple[str, ...] = ()

    def row_key(self, row: InstanceRow) -> Hashable:
        return row.key

    def take(self, instances: tuple[RegisteredInstance, ...], words: tuple[str, ...]) -> None:
        """Show these from now on, and of them only lines in which every word occurs."""
        self._words = words
        self.show_rows(tuple(row for row in rows(instances) if all(word in row.words for word in words)))

    def select(self, url: str) -> None:
        """Put the cursor on an instance."""
        if (index := self.find((url, ""))) is not None:
            self.action_move_to(index)

    def line_at(self, index: int, width: int) -> Line:
        return instance_line(self.rows[index], width, self._glyphs)

    def empty_text(self) -> str:
        if self._words:
            return NOTHING_MATCHES
        return (
            "No instance is registered.\n"
            "Press a and type the URL of another fleet's registry, for example\n"
            "http://127.0.0.1:24200\n"
            "Its agents are listed here, and can be talked to once they are attached."
        )


class InstancesPane(DetailedListPane):
    """Fleets that run elsewhere: register, look, attach, talk (PI-14)."""

    TITLE = "Instances"
    HELP = """\
Fleets that run elsewhere, in another workbench or on another machine. **a** registers one by the URL of its
registry (`http://host:port`; the top line of its own workbench shows the port) and lists its agents.

**Enter** on an instance attaches it: its registry is read again, each agent gets a connection and is asked
for its health every minute (`DAEDALUS_MCP_HEALTH_INTERVAL` changes that, in seconds). **Enter** on an
attached agent talks to it. You cannot talk to an agent in error; its reason is shown.

**d** detaches: it removes the connections, health and agents of that instance, and of no other. Registered
and attached instances are remembered for the next start.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("instances")
    PARTS = (*DetailedListPane.PARTS, ActionStatus)

    class TalkToInstanceAgent(Message):
        """The user wants to talk to an attached agent."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, instances: Instances, glyphs: Glyphs, *, id: str = "instances") -> None:  # noqa: A002
        super().__init__(glyphs, id=id)
        self._instances = instances
        self._painted = -1

    def compose(self) -> ComposeResult:
        with Horizontal(id="instance-columns"):
            yield InstanceList(self._glyphs)
            yield DetailLines(id="instance-details")
        yield FilterLine("host, agent, title, state", id="instance-filter")
        yield ActionStatus(self._glyphs, id="instance-status")
        yield UrlLine()

    def on_mount(self) -> None:
        """Follow changes; read the instances registered in an earlier start."""
        self.set_interval(PERIOD, self._beat)
        self._beat()
        self.app.run_worker(self._instances.read_unread(), group="instances", description="read registries")

    @property
    def rows(self) -> InstanceList:
        """The list."""
        return self.query_one(InstanceList)

    def _beat(self) -> None:
        if self._instances.version != self._painted and self.is_mounted:
            self._paint()

    def _paint(self) -> None:
        self._painted = self._instances.version
        self.rows.take(self._instances.all(), self._words)
        self._show_details()
        self.refresh_bindings()

    def _detail_lines(self, width: int, height: int) -> Iterable[Line]:
        row, now = self.rows.selected, self._instances.pace.clock()
        return details(row, width, height, now, self._glyphs) if row else ()

    def full_text(self) -> tuple[str, str] | None:
        row = self.rows.selected
        if row is None:
            return None
        title = row.instance.label if row.agent is None else row.agent.listed.title
        return title, details_text(row, self._instances.pace.clock())

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done with the selected line is offered."""
        if not self.is_mounted:
            return True
        row = self.rows.selected
        typing = self.query_one(UrlLine).has_focus
        if action in ("attach", "detach", "refresh", "remove"):
            if row is None or typing:
                return False
            return row.instance.attached is (action == "detach") if action in ("attach", "detach") else True
        return super().check_action(action, parameters) and not (action == "filter" and typing)

    def choose(self) -> None:
        """Attach the instance, talk to the agent, or read why neither can be."""
        row = self.rows.selected
        if row is None:
            return
        if row.agent is not None and can_talk(row):
            self.post_message(
                self.TalkToInstanceAgent(attached_name(row.agent.listed.id, row.instance.label))
            )
        elif row.agent is None and not row.instance.attached:
            self.action_attach()
        else:
            self.action_full_text()

    def action_register(self) -> None:
        """Type the URL of a registry."""
        self.query_one(UrlLine).open()

    def action_attach(self) -> None:
        """Attach the selected instance."""
        if (row := self.rows.selected) is not None:
            self._do(self._instances.attach(row.instance.url), f"attaching {row.instance.label}")

    def action_detach(self) -> None:
        """Detach the selected instance."""
        if (row := self.rows.selected) is not None:
            self._do(self._instances.detach(row.instance.url), f"detaching {row.instance.label}")

    def action_refresh(self) -> None:
        """Read the selected instance's registry again, and poll its agents if it is attached."""
        if (row := self.rows.selected) is not None:
            self._do(self._instances.refresh(row.instance.url), f"reading {row.instance.label}")

    def action_remove(self) -> None:
        """Forget the selected instance, after a question."""
        if (row := self.rows.selected) is not None:
            label, url = row.instance.label, row.instance.url
            what = "detach and forget it" if row.instance.attached else "forget it"
            self.screen.query_one(QuestionLine).ask(
                f"Remove {label}: {what}?",
                lambda: self._do(self._instances.remove(url), f"removing {label}"),
            )

    @on(UrlLine.UrlEntered)
    def _entered(self, event: UrlLine.UrlEntered) -> None:
        event.stop()
        self._do(self._register(event.url), f"reading {event.url}")

    @on(UrlLine.UrlLineLeft)
    def _url_left(self, event: UrlLine.UrlLineLeft) -> None:
        event.stop()
        self._say("")
        self.rows.focus()

    async def _register(self, url: str) -> None:
        instance = await self._instances.register(url)
        if not self.is_attached:
            return
        self.query_one(UrlLine).close()
        self.rows.focus()
        self._beat()
        self.rows.select(instance.url)
        skipped = f"; {count(len(instance.skipped), 'entry', 'entries')} skipped" if instance.skipped else ""
        self.notify(f"{instance.label} lists {count(len(instance.agents), 'agent')}{skipped}.", markup=False)

    def _do(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Do that in the background, saying so; it goes on when the user leaves the screen."""

        async def doing() -> None:
            try:
                await work
            except Fault as fault:
                self._failed(fault.message)
            else:
                if self.is_attached:
                    self._say("")

        self._say(f"{what}{self._glyphs.ellipsis}")
        self.app.run_worker(doing(), group="instances", description=what)

    def _failed(self, message: str) -> None:
        if self.is_attached:
            self._say(message, Tone.ERROR)
        else:
            self.app.notify(message, title=self.TITLE, severity="error", timeout=15, markup=False)
