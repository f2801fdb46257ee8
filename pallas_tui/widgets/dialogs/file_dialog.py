"""Choosing images among the files, without a mouse."""

import asyncio
from collections.abc import Hashable
from pathlib import Path
from time import localtime, strftime
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from pallas.safe_text import one_line

from ...actions import bindings
from ...pictures.folder import FolderListing, Item, list_folder
from ...pictures.images import size_text
from ...text import UNICODE, Glyphs, Line, count, fit, right
from ..filter_line import FilterLine
from ..line_view import LineView
from ..row_list import RowList
from ..status_line import StatusLine
from ..tones import DIM

TIMEOUT = 5.0
"""Seconds until a folder is said not to answer; one on a network may never do."""
_SIZE, _WHEN = 8, 13


class FileList(RowList[Item]):
    """The entries of one folder, those that are marked in front of the others' eyes."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(glyphs, id="file-list", hint="Reading…")
        self.marked: tuple[Path, ...] = ()

    def row_key(self, row: Item) -> Hashable:
        return row.path

    def empty_lines(self, width: int) -> list[Line]:
        return [((f" {self.hint}", DIM),)]

    def line_at(self, index: int, width: int) -> Line:
        item = self.rows[index]
        mark = self._glyphs.ok if item.path in self.marked else " "
        name = f"{item.shown}/" if item.is_folder else item.shown
        wide = width >= 50
        tail = item.problem or ("" if item.is_folder else right(size_text(item.size), _SIZE))
        if wide and not item.problem and item.changed:
            tail = f"{tail}  {right(strftime('%d %b %y', localtime(item.changed)), _WHEN - 2)}"
        room = max(8, width - len(tail) - 4)
        style = "bold" if item.is_folder else DIM if item.problem else ""
        return (
            (f" {mark} ", "$text-accent"),
            (fit(name, room, self._glyphs), style),
            (f" {tail}", "$text-warning" if item.problem else DIM),
        )


class FilesScreen(ModalScreen[tuple[Path, ...]]):
    """Ends with the chosen files, none when it was left. Starts in ``folder``."""

    AUTO_FOCUS = "FileList"
    BINDINGS: ClassVar[list[BindingType]] = bindings("files", "vim")

    def __init__(self, folder: Path, glyphs: Glyphs = UNICODE) -> None:
        super().__init__()
        self._folder, self._glyphs = folder, glyphs
        self._listing = FolderListing(folder, ())
        self._hidden = self._every = False
        self._list = FileList(glyphs)
        self._where = Static(classes="title -focused", markup=False)
        self._status = Static(id="files-status", markup=False)
        self._status.display = False
        self._filter = FilterLine("a part of the name", id="files-filter")

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet", id="files-sheet"):
            yield self._where
            yield self._list
            yield self._status
            yield self._filter
            yield StatusLine()

    def on_mount(self) -> None:
        """Read the first folder."""
        self._read(self._folder)

    @work(group="folder", exclusive=True, exit_on_error=False, description="read a folder")
    async def _read(self, folder: Path, came_from: Path | None = None) -> None:
        self._list.hint = "Reading…"
        reading = asyncio.ensure_future(
            asyncio.to_thread(list_folder, folder, hidden=self._hidden, every=self._every)
        )
        try:
            if not (await asyncio.wait({reading}, timeout=TIMEOUT))[0]:
                self._show_status(f"{one_line(str(folder), 120)} did not answer within {TIMEOUT:g} s")
            listing = await reading  # a late answer is shown, unless another folder was asked for
        finally:
            reading.cancel()
        if listing.problem and not listing.items and folder != self._folder:
            self._show_status(listing.problem)  # stay where it was good
            return
        if listing.folder != self._listing.folder:
            self._filter.clear_filter()
            self._list.action_move_to(0)
        self._folder, self._listing = listing.folder, listing
        self._show_status(listing.problem)
        self._show()
        if came_from is not None and (index := self._list.find(came_from)) is not None:
            self._list.action_move_to(index)

    def _show(self) -> None:
        words = self._filter.words
        items = tuple(
            item for item in self._listing.items if all(word in item.shown.lower() for word in words)
        )
        what = "files" if self._every else "images and folders"
        self._list.hint = f"No {what} here{' with that in the name' if words else ''}. " + (
            "escape shows all" if words else "a shows all files" if not self._every else "left goes up"
        )
        self._list.show_rows(items)
        marked = len(self._list.marked)
        tail = f"  {count(marked, 'marked', 'marked')}" if marked else ""
        # Of a long path the end tells where one is.
        room = max(10, self._where.size.width - cell_len(tail) - 2)
        path = one_line(str(self._folder), 4_000)
        if cell_len(path) > room:
            path = self._glyphs.ellipsis + set_cell_size(path[::-1], room - 1).rstrip()[::-1]
        self._where.update(f" {path}{tail}")

    def on_resize(self) -> None:
        """More or less of the path."""
        self.call_after_refresh(self._show)

    def _show_status(self, text: str) -> None:
        self._status.update(text)
        self._status.display = bool(text)

    def action_enter(self) -> None:
        """Open a folder, or end with the marked files, else with the file under the cursor."""
        item = self._list.selected
        if item is not None and item.problem:
            self._show_status(f"{item.shown}: {item.problem}")
        elif item is not None and item.is_folder:
            self._read(item.path)
        elif self._list.marked:
            self.dismiss(self._list.marked)
        elif item is not None:
            self.dismiss((item.path,))

    def action_mark(self) -> None:
        """Mark the file or take that back, and go on."""
        item = self._list.selected
        if item is None or item.is_folder or item.problem:
            return
        marked = self._list.marked
        self._list.marked = (
            tuple(path for path in marked if path != item.path)
            if item.path in marked
            else (*marked, item.path)
        )
        self._show()
        self._list.action_move(1)

    def action_up(self) -> None:
        """To the folder above, with the cursor on the one that was left."""
        if self._folder.parent != self._folder:
            self._read(self._folder.parent, self._folder)

    def action_home(self) -> None:
        """To the home folder."""
        self._read(Path("~").expanduser())

    def action_hidden(self) -> None:
        """Show hidden files, or not."""
        self._hidden = not self._hidden
        self._read(self._folder)

    def action_every(self) -> None:
        """All files, or images only."""
        self._every = not self._every
        self._read(self._folder)

    def action_filter(self) -> None:
        """Filter the names."""
        self._filter.open()

    def action_back(self) -> None:
        """The filter first, then the marks, then the screen."""
        if self._filter.words:
            self._filter.clear_filter()
            self._show()
        elif self._list.marked:
            self._list.marked = ()
            self._show()
        else:
            self.dismiss(())

    @on(FilterLine.Filtered)
    def _on_filtered(self, event: FilterLine.Filtered) -> None:
        event.stop()
        self._list.action_move_to(0)
        self._show()

    @on(FilterLine.FilterLeft)
    def _on_left(self, event: FilterLine.FilterLeft) -> None:
        event.stop()
        self.set_focus(self._list)

    @on(LineView.LineChosen)
    def _on_chosen(self, event: LineView.LineChosen) -> None:
        event.stop()
        self.action_enter()
