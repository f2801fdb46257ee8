"""The workbench: one screen over one fleet, fed by one pump."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import Any, ClassVar, Final, TextIO

from textual import on
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.screen import Screen

from .actions import ACTIONS, bindings
from .fleets import BrokenFleet, NoFleet, RunningFleet
from .instances import Instances
from .palette import commands, own_bindings
from .pump import PERIOD, Pump
from .screens.main import LatePane, MainScreen
from .screens.story import StoryScreen
from .settings import Settings, unknown_actions
from .text import ASCII, UNICODE, count
from .widgets.failure import Failure
from .widgets.list_pane import Story

DARK: Final = "textual-dark"
LIGHT: Final = "textual-light"
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends the workbench in good order."""
_TWICE: Final = 2.0
_STYLES: Final = Path(__file__).parent / "styles"
_logger = logging.getLogger("pallas_tui")


class Workbench(App[int]):
    """Shows a fleet and lets its user talk to it.

    ``make_fleet`` is called after the first paint, so it may import what takes long; again for each
    try after a start that failed. ``late`` are the panes made after the first paint. ``clock`` gives Unix
    seconds. ``stray`` are the streams that anything printed in this process should go to. ``instances`` are
    the fleets elsewhere; without them what is registered is kept for this start only.
    The fleet is the caller's to stop: ``fleet`` is the one that runs, None when none was started.
    """

    TITLE = "Pallas"
    CSS_PATH = sorted(_STYLES.glob("*.tcss"))
    BINDINGS: ClassVar[list[BindingType]] = bindings("app")
    ENABLE_COMMAND_PALETTE = True

    def __init__(
        self,
        make_fleet: Callable[[], RunningFleet],
        *,
        name: str = "",
        late: Sequence[LatePane] = (),
        settings: Settings | None = None,
        instances: Instances | None = None,
        clock: Callable[[], float] = time,
        stray: tuple[TextIO, TextIO] | None = None,
        driver_class: type[Driver] | None = None,
    ) -> None:
        super().__init__(driver_class=driver_class)
        self.settings = settings or Settings()
        self.glyphs = ASCII if _wants_ascii(self.settings) else UNICODE
        self.fleet: RunningFleet | None = None
        self._make_fleet = make_fleet
        self._late = late
        self._stray = stray
        self._project = name
        self.instances = instances or Instances()
        self._pump = Pump(NoFleet(name), clock, self.instances.agents)
        self.set_class(self.glyphs is ASCII, "-ascii")
        self._pressed_at = float("-inf")
        self._failure: BaseException | None = None
        self._told_to_leave = False

    # Beginning and end

    def heed_signals(self) -> None:
        """From now on a signal ends the workbench in good order, also while it is still setting up.

        Textual changes the terminal before ``on_mount``: a signal in between must not end the process.
        """

        def leave(number: int, frame: object) -> None:
            self._told_to_leave = True

        for number in SIGNALS:
            signal.signal(number, leave)

    def get_default_screen(self) -> Screen[Any]:
        """The main screen."""
        return MainScreen(self._late, self.glyphs)

    @property
    def main(self) -> MainScreen:
        """The main screen, which is always at the bottom of the stack."""
        screen = self.screen_stack[0]
        assert isinstance(screen, MainScreen)
        return screen

    def on_mount(self) -> None:
        """Paint first; the fleet starts after that."""
        if self._stray is not None:
            # Textual's own capture would swallow prints; it puts back what was there before at its end.
            sys.stdout, sys.stderr = self._stray
        self._choose_theme()
        if self.settings.keys:
            self.set_keymap(dict(self.settings.keys))
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            for number in SIGNALS:
                loop.add_signal_handler(number, partial(self.exit, 0))
        if self._told_to_leave:
            self.exit(0)
        for mistake in self.settings.mistakes:
            self._tell_mistake(mistake)

    def _tell_mistake(self, mistake: str) -> None:
        _logger.warning(mistake)
        self.notify(mistake, title="Settings", severity="warning", timeout=15, markup=False)

    @on(MainScreen.Complete)
    def _check_keys(self) -> None:
        """Only now every action is known that a key of the user's may be for."""
        known = {action.id for action in ACTIONS}
        for widget in self.main.query("*"):
            known |= {binding.id for binding in own_bindings(widget) if binding.id}
        for mistake in unknown_actions(self.settings.keys, known):
            self._tell_mistake(mistake)

    @on(MainScreen.Painted)
    async def _begin(self) -> None:
        """The first paint is out: now what takes its time."""
        self._beat()
        self.set_interval(PERIOD, self._beat)
        await self._start_fleet()
        for mistake in self.instances.restore():
            self._tell_mistake(mistake)

    async def on_unmount(self) -> None:
        """Let go of the fleets elsewhere."""
        await self.instances.close()

    def _choose_theme(self) -> None:
        wanted = self.settings.theme
        if wanted and wanted not in self.available_themes:
            self._tell_mistake(f"theme: no such theme: {wanted}; Theme in the palette lists them")
            wanted = ""
        if not wanted:
            # On 16 colours the terminal's own are the readable ones.
            wanted = "ansi-dark" if self.console.color_system == "standard" else DARK
        self.theme = wanted

    async def _start_fleet(self) -> None:
        try:
            self.fleet = self._make_fleet()
            self.fleet.start()
        except Exception as error:
            _logger.exception("the fleet could not be started")
            reason = f"{type(error).__name__}: {error}; the log has the whole story"
            self._pump.attach(BrokenFleet(self._project, reason))
        else:
            self._pump.attach(self.fleet)
        self._beat()

    @on(Failure.Retry)
    def _retry(self) -> None:
        """Start anew after the user has mended something."""
        self.run_worker(self._restart_fleet(), group="restart", exclusive=True)

    async def _restart_fleet(self) -> None:
        fleet, self.fleet = self.fleet, None
        self._pump.attach(NoFleet(self._project))
        self._beat()
        if fleet is not None:
            await asyncio.to_thread(fleet.stop, 5.0)
        await self._start_fleet()

    def _beat(self) -> None:
        # While the screens are taken down the timer may still come round once.
        frame = self._pump.read() if self.is_running else None
        if frame is not None:
            self.main.absorb(frame)

    def _handle_exception(self, error: Exception) -> None:
        # Textual would print a traceback with local variables, which may hold what nobody should see.
        _logger.error("the workbench stopped", exc_info=error)
        self._failure = self._failure or error
        super()._handle_exception(error)
        self._exit_renderables.clear()

    @property
    def failure(self) -> BaseException | None:
        """What ended the workbench, None when it was its user."""
        return self._failure

    # Actions

    def action_show(self, pane: str) -> None:
        """Go to a pane."""
        self.main.show(pane)

    def action_zoom(self) -> None:
        """Zoom the current pane, or step back."""
        self.main.zoom()

    def action_resize_dock(self, lines: int) -> None:
        """Change the height of the dock."""
        self.main.resize_dock(lines)

    def action_resize_rail(self, columns: int) -> None:
        """Change the width of the agents pane."""
        self.main.resize_rail(columns)

    def action_toggle_rail(self) -> None:
        """Hide or show the agents pane."""
        self.main.toggle_rail()

    def action_toggle_theme(self) -> None:
        """From dark to light and back, within the family of the current theme."""
        dark, light = ("ansi-dark", "ansi-light") if self.theme.startswith("ansi-") else (DARK, LIGHT)
        self.theme = light if self.current_theme.dark else dark

    async def action_back(self) -> None:
        """One step back; never quits."""
        self.main.back()

    def action_instances(self) -> None:
        """Fleets elsewhere; whoever is chosen there is talked to."""
        from .screens.instances import InstancesScreen

        def chosen(name: str | None) -> None:
            if name is not None:
                self.main.open_agent(name)

        self.push_screen(InstancesScreen(self.instances, self.glyphs), chosen)

    def action_help(self) -> None:
        """Help for the focused pane."""
        from .screens.help import HelpScreen

        self.push_screen(HelpScreen(self.main.focus_target(), self.screen.active_bindings.values()))

    async def action_quit(self) -> None:
        """Leave; with runs in flight ask once."""
        runs = sum(agent.runs_active for agent in self.fleet.snapshot().agents) if self.fleet else 0
        if not runs or self.main.asking:
            self.exit(0)
            return
        while self.screen is not self.main:
            await self.pop_screen()
        question = f"{count(runs, 'run is', 'runs are')} in flight and will be cancelled. Quit?"
        self.main.ask(question, partial(self.exit, 0))

    async def action_quit_twice(self) -> None:
        """Leave on the second ctrl+c within two seconds."""
        now = monotonic()
        if now - self._pressed_at < _TWICE:
            self._pressed_at = float("-inf")
            await self.action_quit()
        else:
            self._pressed_at = now
            self.notify("Press ctrl+c again to quit.", timeout=_TWICE)

    def get_key_display(self, binding: Binding) -> str:
        """A key as it is written on screen: by its name where its sign cannot be drawn."""
        shown = super().get_key_display(binding)
        return shown if self.glyphs is not ASCII or shown.isascii() else binding.key

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Above the main screen only those actions work that do not reach below it."""
        if not self.screen_stack:
            return True
        if not isinstance(self.screen, MainScreen):
            return action not in _BELOW
        return self.screen.can_go_back if action == "back" else True

    # The palette

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Every action there is."""
        return commands(self, screen)

    # What the panes ask for

    @on(Story)
    def _on_story(self, event: Story) -> None:
        self.push_screen(StoryScreen(event.title, event.text))

    @on(MainScreen.CancelRun)
    def _on_cancel_run(self, event: MainScreen.CancelRun) -> None:
        if self.fleet is not None:
            self.fleet.cancel(event.run_id)


_BELOW: Final = frozenset(
    action.run.partition("(")[0]
    for action in ACTIONS
    if action.scope == "app" and action.id not in ("quit", "quit.twice", "theme")
)


def _wants_ascii(settings: Settings) -> bool:
    if settings.ascii is not None:
        return settings.ascii
    # Python makes UTF-8 of a C locale; the terminal that was set up for it does not.
    locale = next(
        (os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "utf-8"
    )
    return "utf" not in locale.lower()
