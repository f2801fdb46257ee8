"""Every setting with what it is now, made from the table; changed here, kept in the user's file."""

from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import yaml
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from pallas.safe_text import one_line

from ..actions import bindings
from ..actions.keymap import keymap_mistakes
from ..settings import Settings
from ..settings.settings_schema import SCHEMA, SCOPES, ModelPrice, Setting, check
from ..state import Tone
from ..text import Glyphs, Line, fit
from ..widgets.line_view import LineView
from ..widgets.status_line import StatusLine
from ..widgets.tones import DIM, KEY, STRONG, STYLES
from .sheet_screen import CRAMPED, LOW

_KEY_WIDTH: Final = 18
_VALUE_WIDTH: Final = 24
_WIDE: Final = 80


class SettingsKeeper(Protocol):
    """The application that uses the settings, keeps them, and has the screen of themes."""

    settings: Settings
    home: Path | None
    glyphs: Glyphs

    def keep_setting(self, key: str, value: Any) -> None:
        """Use another value for a setting, None for the default, and keep it."""
        ...

    def action_change_theme(self) -> None:
        """Show every theme."""
        ...


class SettingLine(Input):
    """The line in which a value is typed."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("setting_line")

    def __init__(self) -> None:
        super().__init__(compact=True, id="setting-line")
        self.display = False

    def action_leave(self) -> None:
        """Leave the value as it is."""
        self.screen.query_one(SettingsList).focus()
        self.display = False


class SettingsList(LineView):
    """A line a setting, under the heading of its group."""

    def __init__(self, keeper: SettingsKeeper) -> None:
        super().__init__(id="settings-list")
        self._keeper = keeper
        self._glyphs = keeper.glyphs
        self._lines: list[Setting | str] = []
        group = ""
        for setting in SCHEMA:
            if setting.scope != group:
                group = setting.scope
                self._lines.append(SCOPES[setting.scope])
            self._lines.append(setting)
        self.cursor = 1

    @property
    def selected(self) -> Setting | None:
        """The setting under the cursor."""
        line = self._lines[self.cursor] if self.cursor < len(self._lines) else None
        return line if isinstance(line, Setting) else None

    def line_count(self) -> int:
        return len(self._lines)

    def line_at(self, index: int, width: int) -> Line:
        line = self._lines[index]
        if isinstance(line, str):
            return ((line, STRONG),)
        value = self._keeper.settings.get(line.key)
        changed = value != line.default
        room = max(8, width - _KEY_WIDTH - 4)
        shown = fit(shown_as(line, value), min(_VALUE_WIDTH, room), self._glyphs)
        parts: Line = (
            (f"  {line.key:<{_KEY_WIDTH}}", ""),
            (shown, KEY if changed else ""),
        )
        left = width - _KEY_WIDTH - 2 - _VALUE_WIDTH - 1
        return (*parts, (" " + fit(_plain(line.help), left, self._glyphs), DIM)) if left > 16 else parts

    def key_at(self, index: int) -> str:
        line = self._lines[index]
        return line if isinstance(line, str) else line.key

    def find(self, key: object) -> int | None:
        return next((index for index in range(len(self._lines)) if self.key_at(index) == key), None)


class SettingsScreen(ModalScreen[None]):
    """Shows every setting and changes it. A mistake is shown in place, and then nothing is written."""

    HORIZONTAL_BREAKPOINTS = CRAMPED
    VERTICAL_BREAKPOINTS = LOW
    BINDINGS: ClassVar[list[BindingType]] = bindings("settings_screen", "vim")

    def __init__(self, keeper: SettingsKeeper) -> None:
        super().__init__(id="settings")
        self._keeper = keeper
        self._editing: Setting | None = None

    def compose(self) -> ComposeResult:
        home = self._keeper.home
        where = f"kept in {home.name}" if home is not None else "for this start only"
        with Vertical(classes="sheet"):
            yield Static(f" Settings, {where}", classes="title -focused", markup=False)
            yield SettingsList(self._keeper)
            yield Static(id="setting-status", markup=False)
            yield SettingLine()
            yield StatusLine()

    def on_mount(self) -> None:
        """The first setting."""
        self.query_one(SettingsList).focus()
        self._say()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a value is typed the list's keys are text, and escape leaves only the line."""
        typing = isinstance(self.focused, Input)
        return not (typing and action in ("dismiss", "change", "default"))

    def _say(self, problem: str = "") -> None:
        """Describe the selected setting, or the mistake in the typed value."""
        setting = self.query_one(SettingsList).selected
        status = self.query_one("#setting-status", Static)
        if setting is None:
            status.update("")
            return
        if problem:
            status.update(Content.assemble((problem, STYLES[Tone.ERROR])))
            return
        default = shown_as(setting, setting.default)
        words = f"{_plain(setting.help)}. Without it: {default}."
        if setting.choices:
            words += f" One of {', '.join(setting.choices)}."
        if not setting.live:
            words += " Takes effect at the next start."
        status.update(Content(words))

    @on(LineView.CursorMoved)
    def _moved(self, event: LineView.CursorMoved) -> None:
        event.stop()
        rows = self.query_one(SettingsList)
        if rows.selected is None:  # a heading: nothing to change there
            rows.action_move(1 if rows.cursor == 0 or self._came_down(rows) else -1)
        self._last = rows.cursor
        self._say()

    _last = 1

    def _came_down(self, rows: SettingsList) -> bool:
        return rows.cursor > self._last

    @on(LineView.LineChosen)
    def _chosen(self, event: LineView.LineChosen) -> None:
        event.stop()
        self.action_change()

    def action_change(self) -> None:
        """The next of few values at once; a line to type in for all others."""
        setting = self.query_one(SettingsList).selected
        if setting is None:
            return
        now = self._keeper.settings.get(setting.key)
        if setting.kind == "flag":
            self._keep(setting, not now)
        elif setting.kind == "auto":
            self._keep(setting, {None: True, True: False, False: None}[now])
        elif setting.kind == "choice":
            choices = setting.choices
            self._keep(setting, choices[(choices.index(now) + 1) % len(choices)])
        elif setting.key == "theme":
            self.dismiss()
            self.app.call_later(self._keeper.action_change_theme)
        else:
            self._editing = setting
            line = self.query_one(SettingLine)
            line.value = typed_as(now)
            line.display = True
            self.set_focus(line)
            line.action_end()

    def action_default(self) -> None:
        """Take the setting out of the file."""
        if (setting := self.query_one(SettingsList).selected) is not None:
            self._keep(setting, setting.default)

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        event.stop()
        if (setting := self._editing) is None:
            return
        value, problem = parsed(setting, event.value)
        if problem:
            self._say(f"{setting.key}: {problem}")
            return
        self.query_one(SettingLine).action_leave()
        self._keep(setting, value)

    @on(Input.Changed)
    def _typing(self, event: Input.Changed) -> None:
        event.stop()
        if (setting := self._editing) is not None and self.query_one(SettingLine).display:
            _, problem = parsed(setting, event.value)
            self._say(f"{setting.key}: {problem}" if problem else "")

    def _keep(self, setting: Setting, value: Any) -> None:
        self._keeper.keep_setting(setting.key, None if value == setting.default else value)
        self.query_one(SettingsList).reload()
        self._say()


