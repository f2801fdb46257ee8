"""One record of the log in full, as a tree."""

from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from pallas.safe_text import sanitize

from ...actions import bindings
from ...clipboard import copy
from ...targets import RunTarget
from ...text import Glyphs, Line
from ..line_view import LineView
from ..status_line import StatusLine
from .filter_terms import text_of
from .log_record import as_json, as_text, cut_note, load, title_of
from .record_tree import Path, TreeLine, text_lines, tree_lines, value_at

Step = Callable[[int], tuple[bytes, int] | None]
"""Returns the line so many rows further, and its bytes in all; None where there is none."""

_FILTERABLE: Final = 200


class RecordTree(LineView):
    """The lines of one record."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="log-record-tree")
        self._glyphs = glyphs
        self._record: dict[str, Any] | None = None
        self._text = ""
        self._folded: set[Path] = set()
        self._lines: list[TreeLine] = []
        self._key: tuple[object, ...] = ()

    def show(self, record: dict[str, Any] | None, text: str) -> None:
        """Show another record; ``text`` where it is none."""
        self._record, self._text = record, text
        self._key = ()
        self.cursor = 0
        self.reload()
        self.action_move_to(0)

    @property
    def path(self) -> Path:
        """The path of the line under the cursor."""
        lines = self._laid()
        return lines[self.cursor].path if self.cursor < len(lines) else ()

    def fold(self, folded: bool | None) -> None:
        """Fold the line under the cursor, or its parent; None toggles it."""
        lines = self._laid()
        foldable = {line.path for line in lines if line.foldable}
        path = self.path
        while path and path not in foldable:
            path = path[:-1]
        if not path:
            return
        if folded is None:
            folded = path not in self._folded
        (self._folded.add if folded else self._folded.discard)(path)
        self._key = ()
        place = next((at for at, line in enumerate(self._laid()) if line.path == path), 0)
        self.reload()
        self.action_move_to(place)
        self.refresh()

    def _laid(self) -> list[TreeLine]:
        key = (self.line_width, frozenset(self._folded))
        if key != self._key and self.line_width:
            self._key = key
            if self._record is None:
                self._lines = text_lines(self._text, self.line_width)
            else:
                self._lines = tree_lines(self._record, self._folded, self.line_width, self._glyphs)
        return self._lines

    def line_count(self) -> int:
        return len(self._laid())

    def line_at(self, index: int, width: int) -> Line:
        lines = self._laid()
        return lines[index].line if index < len(lines) else ()

    def key_at(self, index: int) -> Hashable:
        line = self._laid()[index]
        return line.path, line.part

    def find(self, key: Hashable) -> int | None:
        lines = self._laid()
        exact = next((at for at, line in enumerate(lines) if (line.path, line.part) == key), None)
        if exact is not None or not isinstance(key, tuple):
            return exact
        return next((at for at, line in enumerate(lines) if line.path == key[0]), None)


class RecordScreen(ModalScreen[RunTarget | str | None]):
    """A record as a tree; n and p go to the next and the previous one.

    Returns the run to go to, words to add to the filter, or None.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("record")

    def __init__(self, line: bytes, whole: int, step: Step, glyphs: Glyphs) -> None:
        super().__init__()
        self._line, self._whole, self._step, self._glyphs = line, whole, step, glyphs
        self._record: dict[str, Any] | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet", id="log-record"):
            yield Static(id="log-record-title", classes="title -focused", markup=False)
            yield RecordTree(self._glyphs)
            yield StatusLine()

    def on_mount(self) -> None:
        """Focus the tree for arrow and page keys."""
        self.tree.focus()
        self.call_after_refresh(self._show)

    @property
    def tree(self) -> RecordTree:  # type: ignore[override]  # Textual's own is for debugging
        """The lines of the record."""
        return self.query_one(RecordTree)

    def _show(self) -> None:
        note = cut_note(self._line, self._whole)
        self._record = load(self._line) if not note else None
        self.query_one("#log-record-title", Static).update(f" {title_of(self._line)}", layout=False)
        self.tree.show(self._record, sanitize(self._line.decode("utf-8", "replace")) + note)
        self.refresh_bindings()

    def action_step(self, by: int) -> None:
        """Show the next or the previous one of the listed records."""
        if (found := self._step(by)) is not None:
            self._line, self._whole = found
            self._show()

    def action_fold(self, folded: bool | None) -> None:
        """Fold or unfold the line under the cursor."""
        self.tree.fold(folded)

    def action_top(self) -> None:
        """Go to the first line."""
        self.tree.action_move_to(0)

    async def action_copy(self) -> None:
        """Copy the whole record as text."""
        await self._copy(as_text(self._line, self._whole))

    async def action_copy_json(self) -> None:
        """Copy the whole record as JSON."""
        await self._copy(as_json(self._line, self._whole))

    async def action_copy_field(self) -> None:
        """Copy the value under the cursor."""
        await self._copy(as_text(self._line, self._whole) if self._record is None else text_of(self._value()))

    async def _copy(self, text: str) -> None:
        self.notify(await copy(self.app, text), markup=False)

    def _value(self) -> Any:
        try:
            return value_at(self._record, self.tree.path)
        except (LookupError, TypeError):
            return None

    def action_only(self) -> None:
        """Show only records with this value in this field."""
        if (words := self._words()) is not None:
            self.dismiss(words)
        else:
            self.notify("A filter can hold short values of fields only.", markup=False)

    def _words(self) -> str | None:
        value, path = self._value(), self.tree.path
        names = [step for step in path if isinstance(step, str)]
        if not names or isinstance(value, dict | list) or len(text := text_of(value)) > _FILTERABLE:
            return None
        if any(not name.replace("_", "").replace("-", "").replace(".", "").isalnum() for name in names):
            return None
        return f"{'.'.join(names)}={quoted(text)}" if "\n" not in text else None

    def action_run(self) -> None:
        """Go to the run of the record."""
        if run_id := run_of(self._record):
            self.dismiss(RunTarget(run_id))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable folding for a line that is no record, and the run for a record without one."""
        if action == "run":
            return bool(run_of(self._record))
        return self._record is not None or action not in ("fold", "copy_json", "copy_field", "only")


def run_of(record: dict[str, Any] | None) -> str:
    """Return the run of a record, empty when it has none."""
    found = (record or {}).get("run_id")
    return found if isinstance(found, str) else ""


def quoted(text: str) -> str:
    """Return a value in the syntax of the filter."""
    if text and text.isascii() and all(sign.isalnum() or sign in "._-/:" for sign in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
