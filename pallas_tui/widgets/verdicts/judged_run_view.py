"""One run of a verdict: what differs first, word by word, with both values whole."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from pallas.model import RunVerdict, VerdictReached
from pallas.recordings.diff_lines import word_lines
from pallas.recordings.word_diff import word_diff
from pallas.safe_text import one_line

from ...actions import bindings
from ...clipboard import copy
from ...runs.run_comparison import styled
from ...runs.verdict_tones import TONES
from ...state import Tone
from ...text import Glyphs, Line, duration, moment
from ..fact_lines import fact
from ..folded_lines import FoldedLines
from ..tones import DIM, STRONG, STYLES, shape
from .judged_run_pane import JudgedRunPane, VerdictContext, place_of_test

_WIDE = 1_000


class JudgedRunView(JudgedRunPane):
    """The run as it was judged; ``r`` and the other keys act on the fleet as it is now."""

    TITLE = "Verdict"
    HELP = """\
What a recorded run would do differently with the files that were saved: the first difference, word by word
(`[-old-]{+new+}`), and below that the recorded and the new value. What comes after the first
difference is not known without asking the model; **p** replays a test and shows all that can be compared.

**o** shows what was recorded: the run in the feed, or the recording of the test. **t** opens the test's file,
**e** that of the agent. **r** lets a version through that is held back, **s** keeps the run again, **y**
copies all of it.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("judged_run")

    def __init__(
        self,
        context: VerdictContext,
        event: VerdictReached,
        run: RunVerdict,
        glyphs: Glyphs,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(id="judged-run")
        self.context = context
        self._event, self._run = event, run
        self._glyphs, self._clock = glyphs, clock
        self._lines: Sequence[Line] = [*self._head(), *self._facts("")]

    def compose(self) -> ComposeResult:
        yield FoldedLines(self._lines, id="judged-run-lines", hang=lambda line: 0)

    def on_mount(self) -> None:
        """Compare the values, and follow what is held back."""
        self.context.book.watchers.append(self._hear)
        self.run_worker(self._compare(), group="compare", description="compare the values of a verdict")

    def on_unmount(self) -> None:
        """Hear no more."""
        if self._hear in self.context.book.watchers:
            self.context.book.watchers.remove(self._hear)

    def _hear(self) -> None:
        if self.is_mounted:
            self.call_later(self.refresh_bindings)

    @property
    def judged(self) -> tuple[VerdictReached, RunVerdict] | None:
        return self._event, self._run

    async def _compare(self) -> None:
        test = await self.context.test_of(self._run)
        place = place_of_test(test, self.context.tests.root) if self._run.source == "test" else ""
        values = await asyncio.to_thread(lambda: list(_values(self._run)))
        self._lines = [*self._head(), *self._facts(place), *values]
        if self.is_attached and self.query(FoldedLines):
            self.query_one(FoldedLines).put(self._lines)

    def _head(self) -> Iterator[Line]:
        run = self._run
        tone = TONES.get(run.word, Tone.DEGRADED)
        yield (shape(tone, self._glyphs), (f" {run.words}", STYLES[tone]), (f"  {run.name}", STRONG))
        what = f"{run.where}: {run.what}" if run.where else run.what
        yield ((what or "It does not differ from its recording.", ""),)
        yield ()

    def _facts(self, place: str) -> Iterator[Line]:
        event, run = self._event, self._run
        saved = one_line(", ".join(event.files or event.agents), _WIDE)
        yield from fact("saved", f"{saved}, at {moment(event.at, self._clock())}", _WIDE)
        yield from fact("changed", ", ".join(run.agents) or "no agent of it", _WIDE)
        yield from fact("asked", run.agent, _WIDE)
        if run.source == "test":
            yield from fact("test", place or run.name, _WIDE)
        else:
            yield from fact("run", run.name, _WIDE)
        if run.request:
            asked = f"{run.asked.text}, since {run.request}" if run.asked is not None else run.request
            yield from fact("models", asked, _WIDE)
        if run.seconds:
            yield from fact("took", duration(run.seconds), _WIDE)
        yield ()

    async def action_copy(self) -> None:
        """Copy all of it."""
        text = "\n".join("".join(part for part, _ in line) for line in self._lines)
        self.notify(await copy(self.app, text), markup=False)


def _values(run: RunVerdict) -> Iterator[Line]:
    """What differs, word by word, and both values."""
    before, after = run.before_text, run.after_text
    if before and after:
        yield (("what differs", STRONG),)
        yield from (styled(line) for line in word_lines(word_diff(before, after)))
        yield ()
    before, after = before or run.before, after or run.after
    for label, text in (("recorded", before), ("now", after)):
        if before or after:
            yield ((label, STRONG),)
            yield from (((line, "" if text else DIM),) for line in (text or "nothing").split("\n"))
            yield ()
