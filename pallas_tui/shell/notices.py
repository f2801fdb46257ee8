"""The part of the workbench that tells a person who looks elsewhere: title, bell, desktop."""

import os
import sys
from collections.abc import Callable
from typing import Any, Final

from textual.app import App

from pallas.processes.child_program import run

from ..actions import keys_of
from ..frame import FleetFrame
from ..settings import Settings
from ..state import Summary, summarise
from .notifications import (
    BELL,
    POP_TITLE,
    PUSH_TITLE,
    DesktopNotification,
    NotificationLimit,
    NotificationSource,
    desktop_sequence,
    program,
    title_of,
    title_sequence,
)

_PROGRAM_TIMEOUT: Final = 2.0


class Notices(App[int]):
    """Watches the frames for news, and notifies the user where they would not see it otherwise."""

    settings: Settings

    def __init__(self, *, clock: Callable[[], float], project: str, **more: Any) -> None:
        super().__init__(**more)
        self._clock = clock
        self._project = project
        self._watch = NotificationSource()
        self._pace = NotificationLimit()
        self._title = ""
        self._title_pushed = False

    def write_terminal(self, sequence: str) -> None:
        """Write to the terminal itself; nothing where there is none."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(sequence)

    def panes_in_view(self) -> set[str]:
        """The panes that can be seen now."""
        return set()

    def run_in_view(self, run_id: str) -> bool:
        """Whether the conversation that waits for this run can be seen now."""
        return False

    def _is_in_view(self, telling: DesktopNotification) -> bool:
        if telling.run_id and self.run_in_view(telling.run_id):
            return True
        return not self.panes_in_view().isdisjoint(telling.panes)

    def attend(self, frame: FleetFrame) -> None:
        """Tell what a frame holds that is worth it, and keep the title true."""
        self.show_title(summarise(frame))
        for telling in self._watch.absorb(frame, self.settings.notify):
            if self.app_focus and self._is_in_view(telling):
                continue
            if (passed := self._pace.pass_on(telling, self._clock())) is not None:
                self.tell(passed)

    def tell(self, telling: DesktopNotification) -> None:
        """Tell it: here when the terminal has the focus, on the desktop when not."""
        wanted = self.settings.notify
        if wanted.bell:
            self.write_terminal(BELL)
        if self.app_focus:
            severity = "error" if telling.grave else "information"
            text = telling.text or telling.title
            if telling.action:
                text += f" ({keys_of(telling.action, self.settings.keys).rpartition(',')[2]})"
            title = telling.title if telling.text else ""
            self.notify(text, title=title, severity=severity, markup=False)  # type: ignore[arg-type]
            return
        if wanted.desktop:
            self.write_terminal(desktop_sequence(telling, os.environ))
        if wanted.program and (command := program(telling, sys.platform, os.environ)):
            self.run_worker(run(command, timeout=_PROGRAM_TIMEOUT), group="notices", exit_on_error=False)

    # The title

    def show_title(self, summary: Summary | None) -> None:
        """Set the terminal's title, if it is another; take it back when that was switched off."""
        if not self.settings.notify.title:
            self.restore_title()
            return
        title = title_of(summary, self._project)
        if title == self._title:
            return
        if not self._title_pushed:
            self._title_pushed = True
            self.write_terminal(PUSH_TITLE)
        self._title = title
        self.write_terminal(title_sequence(title))

    def restore_title(self) -> None:
        """The title that the terminal had before."""
        if self._title_pushed:
            self._title, self._title_pushed = "", False
            self.write_terminal(POP_TITLE)
