"""The workbench over a fake fleet, with small panes in place of the chat and the log."""

from collections.abc import Callable
from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import Input, Static

from pallas_tui.app import Workbench
from pallas_tui.frame import FleetFrame
from pallas_tui.instances import Instances
from pallas_tui.screens.main_screen import LatePane
from pallas_tui.settings import Settings
from pallas_tui.widgets.pane import Pane

from .fake_fleet import NOON, FakeFleet


class FakeChat(Pane):
    """Notes the frames it gets and the agents it was asked to open."""

    TITLE = "Chat"
    HELP = "Talk to **agents** here."
    BINDINGS = [Binding("ctrl+n", "fresh", "New conversation", id="chat.new")]  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__(id="chat")
        self.frames: list[FleetFrame] = []
        self.opened: list[str] = []
        self.shown: list[bool] = []
        self.fresh = 0

    def compose(self) -> ComposeResult:
        """One line of text to type in."""
        yield Static("A conversation stands here.")
        prompt = Input(id="prompt", compact=True)
        prompt.cursor_blink = False
        yield prompt

    def absorb(self, frame: FleetFrame) -> None:
        """Note the frame."""
        self.frames.append(frame)

    def show_pane(self) -> None:
        """Note it."""
        super().show_pane()
        self.shown.append(True)

    def hide_pane(self) -> None:
        """Note it."""
        super().hide_pane()
        self.shown.append(False)

    def open_agent(self, name: str) -> None:
        """Note the agent."""
        self.opened.append(name)

    def action_fresh(self) -> None:
        """Note it."""
        self.fresh += 1


class FakeLogs(Pane):
    """Something to look at."""

    TITLE = "Logs"
    HELP = "What was logged."

    def __init__(self) -> None:
        super().__init__(id="logs")

    def compose(self) -> ComposeResult:
        """A line."""
        yield Static("The log stands here.")


class FakeTraces(Pane):
    """Something to look at."""

    TITLE = "Traces"
    HELP = "Who went where with what."

    def __init__(self) -> None:
        super().__init__(id="traces")

    def compose(self) -> ComposeResult:
        """A line."""
        yield Static("The traces stand here.")


def workbench(
    fleet: FakeFleet | Callable[[], Any] | None = None,
    *,
    settings: Settings | None = None,
    instances: Instances | None = None,
    clock: Callable[[], float] = lambda: NOON,
    strict: bool = True,
    **more: Any,
) -> Workbench:
    """A workbench over a fleet, or over what ``fleet`` makes at each start; dark unless told otherwise.

    Any error inside it fails the test, unless ``strict`` is false.
    """
    fleet = fleet if fleet is not None else FakeFleet()
    return Workbench(
        (lambda: fleet) if isinstance(fleet, FakeFleet) else fleet,
        name="desk",
        late=(
            LatePane("chat", "Chat", FakeChat),
            LatePane("logs", "Logs", FakeLogs),
            LatePane("traces", "Traces", FakeTraces),
        ),
        settings=settings or Settings(theme="textual-dark", ascii=False),
        instances=instances,
        clock=clock,
        strict=strict,
        **more,
    )


def screen_text(app: Workbench) -> str:
    """What stands on the screen now, line by line."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


def top(app: Workbench) -> str:
    """The top line."""
    return screen_text(app).splitlines()[0]


def line_with(app: Workbench, words: str) -> str:
    """The first line on the screen with these words."""
    return next(line for line in screen_text(app).splitlines() if words in line)
