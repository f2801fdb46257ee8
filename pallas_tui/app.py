"""The workbench: one screen over one fleet, fed by one UI clock."""

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath
from time import time
from typing import TYPE_CHECKING, Any, ClassVar, Final, TextIO

from textual import events, on
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.screen import Screen
from textual.signal import Signal
from textual.timer import Timer

from pallas.model import FleetState, RunningFleet, TokenScope

from .actions import ACTIONS, bindings
from .actions.keymap import keymap_mistakes
from .chat.tab_store import SavedTabs
from .instances import Instances
from .json_file import JsonFile
from .palette import PaletteProvider
from .placeholder_fleet import BrokenFleet, PlaceholderFleet
from .runs.run_feed import MAX_RUNS, MAX_STEPS
from .runs.runs_elsewhere import LOOK_EVERY
from .screens.main_screen import LatePane, MainScreen
from .screens.screen_layout import Layouts
from .screens.sheet_screen import TextScreen
from .settings import Settings
from .shell.cursor_rest import CursorRest
from .shell.early_keys import EarlyKeys, as_meant
from .shell.exit_signals import ExitSignals
from .shell.fleet_screens import FleetScreens
from .shell.notices import Notices
from .shell.theme_actions import Look
from .shell.themes import use_scrollbars
from .state import attached_words, behind
from .targets import MAX_ENTITIES
from .text import ASCII, UNICODE, count, duration
from .ui_clock import IDLE, PERIOD, Counts, UiClock
from .widgets.filter_line import late_letter
from .widgets.list_pane import ShowText
from .widgets.pane import Pane
from .widgets.start_failure import Failure

if TYPE_CHECKING:
    from .diagnostics import Section

__all__ = ["Workbench"]

_STYLES: Final = Path(__file__).parent / "styles"
_FIRST_STYLES: Final[list[str | PurePath]] = [_STYLES / "base.tcss", _STYLES / "main.tcss"]
"""The style sheets of the first paint: to parse the others takes as long as to compose it."""
_logger = logging.getLogger("pallas_tui")

_ABOVE: Final = ("quit", "quit.twice", "theme", "suspend", "redraw", "show.questions", "verdict.ask")
"""What works above the main screen too."""
_BELOW: Final = frozenset(
    action.run.partition("(")[0] for action in ACTIONS if action.scope == "app" and action.id not in _ABOVE
)


