"""An error in one pane stays in that pane; one of the workbench itself is written down before it ends."""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from traceback import TracebackException
from typing import Any, Final

from textual._context import active_message_pump
from textual.app import App
from textual.dom import DOMNode
from textual.events import ScreenResume
from textual.screen import Screen
from textual.widget import Widget

from pallas.model.redaction import redact_text
from pallas.safe_text import one_line, sanitize

from ..screens.main_screen import MainScreen
from ..widgets.pane import Pane

MAX_REPORTS: Final = 10
"""Reports that stay; older ones go."""
_LONGEST: Final = 200_000
_FRAMES: Final = 100

MAX_ACTIONS: Final = 50
_CHECK_AFTER: Final = 0.5
_REMOVAL: Final = 2.0
_logger = logging.getLogger("pallas_tui")


def in_one_line(error: BaseException) -> str:
    """Return an error as ``KeyError: 'x'``: sanitised, short, with secrets masked."""
    error = root_of(error)
    text = one_line(redact_text(str(error)), 160)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def traceback_of(error: BaseException) -> str:
    """The traceback without any value of a variable, masked and clean."""
    error = root_of(error)
    lines = TracebackException(
        type(error), error, error.__traceback__, limit=-_FRAMES, capture_locals=False, max_group_depth=3
    ).format()
    return sanitize(redact_text("".join(lines)), _LONGEST)


def report(error: BaseException, doing: str, facts: str, actions: Iterable[str]) -> str:
    """All that a person needs to pass on. ``actions`` are names of actions, oldest first."""
    done = "\n".join(f"  {action}" for action in actions) or "  none"
    return (
        f"Pallas workbench: an error {doing}\n\n{in_one_line(error)}\n\n"
        f"{redact_text(facts)}\n\nLast actions\n{done}\n\n{traceback_of(error)}"
    )


