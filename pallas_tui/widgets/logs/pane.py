"""The logs pane: the JSON log of this fleet, as it is written."""

from pathlib import Path
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.worker import Worker

from ...text import UNICODE, Glyphs
from ..filter import FilterLine
from ..list_pane import ListPane
from .detail import RecordScreen
from .index import ERROR, INFO, LEVELS, WARNING
from .query import Query
from .record import FULL_LIMIT, full, title_of
from .source import LogSource
from .view import LogList

_CYCLE: Final = (0, INFO, WARNING, ERROR)


class LogsPane(ListPane):
    """Shows a log file of JSON lines, however long; what is not JSON is shown as it stands."""

    TITLE = "Logs"
    HELP = """\
The log of this fleet, one line a record: when, how grave, who says it, the message, and dim what else
it holds. Long messages go on to the **right**.

**Enter** opens a record in full, with its traceback. The list follows only while the cursor is at the
end; elsewhere nothing moves, and the title says how many lines are new below. **f** goes back to the end.

**/** shows only records that hold a text, in any of their fields; **l** only those of a level and above.
Both look through the whole log, the newest records first, while you read.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "open", id="logs.open", tooltip="The record in full"),
        Binding("slash", "filter", "filter", id="logs.filter", tooltip="Only records that hold a text"),
        Binding("escape", "unfilter", "Show all records", show=False, id="logs.unfilter"),
        Binding("l", "level", "level", id="logs.level", tooltip="Only records that are as grave"),
        Binding("f", "follow", "follow", id="logs.follow", tooltip="Go to the end and stay there"),
        Binding("y", "copy", "copy", show=False, id="logs.copy", tooltip="Copy the record"),
    ]

    def __init__(self, path: Path, glyphs: Glyphs | None = None, *, id: str = "logs") -> None:  # noqa: A002
        """``path`` need not exist yet. Without ``glyphs`` those of the application are taken."""
        super().__init__(id=id)
        self._glyphs = glyphs or UNICODE
        self._own_glyphs = glyphs is None
        self._source = LogSource(path, self._changed)
        self._level = 0
        self._worker: Worker[None] | None = None

    def compose(self) -> ComposeResult:
        if self._own_glyphs:
            self._glyphs = getattr(self.app, "glyphs", UNICODE)
        yield LogList(self._source, self._glyphs)
        yield FilterLine("text anywhere in the record", id="log-filter")

    @property
    def lines(self) -> LogList:
        """The list."""
        return self.query_one(LogList)

    def show_pane(self) -> None:
        super().show_pane()
        if self._worker is None or self._worker.is_finished:
            self._worker = self.run_worker(self._source.follow(), group="log", description="follow the log")
        self.call_after_refresh(self._changed)

    def hide_pane(self) -> None:
        super().hide_pane()
        if self._worker is not None:
            self._worker.cancel()
            self._worker = None

    def on_unmount(self) -> None:
        """Nobody reads the files any more."""
        self.hide_pane()
        self._source.close()

    def _changed(self) -> None:
        # While the application ends, the list goes before the worker that calls this.
        if self.is_showing and self.is_mounted and self.app.is_running:
            self.lines.show()
            self._say()

    def _say(self) -> None:
        """Tell the title bar what the eye cannot see."""
        source, words = self._source, []
        if unseen := self.lines.unseen:
            words.append(f"{unseen:,} new below")
        if source.query:
            wanted = [f"{LEVELS[source.query.level]}+" if source.query.level else "", source.query.text]
            words.append(
                f"{' '.join(word for word in wanted if word)}: {len(source.rows):,} of {len(source.index):,}"
            )
        else:
            words.append(f"{len(source.rows):,} lines" if len(source.rows) != 1 else "1 line")
        if source.busy:
            words.append(source.busy)
        self.caption = f" {self._glyphs.dot} ".join(words) if source.exists else ""

    def selection_changed(self) -> None:
        self._say()

    def filter_by(self, words: tuple[str, ...]) -> None:
        self._ask()

    def _ask(self) -> None:
        # The text as a whole, not its words: that is how one looks for a message one has seen.
        self.lines.hold()
        self._source.ask(Query(self._level, self.filter.value.strip()))

    def story(self) -> tuple[str, str] | None:
        found = self._line()
        if found is None:
            return None
        return title_of(found[0]), "\n\n".join(part for part in full(*found) if part)

    def choose(self) -> None:
        """Open the record in full."""
        if (found := self._line()) is not None:
            self.app.push_screen(RecordScreen(*found, self._step))

    def _step(self, by: int) -> tuple[bytes, int] | None:
        lines = self.lines
        if not 0 <= lines.cursor + by < lines.line_count():
            return None
        lines.action_move(by)
        return self._line()

    def _line(self) -> tuple[bytes, int] | None:
        number = self.lines.selected
        return None if number is None else self._source.read(number, FULL_LIMIT)

    def action_level(self) -> None:
        """Show the next level and above; after the gravest, all again."""
        self._level = _CYCLE[(_CYCLE.index(self._level) + 1) % len(_CYCLE)]
        self._ask()

    def action_follow(self) -> None:
        """Go to the end and stay there."""
        self.lines.action_last()
