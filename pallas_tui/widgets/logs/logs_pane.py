"""The logs pane: the live JSON log of this fleet."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar, Final, Literal

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.worker import Worker

from ...actions import bindings
from ...clipboard import copy
from ...frame import FleetFrame
from ...json_file import JsonFile
from ...settings import state_path
from ...targets import Entity, FilterTarget, Reveal, RunTarget, Target
from ...text import UNICODE, Glyphs, joined
from ..list_pane import ListPane
from ..setting_watch import follow
from .export_screen import ExportScreen
from .filter_language import read_filter
from .filter_terms import FilterMistake, compile_regex
from .log_index import ERROR, INFO, LEVELS, WARNING
from .log_lines import AskingLine, MistakeLine, QueryLine, RegexLine
from .log_query import LogQuery
from .log_record import FULL_LIMIT, as_json, as_text, load, title_of
from .log_source import LogSource
from .log_view import LogList
from .record_screen import RecordScreen, quoted, run_of
from .saved_filters import SavedFilters
from .saved_filters_screen import FiltersScreen

_CYCLE: Final = (0, INFO, WARNING, ERROR)
Way = Literal["next", "previous", "near"]


class LogsPane(ListPane):
    """Shows a log file of JSON lines of any length; other lines are shown unchanged."""

    TITLE = "Logs"
    HELP = """\
The log of this fleet, one line a record; all fleets of this user on its machine write to one file, and
**a** shows the records of the others too. A line has time, level, logger, message, and dim the other fields.
Long messages continue to the **right**; **w** wraps them.

**Enter** opens a record in full, as a tree. The list follows only while the cursor is at the
end; elsewhere nothing moves, and the title shows how many new lines are below. **f** goes back to the end.

