"""Why a test failed, and below that the steps of its recording."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from pallas.safe_text import one_line

from ...actions import bindings
from ...clipboard import copy
from ...records.agent_test_book import AgentTestOutcome
from ...runs.step_text import lines_of, spent_text, title_of
from ...state import Tone
from ...text import Line, count, duration
from ..folded_lines import FoldedLines
from ..pane import Pane
from ..tones import DIM, STRONG, STYLES

if TYPE_CHECKING:
    from pallas.agent_tests.agent_test import AgentTest
    from pallas.model import Recording

MAX_LINES: Final = 20_000
"""Lines that are shown; the files of the recording have all."""


class RecordingPane(Pane):
    """The recording as it was when this was opened."""

    TITLE = "Recording"
    HELP = """\
Why the test did not pass the last time, and below that what its recording has: the question and the answer of
each run, and each step with what was sent and what came back. A replay asks for these steps, so the first
failure names what is no longer the same. **y** copies all of it.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("test_recording")

    def __init__(self, test: "AgentTest", outcome: AgentTestOutcome | None) -> None:
        super().__init__(id="test-recording")
        self._test, self._outcome = test, outcome
        self._lines: list[Line] = [*self._failures(), (("reading ...", DIM),)]

    def compose(self) -> ComposeResult:
        yield FoldedLines(self._lines, id="test-recording-lines", hang=lambda line: 0)

    def on_mount(self) -> None:
        """Read the recording."""
        self.run_worker(self._read(), group="recording", description="read a recording")

    def _failures(self) -> Iterator[Line]:
        failures = self._outcome.failures if self._outcome is not None else ()
        for failure in failures:
            yield from (((line, STYLES[Tone.ERROR]),) for line in failure.split("\n"))
        if not failures:
            why = "It has not run yet." if self._outcome is None else f"It {self._outcome.verdict}."
            yield ((why, DIM),)
        yield ()

    async def _read(self) -> None:
        lines = [*self._failures(), *await asyncio.to_thread(_recorded, self._test)]
        if len(lines) > MAX_LINES:
            left = f"{count(len(lines) - MAX_LINES, 'more line')}: see the files of the recording"
            lines = [*lines[:MAX_LINES], ((left, DIM),)]
        self._lines = lines
        if self.is_attached:
            self.query_one(FoldedLines).put(lines)

    def focus_pane(self) -> None:
        self.query_one(FoldedLines).focus()

    async def action_copy(self) -> None:
        """Copy all of it."""
        text = "\n".join("".join(part for part, _ in line) for line in self._lines)
        self.notify(await copy(self.app, text), markup=False)


def _recorded(test: "AgentTest") -> list[Line]:
    from pallas.recordings.recording_folder import BadRecording, read

    lines: list[Line] = []
    for path in (turn.recording for turn in test.turns if turn.recording is not None):
        lines.append(((f"recording {one_line(path.name, 100)}", DIM),))
        try:
            lines += _lines_of(read(path))
        except (BadRecording, OSError) as error:
            lines.append(((one_line(str(error), 300), STYLES[Tone.ERROR]),))
    return lines


def _lines_of(recording: "Recording") -> Iterator[Line]:
    for run in recording.runs:
        yield ()
        yield ((f"{run.agent} ", STRONG), (run.status, DIM))
        for label, text in (("asked", run.question), ("said", run.answer), ("fault", run.fault)):
            for number, line in enumerate(text.split("\n") if text else ()):
                yield ((f"{'' if number else label:<7}", DIM), (line, ""))
        for step in run.steps:
            yield ()
            at = duration(step.step.started_at)
            said = f"{title_of(step.step)}  {spent_text(step.step)}".rstrip()
            yield ((f"{said}  ", STRONG), (f"{at} after the first run began", DIM))
            yield from lines_of(step)[1:]  # its first line has the time of day, which a recording has not
