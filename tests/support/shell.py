"""The workbench over a fake fleet, with small panes in place of the chat and the log."""

from collections.abc import Callable
from typing import Any, Final

from textual.app import ComposeResult
from textual.binding import Binding
from textual.pilot import Pilot
from textual.widgets import Input, Static

from pallas_tui.app import Workbench
from pallas_tui.frame import FleetFrame
from pallas_tui.instances import Instances
from pallas_tui.screens.main_screen import LatePane
from pallas_tui.settings import Settings
from pallas_tui.widgets.pane import Pane

from .fake_fleet import NOON, FakeFleet
from .waiting import until

IN_ASCII: Final = Settings(theme="textual-dark", ascii=True)


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


class FakeCredentials(Pane):
    """Something to look at."""

    TITLE = "Credentials"
    HELP = "Who went where with what."

    def __init__(self) -> None:
        super().__init__(id="credentials")

    def compose(self) -> ComposeResult:
        """A line."""
        yield Static("The credentials stand here.")


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
            LatePane("credentials", "Credentials", FakeCredentials),
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


async def sees(
    app: Workbench, pilot: Pilot[Any], *texts: str, gone: tuple[str, ...] = (), timeout: float = 90
) -> str:
    """What stands on the screen once all of these texts do, and none of those that are ``gone``."""

    def seen() -> str:
        text = screen_text(app)
        right = all(each in text for each in texts) and not any(each in text for each in gone)
        return text if right else ""

    try:
        return str(await until(seen, pilot, timeout))
    except AssertionError as error:
        raise AssertionError(f"{texts} not on the screen:\n{screen_text(app)}") from error


class DrivenWorkbench:
    """A workbench driven by keys; tests add what they look at most."""

    def __init__(self, app: Workbench, pilot: Pilot[Any]) -> None:
        self.app, self.pilot = app, pilot

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Once that is true, what it gives."""
        return await until(condition, self.pilot)

    async def sees(self, *texts: str, gone: tuple[str, ...] = (), timeout: float = 90) -> str:
        """The screen once all of that is on it, and nothing of what is ``gone``."""
        return await sees(self.app, self.pilot, *texts, gone=gone, timeout=timeout)

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        await self.pilot.press(*keys)


def top(app: Workbench) -> str:
    """The top line."""
    return screen_text(app).splitlines()[0]


def line_with(app: Workbench, words: str) -> str:
    """The first line on the screen with these words."""
    return next(line for line in screen_text(app).splitlines() if words in line)