**/** filters: words match anywhere, `agent:research` in a field (`:` contains, `=` is, `!=`, `>` `>=` `<`
`<=` for numbers, levels and times, `~` matches a regex), `-` leaves out, quotes keep words together, `OR` and
brackets as usual. **l** shows only records of a level and above, **m** lists the filters you have saved.
**s** finds a regex in the listed records, **n** and **N** go to the next and the previous match. Both search
the whole log, the newest records first, while you read.

**r** goes to the run that a record is about, **y** copies the record as text, **Y** as JSON, **x** writes
all listed records to a file.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("logs")

    def __init__(
        self,
        path: Path,
        glyphs: Glyphs | None = None,
        *,
        saved: SavedFilters | None = None,
        id: str = "logs",  # noqa: A002 - Textual's word
    ) -> None:
        """``path`` need not exist yet. Without ``glyphs`` those of the application are used.

        ``saved`` are the named filters; without it those of this user.
        """
        super().__init__(id=id)
        self._glyphs = glyphs or UNICODE
        self._own_glyphs = glyphs is None
        self._source = LogSource(path, self._changed)
        self._saved = saved or SavedFilters(JsonFile(state_path("filters")))
        self._level = 0
        self._project, self._shows_all = "", False
        self._worker: Worker[None] | None = None
        self._wanted: Way | None = None
        self._turned = ""

    def compose(self) -> ComposeResult:
        if self._own_glyphs:
            self._glyphs = getattr(self.app, "glyphs", UNICODE)
        yield LogList(self._source, self._glyphs)
        yield RegexLine("regex to find", id="log-find")
        yield QueryLine("words, agent:x, level>=warning, -logger:y", id="log-filter")
        yield MistakeLine()

    def on_mount(self) -> None:
        """Wrap as the settings say, until ``w`` changes it; show this fleet's records."""
        follow(self, "wrap", False, self.lines.set_wrap)
        self._ask()

    @property
    def lines(self) -> LogList:
        """The list."""
        return self.query_one(LogList)

    @property
    def filter(self) -> QueryLine:
        """The line it is filtered in."""
        return self.query_one(QueryLine)

    @property
    def find_line(self) -> RegexLine:
        """The line of the regex."""
        return self.query_one(RegexLine)

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
        """Stop reading the files."""
        self.hide_pane()
        self._source.close()

    def absorb(self, frame: FleetFrame) -> None:
        if frame.snapshot.project != self._project:
            self._project = frame.snapshot.project
            if self.is_mounted:
                self._ask()

    def action_all_fleets(self) -> None:
        """Show also the records of other fleets that write to the same file, or only this one's again."""
        self._shows_all = not self._shows_all
        self._ask()

    def _changed(self) -> None:
        # While the application ends, the list is removed before the worker that calls this.
        if self.is_showing and self.is_mounted and self.app.is_running:
            self.lines.show()
            if self._wanted is not None:
                self._go(self._wanted)
            self._say()

    def _say(self) -> None:
        """Update the title bar with what the list cannot show."""
        source, words = self._source, []
        if unseen := self.lines.unseen:
            words.append(f"{unseen:,} new below")
        if source.query.level or source.query.text:
            wanted = [f"{LEVELS[source.query.level]}+" if source.query.level else "", source.query.text]
            words.append(
                f"{' '.join(word for word in wanted if word)}: {len(source.rows):,} of {len(source.index):,}"
            )
        else:
            words.append(f"{len(source.rows):,} lines" if len(source.rows) != 1 else "1 line")
        if self._shows_all and self._project:
            words.append("all fleets")
        if source.found is not None:
            place = source.found.place(self.lines.selected)
            words.append(f"found {f'{place:,} of ' if place else ''}{len(source.found):,}{self._turned}")
        words += [word for word in (source.trouble, source.slowness, source.busy) if word]
        self.caption = joined(words, self._glyphs) if source.exists else ""

    def selection_changed(self) -> None:
        self._turned = ""
        self._say()

    # Filter and search

    def filter_by(self, words: tuple[str, ...]) -> None:
        self._ask()

    def _ask(self) -> None:
        """Apply the filter and the search; after a mistake the query before stays.

        There is no pause for typing: a replaced query costs nothing, since its search ends at once and
        matches are painted at most ten times a second.
        """
        text, pattern = self.filter.value.strip(), self.find_line.value
        if _understood(self.filter, read_filter):
            self.lines.hold()
            project = "" if self._shows_all else self._project
            self._source.ask(LogQuery(self._level, text, project=project))
        if _understood(self.find_line, _compiled) and pattern != self._source.sought.pattern:
            self.lines.mark(compile_regex(pattern) if pattern else None)
            self._source.find(pattern)
            self._wanted = "near" if pattern else None
        wrong = next((line for line in (self.filter, self.find_line) if line.mistake is not None), None)
        self.query_one(MistakeLine).tell(wrong)
        self.refresh_bindings()

    def set_filter(self, text: str, level: int = 0) -> None:
        """Set the filter, as if it had been typed."""
        self._level = level
        self.filter.set_value(text)
        self._ask()

    def action_find(self) -> None:
        """Focus the line of the regex."""
        self.find_line.open()

    def action_match(self, way: Way) -> None:
        """Go to the next or the previous match; from the last one to the first."""
        if self._source.found is None:
            self.action_find()
        else:
            self._go(way)
            self._say()

    def _go(self, way: Way) -> None:
        """Go to a match, as soon as it is known which is the next one."""
        found, here = self._source.found, self.lines.selected
        self._wanted = None
        if found is None or here is None:
            return
        if not self._source.is_searched_from(here):
            self._wanted = way
            return
        row = found.row(here + 1) if way == "next" else found.row(here + (way == "near")) - 1
        turned = ""
        if not 0 <= row < len(found):
            if self._source.finding:
                self._wanted = way
                return
            turned = ", from the top" if way == "next" else ", from the end"
            row = 0 if way == "next" or len(found) == 0 else len(found) - 1
            if way == "near":
                turned, row = "", 0
        if len(found):
            self.lines.go_to(found.number(row))
            self.call_after_refresh(self._note, turned)

    def _note(self, turned: str) -> None:
        self._turned = turned
        self._say()

    def action_unfilter(self) -> None:
        """Clear the search, then the filter."""
        if self.find_line.value:
            self.find_line.clear_filter()
        else:
            self.filter.clear_filter()
        self._ask()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enable escape only when there is a filter or search; letters are text while the user types."""
        if self.is_mounted and action == "unfilter":
            return bool(self.filter.words or self.find_line.value) and not self.returns
        if self.is_mounted and action == "filter" and self.find_line.has_focus:
            return False
        return super().check_action(action, parameters)

    def action_level(self) -> None:
        """Show the next level and above; after the highest, all again."""
        self._level = _CYCLE[(_CYCLE.index(self._level) + 1) % len(_CYCLE)]
        self._ask()

    def action_saved(self) -> None:
        """Choose a saved filter, or save this one."""
        level = f"level>={LEVELS[self._level].lower()}" if self._level else ""
        text = "" if self.filter.mistake else self.filter.value.strip()
        current = f"{level} ({text})" if level and " OR " in text else f"{level} {text}".strip()

        def chosen(found: str | None) -> None:
            if found is not None:
                self.set_filter(found)

        self.app.push_screen(FiltersScreen(self._saved, current), chosen)

    # One record

    def full_text(self) -> tuple[str, str] | None:
        found = self._line()
        return None if found is None else (title_of(found[0]), as_text(*found))

    def choose(self) -> None:
        """Open the record in full."""
        if (found := self._line()) is not None:
            self.app.push_screen(RecordScreen(*found, self._step, self._glyphs), self._left_record)

    def _left_record(self, result: RunTarget | str | None) -> None:
        if isinstance(result, RunTarget):
            self.post_message(Reveal(result))
        elif result:
            text = self.filter.value.strip()
            self.set_filter(
                f"({text}) {result}" if " OR " in text else f"{text} {result}".strip(), self._level
            )

    def _step(self, by: int) -> tuple[bytes, int] | None:
        lines = self.lines
        if not 0 <= lines.cursor + by < lines.line_count():
            return None
        lines.action_move(by)
        return self._line()

    def _line(self) -> tuple[bytes, int] | None:
        number = self.lines.selected
        return None if number is None else self._source.read(number, FULL_LIMIT)

    async def action_copy_json(self) -> None:
        """Copy the record as JSON."""
        if (found := self._line()) is not None:
            self.notify(await copy(self.app, as_json(*found)), markup=False)

    def action_run(self) -> None:
        """Go to the run of the record."""
        found = self._line()
        if found is not None and (run_id := run_of(load(found[0]))):
            self.post_message(Reveal(RunTarget(run_id)))
        else:
            self.notify("This record is not about a run.", markup=False)

    # All of them

    def action_follow(self) -> None:
        """Go to the end and follow it."""
        self.lines.action_last()

    def action_wrap(self) -> None:
        """Toggle the wrapping of long records."""
        self.lines.set_wrap(not self.lines.wrap)

    def action_export(self) -> None:
        """Write the listed records to a file."""
        if not len(self._source.rows):
            self.notify("Nothing is listed.", markup=False)
            return

        def done(written: str | None) -> None:
            if written is not None:
                self.notify(written, markup=False)

        self.app.push_screen(ExportScreen(self._source), done)

    def reveal(self, target: Target) -> bool:
        if isinstance(target, RunTarget):
            self.set_filter(f"run_id={quoted(target.run_id)}")
        elif isinstance(target, FilterTarget) and target.name in self._saved.all():
            self.set_filter(self._saved.all()[target.name])
        else:
            return False
        self.lines.action_last()
        return True

    def entities(self) -> Iterable[Entity]:
        for name, text in self._saved.all().items():
            yield Entity(f"Logs: {name}", f"Saved filter: {text}", FilterTarget(name))


def _compiled(pattern: str) -> object:
    return compile_regex(pattern)


def _understood(line: AskingLine, read: Callable[[str], object]) -> bool:
    """Return whether a line can be parsed; mark the mistake in it."""
    try:
        read(line.value)
    except FilterMistake as mistake:
        line.tell(mistake)
        return False
    line.tell(None)
    return True