def _plain(help: str) -> str:  # noqa: A002 - what it is
    """Without the marks that make names stand out in the documentation."""
    return help.replace("`", "")


def shown_as(setting: Setting, value: Any) -> str:
    """A value in a few words."""
    match value:
        case None:
            return "chosen from the terminal"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case str():
            return value or "none"
        case dict() if not value:
            return "none"
        case dict():
            return f"{len(value)}: {', '.join(value)}"
    return str(value)


def typed_as(value: Any) -> str:
    """A value as it is typed: as it would stand in the file, on one line."""
    if isinstance(value, dict):
        plain = {
            key: {"input": one.input, "output": one.output} if isinstance(one, ModelPrice) else one
            for key, one in value.items()
        }
        text: str = yaml.safe_dump(plain, default_flow_style=True, width=10_000, allow_unicode=True)
        return text.strip()
    return f"{value:g}" if isinstance(value, float) else str(value)


def parsed(setting: Setting, text: str) -> tuple[Any, str]:
    """Return the value of the typed text, and the mistake in it; empty text is the default."""
    problems: list[str] = []
    if not text.strip():
        return setting.default, ""
    if setting.kind == "text":
        value: Any = text.strip()
    else:
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            return setting.default, f"cannot be read: {one_line(str(error), 100)}"
    value = check(setting, value, problems.append)
    if setting.kind == "keys":
        problems += keymap_mistakes(value)
    return value, "; ".join(problems)
