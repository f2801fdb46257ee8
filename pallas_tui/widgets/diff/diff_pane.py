"""Two runs side by side: their steps aligned, and what differs in the selected one."""

import asyncio
from collections.abc import Hashable
from typing import ClassVar, Final

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from pallas_tui.text import failure_text

from ...actions import bindings
from ...clipboard import copy
from ...runs.run_comparison import CannotCompare, ComparedRow, Comparison, DiffSource, head_of, rows_of
from ...text import Glyphs, Line, count, cropped, width_of
from ..folded_lines import FoldedLines
from ..line_view import LineView
from ..list_pane import ShowText
from ..pane import Pane
from ..row_list import RowList
from ..tones import DIM

_WORDS: Final = {
    "runs": ("reading ...", "The runs could not be compared: {}\n\nr reads them again."),
    "replay": (
        "The question is asked again. Models and tools answer from the recording: nothing real is called.",
        "The run could not be replayed: {}\n\nr replays it again.",
    ),
    "fork": (
        "The other version is started and goes on. Models and tools are asked for real.",
        "The run could not go on: {}\n\nr starts it again.",
    ),
}
"""What is said while the runs are read, and when that failed; by the kind of their source."""


class DiffList(RowList[ComparedRow]):
    """The aligned tree, one line for each run and each step."""

    def row_key(self, row: ComparedRow) -> Hashable:
        return row.number

    def line_at(self, index: int, width: int) -> Line:
        line = self.rows[index].line
        if width_of(line) <= width:
            return line
        return (*cropped(line, width - 1), (self._glyphs.ellipsis, DIM))


class DiffPane(Pane):
    """Reads and compares two runs that are over."""

    TITLE = "Diff"
    HELP = """\
Two runs, the marked one and the one that it is compared with: their steps in one tree, with those of the runs
that they started. The numbers are those of a step in the first and in the second run.

`=` is the same, `~` differs in what is named after it, `+` is only in the second run, `-` only in the first
one, `>` is in another place. A step is compared by what is new in it: what only follows from an earlier
difference does not count, and neither do ids, tokens and time.

Beside the list is what differs in the selected line, word by word: `[-old-]{+new+}`. **n** and **N** go to
the next and the previous difference, **tab** to the text. **o** also shows what is the same, **enter** shows
everything about the line on a separate screen, **y** copies it. **r** reads both runs again.

In a replay the first run is the recorded one. The second one is the replay with the agents as they are now,
in a separate process. A line above says whether they are the same, what differs first, or what is not in the
recording. **r** replays the run again; leaving the screen ends the replay. A run that goes on with another
version of the project is shown in the same way.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("diff")

    def __init__(self, source: DiffSource, glyphs: Glyphs) -> None:
        super().__init__(id="diff")
        self._source = source
        self._waits, self._failure = _WORDS[source.kind]
        self._glyphs = glyphs
        self._found: Comparison | None = None
        self._everything = False

    def compose(self) -> ComposeResult:
        yield Static(id="diff-head", markup=False)
        with Container(id="diff-columns"):
            yield DiffList(self._glyphs, id="diff-list", hint=self._waits)
            yield FoldedLines(id="diff-text")

    @property
    def view(self) -> DiffList:
        """The tree."""
        return self.query_one(DiffList)

    @property
    def text(self) -> FoldedLines:
        """What differs in the selected line."""
        return self.query_one(FoldedLines)

    @property
    def _is_composed(self) -> bool:
        return self.is_mounted and self.is_attached and len(self.query("#diff-list, #diff-text")) == 2

    def on_mount(self) -> None:
        """Read both runs."""
        self.action_read()

    def focus_pane(self) -> None:
        self.view.focus()

    def action_read(self) -> None:
        """Read both runs, and compare them; a replay or a fork is made once more."""
        if self._source.kind != "runs" and self._is_composed:
            self._found = None
            self._clear(self._waits)
        self.run_worker(self._read(), group="diff", exclusive=True, exit_on_error=False)

    async def _read(self) -> None:
        source = self._source
        try:
            async with asyncio.timeout(source.seconds):
                found = await source.read()
        except CannotCompare as error:
            self._clear(self._failure.format(error))
        except Exception as error:  # a remote fleet may raise others than Fault
            self._clear(self._failure.format(failure_text(error, source.seconds)))
        else:
            self._found = found
            self._lay_out()
            self._go_to_first()

    def _clear(self, hint: str) -> None:
        """Show nothing but a hint."""
        if self._is_composed:
            self.query_one("#diff-head", Static).update("")
            self.caption = ""
            self.view.hint = hint
            self.view.show_rows(())
            self._show_details()
            self.refresh_bindings()

    def _lay_out(self) -> None:
        if not self._is_composed or self._found is None:
            return
        head = (Content.assemble(*line) for line in head_of(self._found, self._source.names))
        self.query_one("#diff-head", Static).update(Content("\n").join(head))
        rows = rows_of(self._found.found, everything=self._everything)
        self.caption = count(sum(each.differs for each in rows), "difference")
        self.view.show_rows(rows)
        self._show_details()
        self.refresh_bindings()

    def _go_to_first(self) -> None:
        first = self._found.found.first_divergence if self._found is not None else None
        for index, each in enumerate(self.view.rows):
            if each.row is not None and each.row.node is first:
                self.view.action_move_to(index)

    def _show_details(self) -> None:
        self._details()

    @work(group="details", exclusive=True, exit_on_error=False)
    async def _details(self) -> None:
        selected = self.view.selected
        lines = await asyncio.to_thread(selected.details) if selected is not None else []
        if self._is_composed:
            self.text.put(lines)

    @on(LineView.CursorMoved, "#diff-list")
    def _moved(self, event: LineView.CursorMoved) -> None:
        event.stop()
        self._show_details()
        self.refresh_bindings()

    @on(LineView.LineChosen, "#diff-list")
    def _chosen(self, event: LineView.LineChosen) -> None:
        event.stop()
        self.action_choose()

    def _selected_text(self) -> str:
        selected = self.view.selected
        lines = selected.details() if selected is not None else []
        return "\n".join("".join(text for text, _ in line) for line in lines)

    def action_choose(self) -> None:
        """Show everything about the selected line."""
        if text := self._selected_text():
            self.post_message(ShowText("Difference", text))

    async def action_copy(self) -> None:
        """Copy everything about the selected line."""
        if text := self._selected_text():
            self.notify(await copy(self.app, text), markup=False)

    def action_all(self) -> None:
        """Show only what differs, or all."""
        self._everything = not self._everything
        selected = self.view.selected
        self._lay_out()
        for index, each in enumerate(self.view.rows):
            if selected is not None and selected.row is not None and each.row == selected.row:
                self.view.action_move_to(index)

    def action_next(self, by: int) -> None:
        """Go to the next difference, or the one before."""
        places = [index for index, each in enumerate(self.view.rows) if each.differs]
        here = self.view.cursor
        onwards = [each for each in places if (each > here if by > 0 else each < here)] or places
        if onwards:
            self.view.action_move_to(onwards[0] if by > 0 else onwards[-1])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Without a difference there is nothing to go to, and without a line nothing to show."""
        if not self.is_mounted or not self.query(DiffList):
            return True
        if action == "next":
            return any(each.differs for each in self.view.rows)
        if action in ("choose", "copy"):
            return self.view.selected is not None and self.view.selected.row is not None
        return True
