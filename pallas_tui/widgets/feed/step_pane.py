"""One step of a run: what was sent, what came back, and how long it took."""

import asyncio
from typing import Any, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from pallas.model import StepDetail
from pallas_tui.text import failure_text

from ...actions import bindings
from ...clipboard import copy
from ...runs.step_text import as_curl, as_json, as_messages, as_text, lines_of
from ...text import Line
from ..filter_line import FilterLine
from ..folded_lines import FoldedLines
from ..pane import Pane

DEADLINE: Final = 35.0
"""Seconds that a step may take to be read."""
EVERY: Final = 1.0
"""Seconds between two reads of a step that is under way."""


class StepPane(Pane):
    """Follows its step until it has ended."""

    TITLE = "Step"
    HELP = """\
What a model was asked in one step, and its answer: instructions, messages, the tools it was offered,
parameters, tokens, time to the first token, attempts; or the arguments and the result of a call of a tool or
an agent. Both documents follow as JSON. Secrets are masked.

**/** finds words, **n** and **N** go to the next and the one before. **y** copies all of it as text, **c** as
JSON, **m** what was said, **u** (of a model) a curl command, which takes the key from a variable.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("step")

    def __init__(self, run_id: str, number: int) -> None:
        super().__init__(id="step")
        self._place = run_id, number
        self._detail: StepDetail | None = None
        self._lines: list[Line] = [(("reading ...", "dim"),)]
        self._is_reading = False

    def compose(self) -> ComposeResult:
        yield FoldedLines(self._lines, id="step-lines")
        yield FilterLine("find words", id="step-find")

    @property
    def view(self) -> FoldedLines:
        """The lines."""
        return self.query_one(FoldedLines)

    @property
    def find_line(self) -> FilterLine:
        """The line for the words to find."""
        return self.query_one(FilterLine)

    def on_mount(self) -> None:
        """Read the step, again and again until it has ended."""
        self._read()
        self.set_interval(EVERY, self._read)

    def focus_pane(self) -> None:
        self.view.focus()

    def _read(self) -> None:
        is_over = self._detail is not None and self._detail.step.seconds is not None
        if not is_over and not self._is_reading:
            self._is_reading = True
            self.run_worker(self._reading(), group="step", exit_on_error=False)

    async def _reading(self) -> None:
        fleet: Any = getattr(self.app, "fleet", None)
        try:
            async with asyncio.timeout(DEADLINE):
                self._detail = await fleet.step(*self._place)
        except Exception as error:  # a remote fleet may raise others than Fault
            self._tell(failure_text(error, DEADLINE))
        else:
            self._lines = lines_of(self._detail)
            self.view.put(self._found(), top=False)
        finally:
            self._is_reading = False
        self.refresh_bindings()

    def _tell(self, why: str) -> None:
        if self._detail is None:
            self.view.put([((f"The step could not be read: {why}", "$text-warning"),)])

    def _found(self) -> list[Line]:
        """The lines, with those that have all words marked."""
        if not (words := self.find_line.words):
            return self._lines
        return [
            tuple((text, f"{style} reverse".strip()) for text, style in line) if _has(line, words) else line
            for line in self._lines
        ]

    def _matches(self) -> list[int]:
        words = self.find_line.words
        return [number for number, line in enumerate(self._lines) if words and _has(line, words)]

    @on(FilterLine.Filtered)
    def _filtered(self, event: FilterLine.Filtered) -> None:
        event.stop()
        self.view.put(self._found(), top=False)
        matches = self._matches()
        self.caption = f"{len(matches)} lines found" if event.words else ""
        if matches:
            self._go_to(matches[0])

    @on(FilterLine.FilterLeft)
    def _left(self, event: FilterLine.FilterLeft) -> None:
        event.stop()
        self.view.focus()

    def action_find(self) -> None:
        """Find words."""
        self.find_line.open()

    def action_next(self, by: int) -> None:
        """Go to the next line that has the words, or the one before."""
        matches = self._matches()
        if not matches:
            return
        here = self.view.line_number
        onwards = [each for each in matches if (each > here if by > 0 else each < here)] or matches
        self._go_to(onwards[0] if by > 0 else onwards[-1])

    def _go_to(self, number: int) -> None:
        if (place := self.view.find(number)) is not None:
            self.view.action_move_to(place)

    async def action_copy(self, form: str) -> None:
        """Copy the step in one of its forms."""
        if self._detail is not None:
            forms = {"text": as_text, "json": as_json, "messages": as_messages, "curl": as_curl}
            self.notify(await copy(self.app, forms[form](self._detail)), markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that need words, or a step, are off without them."""
        if not self.is_mounted:
            return True
        if action == "next":
            return bool(self.find_line.words) and not self.find_line.has_focus
        if action == "copy" and self._detail is not None:
            return self._detail.step.kind == "model" or parameters != ("curl",)
        return action != "copy"


def _has(line: Line, words: tuple[str, ...]) -> bool:
    text = "".join(part for part, _ in line).lower()
    return all(word in text for word in words)