def save_report(folder: Path, text: str, now: float | None = None) -> Path | None:
    """Keep a report for this user only; returns where it is, None when the disk would not take it."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    path = folder / f"crash-{stamp}-{os.getpid()}.txt"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        return None
    for old in sorted(folder.glob("crash-*.txt"))[:-MAX_REPORTS]:
        with suppress(OSError):
            old.unlink()
    return path


def root_of(error: BaseException) -> BaseException:
    """The error inside what a worker of the screen wraps it in."""
    inner = getattr(error, "error", None)
    return inner if type(error).__name__ == "WorkerFailed" and isinstance(inner, BaseException) else error


def widgets_of(error: BaseException) -> list[object]:
    """Whose methods the error came through, the innermost first."""
    found: list[object] = []
    trace = root_of(error).__traceback__
    while trace is not None:
        values = trace.tb_frame.f_locals
        found += [values[name] for name in ("self", "widget") if values.get(name) is not None]
        trace = trace.tb_next
    return found[::-1]


class Bounded(App[int]):
    """The part of the workbench that meets errors.

    ``strict`` lets every error end it, as tests want that look for none. ``reports`` is the folder for what
    is written when it breaks; without one nothing is.
    """

    def __init__(self, *, strict: bool, reports: Path | None, **more: Any) -> None:
        super().__init__(**more)
        self.strict = strict
        self._reports = reports
        self._failure: BaseException | None = None
        self._report: Path | None = None
        self._done: deque[str] = deque(maxlen=MAX_ACTIONS)
        self._broken: set[Pane] = set()

    @property
    def main(self) -> MainScreen:
        """The main screen, which is always at the bottom of the stack."""
        screen = self.screen_stack[0]
        assert isinstance(screen, MainScreen)
        return screen

    @property
    def failure(self) -> BaseException | None:
        """What ended the workbench, None when it was its user."""
        return self._failure

    @property
    def report(self) -> Path | None:
        """The report of what ended the workbench."""
        return self._report

    def facts(self) -> str:
        """What a report says of this installation."""
        return ""

    def _facts(self) -> str:
        """The facts, or why there are none: what broke may be what they are asked of."""
        try:
            return self.facts()
        except Exception as error:
            return f"The facts could not be collected: {in_one_line(error)}"

    # What happens

    async def run_action(
        self,
        action: Any,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Run an action; show its failure, which ends nothing else."""
        name = action.partition("(")[0] if isinstance(action, str) else str(action[1])
        try:
            ran = await super().run_action(action, default_namespace, namespaces)
        except Exception as error:
            if self.strict:
                raise
            _logger.exception("the action %s failed", name)
            self.notify(
                f"{in_one_line(error)}. The log has the details.",
                title=f"“{name}” did not work",
                severity="error",
                markup=False,
            )
            return True
        if ran:
            # Names only: what an action was given may be anybody's text.
            self._done.append(name)
        return ran

    def explain(self, error: Exception, doing: str) -> tuple[str, str]:
        """One line for the screen and a report to copy."""
        _logger.error("an error %s", doing, exc_info=root_of(error))
        return in_one_line(error), report(error, doing, self._facts(), self._done)

    def contain(self, pane: Pane, error: Exception) -> bool:
        """Replace a pane that broke by words about it; False when every error is to end the workbench."""
        if self.strict:
            return False
        if pane in self._broken:
            _logger.error("the %s pane failed again while it was removed", pane.id, exc_info=error)
            return True
        self._broken.add(pane)
        reason, report = self.explain(error, f"in the {pane.id} pane")
        self.run_worker(self._replace(pane, reason, report), group=f"broken-{pane.id}", exit_on_error=False)
        self.set_timer(_CHECK_AFTER, lambda: self._check(error))
        return True

    async def _replace(self, pane: Pane, reason: str, report: str) -> None:
        try:
            await self.main.replace_broken(pane, reason, report)
        except Exception as error:
            self._die(error)
        finally:
            self._broken.discard(pane)

    def _check(self, error: Exception) -> None:
        """End the workbench if the task that draws the pane has ended: nothing would move any more."""
        if self.is_running and not self.main.is_running:
            self._die(error)

    def _handle_exception(self, error: Exception) -> None:
        try:
            pane = self._pane_of(error)
            if pane is not None and self.contain(pane, error):
                return
            if not self.strict and self._close_sheet(error):
                return
        except Exception as second:
            _logger.exception("an error while meeting an error: %s", type(second).__name__)
        self._die(error)

    def _pane_of(self, error: Exception) -> Pane | None:
        if not self.screen_stack or not isinstance(self.screen_stack[0], MainScreen):
            return None
        for owner in (*widgets_of(error), active_message_pump.get(None)):
            if isinstance(owner, Widget) and (pane := self.main.pane_of(owner)) is not None:
                return pane
        return None

    def _close_sheet(self, error: Exception) -> bool:
        """Close the screen above the main one that the error is in."""
        pump = active_message_pump.get(None)
        for owner in (*widgets_of(error), pump):
            if not isinstance(owner, Widget) or not owner.is_attached:
                continue
            screen = owner.screen
            if screen is self.main or screen is not self.screen or not screen.is_mounted:
                return False
            reason, _ = self.explain(error, f"in {type(screen).__name__}")
            self.notify(
                f"{reason}. The log has the details.",
                title="That failed and was closed",
                severity="error",
                markup=False,
            )
            self.call_later(self._drop, screen)
            return True
        return False

    def _drop(self, screen: Screen[Any]) -> None:
        """Take a screen away whose message loop may have stopped: no one may wait for it to agree."""
        stack = self._screen_stack
        if len(stack) < 2 or stack[-1] is not screen:
            return
        stack.pop()
        self.screen.post_message(ScreenResume())
        self.screen.refresh(layout=True)
        self.run_worker(self._remove(screen), group="broken-screen", exit_on_error=False)

    async def _remove(self, screen: Screen[Any]) -> None:
        with suppress(Exception):
            async with asyncio.timeout(_REMOVAL):
                await screen.remove()

    def _die(self, error: Exception) -> None:
        # Textual would print a traceback with local variables, which may hold what no one should see.
        _logger.error("the workbench stopped", exc_info=error)
        if self._failure is None:
            self._failure = error
            try:
                if self._reports is not None:
                    text = report(error, "of its own", self._facts(), self._done)
                    self._report = save_report(self._reports, text)
            except Exception:  # without a report, but in good order
                _logger.exception("no report could be written")
        super()._handle_exception(error)
        self._exit_renderables.clear()