class Workbench(FleetScreens, Look, Notices):
    """Shows a fleet and lets its user talk to it.

    ``make_fleet`` is called after the first paint, so it may import slow modules, and again for each
    retry after a failed start. ``root`` is the folder of the project, if it is on this machine.
    ``late`` are the panes made after the first paint. ``clock`` returns Unix seconds. ``stray`` are the
    streams that receive prints of this process. ``instances`` are the fleets elsewhere; without them,
    registrations last for this process only. ``home`` is the user's settings file; the layout is stored in
    the same folder. Reports list ``paths`` and are written to the folder ``reports``. ``strict`` lets any
    error end the workbench, as tests want. ``settle`` is called once per start, when the fleet runs or has
    failed. ``exit_signals`` have it leave. The caller stops the fleet: ``fleet`` is the one that runs, None
    when none was started.
    """

    TITLE = "Pallas"
    CSS_PATH = _FIRST_STYLES
    BINDINGS: ClassVar[list[BindingType]] = bindings("app", "vim")
    COMMANDS: ClassVar[set[Any]] = {PaletteProvider}
    ENABLE_COMMAND_PALETTE = True

    def __init__(
        self,
        make_fleet: Callable[[], RunningFleet],
        *,
        name: str = "",
        root: Path | None = None,
        late: Sequence[LatePane] = (),
        settings: Settings | None = None,
        instances: Instances | None = None,
        clock: Callable[[], float] = time,
        stray: tuple[TextIO, TextIO] | None = None,
        driver_class: type[Driver] | None = None,
        home: Path | None = None,
        paths: Mapping[str, Path | None] | None = None,
        reports: Path | None = None,
        strict: bool = False,
        settle: Callable[[], None] | None = None,
        exit_signals: ExitSignals | None = None,
    ) -> None:
        super().__init__(
            driver_class=driver_class,
            settings=settings or Settings(),
            home=home,
            clock=clock,
            project=name,
            strict=strict,
            reports=reports,
        )
        self.glyphs = ASCII if _wants_ascii(self.settings) else UNICODE
        self.root = root
        self.settings_changed: Signal[Settings] = Signal(self, "settings-changed")
        """Published when a setting was changed while the workbench runs."""
        self.paths = {"project": root, **(paths or {}), "settings": home, "reports": reports}
        self._make_fleet = make_fleet
        self._late = late
        self._stray = stray
        self.instances = instances or Instances()
        self._ui_clock = UiClock(
            PlaceholderFleet(name), clock, self.instances.agents, self.runs_elsewhere.take, self._wake
        )
        self._ticks: Timer | None = None
        self.set_class(self.glyphs is ASCII, "-ascii")
        use_scrollbars(ascii_only=self.glyphs is ASCII)
        self._layouts = Layouts(JsonFile(home.with_suffix(".layout.json")) if home is not None else None)
        tabs = JsonFile(home.with_suffix(".tabs.json")) if home is not None else None
        self.saved_tabs = SavedTabs(tabs, str(root or name))
        self._born = clock()
        self._exit_signals = exit_signals
        self._early = EarlyKeys()
        self._cursor_rest = CursorRest(self)
        self._settle = settle or (lambda: None)
        self._is_unsettled = False

    @property
    def counts(self) -> Counts:
        """Return the counts read from the fleet so far."""
        return self._ui_clock.counts

    @property
    def uptime(self) -> float:
        """Seconds since the workbench was made."""
        return self._clock() - self._born

    # Beginning and end

    def get_default_screen(self) -> Screen[Any]:
        """The main screen."""
        mistake = self._layouts.load()
        if mistake:
            self.call_later(self.tell_mistake, mistake)
        styles = [path for path in sorted(_STYLES.glob("*.tcss")) if path not in _FIRST_STYLES]
        return MainScreen(self._late, self.glyphs, self._layouts, styles)

    def on_mount(self) -> None:
        """Paint first; the fleet starts after that."""
        if self._stray is not None:
            # Textual's own capture would swallow prints. It restores the previous streams when it ends.
            sys.stdout, sys.stderr = self._stray
        self.tell_theme_mistakes()
        self._cursor_rest.start()
        if self.settings.keys:
            self.set_keymap(dict(self.settings.keys))
        if self._exit_signals is not None:
            self._exit_signals.on_signal(partial(self.exit, 0))
        for mistake in self.settings.mistakes:
            self.tell_mistake(mistake)
        for mistake in keymap_mistakes(self.settings.keys):
            self.tell_mistake(f"keys: {mistake}")
        self.show_title(None)
        # Back from the shell, which has written where the screen was.
        self.app_resume_signal.subscribe(self, lambda _: self.action_redraw())

    @on(MainScreen.Painted)
    def _begin(self) -> None:
        """The first paint is out: from now on the screen follows the fleet."""
        self._ticks = self.set_interval(PERIOD, self._beat)
        self._beat()
        self.set_interval(IDLE, self._beat_at_rest)
        self.set_interval(LOOK_EVERY, self.look_elsewhere)

    @on(MainScreen.Complete)
    async def _release_keys(self) -> None:
        """Pass on the keys typed so far, for which there is a line only now, and start the fleet.

        Its imports would take half of the time from the panes that are still to come.
        """
        for key in self._early.release():
            await super().on_event(key)
        await self._start_fleet()
        gc.enable()  # ``server`` or ``launch`` has it wait until now
        for mistake in (*self.instances.restore(), await self.instances.serve_metrics()):
            if mistake:
                self.tell_mistake(mistake)

    async def on_unmount(self) -> None:
        """Let go of the fleets elsewhere, and of the title; keep the arrangement."""
        self.restore_title()
        self._layouts.save_if_possible()
        await self.instances.close()

    async def _start_fleet(self, make_fleet: Callable[[], RunningFleet] | None = None) -> None:
        self._is_unsettled = True
        try:
            self.fleet = (make_fleet or self._make_fleet)()
            self.fleet.start()
        except Exception as error:
            _logger.exception("the fleet could not be started")
            reason = f"{type(error).__name__}: {error}; the log has the details"
            self._ui_clock.attach(BrokenFleet(self._project, reason))
        else:
            self._ui_clock.attach(self.fleet)
        self._beat()

    @on(Failure.Retry)
    def _retry(self) -> None:
        """Start again after the user has fixed something."""
        self.run_worker(self._restart_fleet(), group="restart", exclusive=True)

    @on(Failure.Attach)
    def _show_other(self, event: Failure.Attach) -> None:
        """Show the fleet of this project that another process runs."""

        def remote_fleet() -> RunningFleet:
            from .remote.remote_fleet import RemoteFleet
            from .remote.token_source import TokenSource, given_token

            stored = TokenSource(event.origin)
            return RemoteFleet(
                event.origin, stored if stored.candidates() else TokenSource(event.origin, given_token())
            )

        self.run_worker(self._restart_fleet(remote_fleet), group="restart", exclusive=True)

    async def _restart_fleet(self, make_fleet: Callable[[], RunningFleet] | None = None) -> None:
        fleet, self.fleet = self.fleet, None
        self._ui_clock.attach(PlaceholderFleet(self._project))
        self._beat()
        if fleet is not None:
            await asyncio.to_thread(fleet.stop, 5.0)
        await self._start_fleet(make_fleet)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing happens, so that the fleet is looked at once a second until it says something."""
        return self._ui_clock.at_rest

    def _wake(self) -> None:
        # On any thread, while the loop may have just ended.
        with suppress(RuntimeError):
            self.call_later(self._go_on)

    def _go_on(self) -> None:
        if self._ticks is not None:
            self._ticks.resume()

    def _beat_at_rest(self) -> None:
        if self._ui_clock.at_rest:
            self._beat()

    def _beat(self) -> None:
        # While the screens are taken down the timer may still come round once.
        frame = self._ui_clock.read() if self.is_running else None
        if self._ticks is not None:
            (self._ticks.pause if self._ui_clock.at_rest else self._ticks.resume)()
        if frame is not None:
            self.remember(frame)
            self.main.absorb(frame)
            self.attend(frame)
            self.follow_forks()
            if self._is_unsettled and frame.snapshot.state in (FleetState.RUNNING, FleetState.FAILED):
                self._is_unsettled = False
                self._settle()

    def panes_in_view(self) -> set[str]:
        """The panes that can be seen now; below another screen those of that one."""
        if self.screen is self.main:
            return self.main.visible_panes()
        return {str(pane.id) for pane in self.screen.query(Pane)}

    def facts(self) -> str:
        """Versions, terminal, paths, limits and counts, as text without secrets."""
        from .diagnostics import as_text

        return as_text(self._sections())

    def _sections(self) -> "tuple[Section, ...]":
        """What a report says, taken now. It has no secret: no token, no message, no value of a variable."""
        from .diagnostics import paths, process, terminal, versions

        size, colors = self.size, str(self.console.color_system or "none")
        return (
            versions(),
            terminal((size.width, size.height), colors, plain=self.glyphs is ASCII, theme=self.theme),
            paths(self.paths),
            (
                "Limits",
                (
                    ("looks at the fleet", f"every {PERIOD:g} s"),
                    ("runs in the feed", f"{MAX_RUNS}, with {MAX_STEPS:,} steps"),
                    ("names in the palette", f"{MAX_ENTITIES:,}"),
                ),
            ),
            ("Fleet", self._fleet_lines()),
            process(),
        )

    def _fleet_lines(self) -> tuple[tuple[str, str], ...]:
        counts = self.counts
        snapshot = self.fleet.snapshot() if self.fleet is not None else None
        agents = snapshot.agents if snapshot is not None else ()
        total, active = sum(one.runs_total for one in agents), sum(one.runs_active for one in agents)
        return (
            ("state", snapshot.state.value if snapshot is not None else "none"),
            *(("picture", text) for text in self._attached_lines()),
            ("agents", f"{len(agents)}, and {count(len(self.instances.agents()), 'agent')} elsewhere"),
            ("runs", f"{total}, {active} in flight"),
            ("events", f"{counts.events:,} read, {counts.dropped:,} missed"),
            ("frames", f"{counts.frames:,}"),
            ("up for", duration(self.uptime, running=True)),
        )

    def _attached_lines(self) -> tuple[str, ...]:
        """How the fleet is attached; empty for one of this process."""
        attachment = self.fleet.attachment if self.fleet is not None else None
        if attachment is None:
            return ()
        access = "" if attachment.access is TokenScope.FULL else "read-only"
        words = (attached_words(attachment, self._clock())[0], access, behind(attachment))
        return (", ".join(filter(None, words)),)

    # Settings

    def copy_to_clipboard(self, text: str) -> None:
        """Copy what was selected, with the mouse or by keys, and say so."""
        if not text:  # what cannot be selected: ctrl+c quits again
            self.screen.clear_selection()
        self.remember_copied(text)
        self.run_worker(self._copy(text), group="copy", description="copy")

    async def _copy(self, text: str) -> None:
        from .clipboard import copy

        self.notify(await copy(self, text), markup=False)

    def write_clipboard(self, text: str) -> None:
        """Ask the terminal to put text on the clipboard; it gives no answer."""
        super().copy_to_clipboard(text)

    def remember_copied(self, text: str) -> None:
        """Keep text for pasting within the workbench, without a request to the terminal."""
        self._clipboard = text

    def keep_setting(self, key: str, value: Any) -> None:
        """Use another value for a setting, None for the default, and write it to the user's file."""
        from .settings.settings_file import CannotSave, save_setting
        from .settings.settings_schema import BY_KEY

        setting = BY_KEY[key]
        self.settings = self.settings.having(key, setting.default if value is None else value)
        self.set_keymap(dict(self.settings.keys))
        self.settings_changed.publish(self.settings)
        self.refresh_bindings()
        if self.home is None:
            return
        try:
            save_setting(self.home, key, value)
        except CannotSave as error:
            self.tell_mistake(f"{key} holds for now only: {error}")

    # Actions

    def action_show(self, pane: str) -> None:
        """Go to a pane."""
        self.main.show(pane)

    def action_zoom(self) -> None:
        """Zoom the current pane, or step back."""
        self.main.zoom()

    def action_resize_dock(self, cells: int) -> None:
        """Change the height of the dock, or its width next to the chat."""
        self.main.resize_dock(cells)

    def action_resize_rail(self, columns: int) -> None:
        """Change the width of the agents pane."""
        self.main.resize_rail(columns)

    def action_toggle_rail(self) -> None:
        """Hide or show the agents pane."""
        self.main.toggle_rail()

    async def action_back(self) -> None:
        """One step back; never quits."""
        self.main.back()

    def action_instances(self) -> None:
        """Open the list of fleets elsewhere, and chat with the agent chosen there."""
        from .screens.record_screens import InstancesScreen

        def chosen(name: str | None) -> None:
            if name is not None:
                self.main.open_agent(name)

        self.push_screen(InstancesScreen(self.instances, self.glyphs), chosen)

    def action_help(self) -> None:
        """Help for the focused pane."""
        from .screens.help_screen import HelpScreen

        self.push_screen(HelpScreen(self.main.focus_target(), self.screen.active_bindings.values()))

    def action_reset_layout(self) -> None:
        """Panes as they were at first."""
        self.main.reset_layout()

    def action_jump(self) -> None:
        """Letters on everything one can go to."""
        from .screens.jump_screen import JumpScreen, labels

        self.push_screen(JumpScreen(labels(self.screen)))

    def action_vim(self, key: str) -> None:
        """Press the key that one of vi's stands for."""
        self.simulate_key(key)

    def action_settings(self) -> None:
        """Every setting, to look at and to change."""
        from .screens.settings_screen import SettingsScreen

        self.push_screen(SettingsScreen(self))

    def action_about(self) -> None:
        """Versions, paths and limits, for a report."""
        from .screens.about_screen import AboutScreen

        self.push_screen(AboutScreen(self._sections()))

    def action_redraw(self) -> None:
        """Paint everything again, after something else wrote to the terminal."""
        self.refresh(layout=True)
        self.screen.refresh(layout=True)

    async def on_event(self, event: events.Event) -> None:
        """Every event comes by here first."""
        event = as_meant(event)
        self._cursor_rest.hear(event)
        if not self._early.hold(event):
            await super().on_event(event)

    def on_key(self, event: events.Key) -> None:
        """Keys that no widget took."""
        late_letter(self, event)

    def get_key_display(self, binding: Binding) -> str:
        """A key as it is written on screen: by its name where its sign cannot be drawn."""
        shown = super().get_key_display(binding)
        return shown if self.glyphs is not ASCII or shown.isascii() else binding.key

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Above the main screen only those actions work that do not reach below it."""
        if not self.screen_stack:
            return True
        if action == "vim":
            return self.settings.vim
        if action == "suspend_process":
            return self._driver is not None and self._driver.can_suspend
        if not isinstance(self.screen, MainScreen):
            return action not in _BELOW
        return self.screen.can_go_back if action == "back" else True

    # What the panes ask for

    @on(ShowText)
    def _on_show_text(self, event: ShowText) -> None:
        self.push_screen(TextScreen(event.title, event.text))

    @on(MainScreen.CancelRun)
    def _on_cancel_run(self, event: MainScreen.CancelRun) -> None:
        if self.fleet is not None:
            self.fleet.cancel(event.run_id)


def _wants_ascii(settings: Settings) -> bool:
    if settings.ascii is not None:
        return settings.ascii
    # Python makes UTF-8 of a C locale; the terminal that was set up for it does not.
    locale = next(
        (os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "utf-8"
    )
    return "utf" not in locale.lower()
