"""One picture as large as the screen allows: in true pixels where the terminal draws them."""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static

from pallas.model import Fault

from ...actions import bindings
from ...pictures.cells import Drawn, Unreadable, decode, draw
from ...pictures.images import SUFFIXES, ChatPicture, picture_facts, save_image, user_path
from ...pictures.pixels import Way, let_go, picture_widget, prepare, way
from ...text import UNICODE, Glyphs
from ..status_line import StatusLine

if TYPE_CHECKING:
    from PIL.Image import Image


class Canvas(Widget):
    """Lines of cells in the middle of the room there is."""

    def __init__(self) -> None:
        super().__init__(id="picture-canvas")
        self._drawn: Drawn | None = None

    def show(self, drawn: Drawn | None) -> None:
        """Draw this, or nothing."""
        self._drawn = drawn
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """A line, with empty ones around the picture."""
        style, (width, height) = self.rich_style, self.size
        if self._drawn is None:
            return Strip.blank(width, style)
        row = y - max(0, height - len(self._drawn.strips)) // 2
        if not 0 <= row < len(self._drawn.strips):
            return Strip.blank(width, style)
        left = max(0, width - self._drawn.columns) // 2
        strip = Strip.join([Strip.blank(left, style), self._drawn.strips[row]])
        return strip.crop(0, width).extend_cell_length(width, style)


class PictureScreen(ModalScreen[None]):
    """Shows one of the pictures of ``album``, goes from one to the other, and saves them."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = bindings("picture", "vim")

    def __init__(
        self, album: Callable[[], Sequence[ChatPicture]], index: int = 0, glyphs: Glyphs = UNICODE
    ) -> None:
        super().__init__()
        self._album, self._index, self._glyphs = album, index, glyphs
        self._canvas = Canvas()
        self._heading = Static(classes="title -focused", markup=False)
        self._status = Static(id="picture-status", markup=False)
        self._path = Input(id="picture-path", compact=True)
        self._path.display = self._status.display = False
        self._overwrite: Path | None = None
        self._pixels: Widget | None = None
        self.shown: Way | None = None
        """How the picture stands on the screen, None while it does not."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet", id="picture-sheet"):
            yield self._heading
            with Container(id="picture-room"):
                yield self._canvas
            yield self._status
            yield self._path
            yield StatusLine()

    def on_unmount(self) -> None:
        """Clear the picture: a terminal that draws pixels keeps them until then."""
        if self._pixels is not None:
            let_go(self._pixels)

    def on_resize(self) -> None:
        """Another size is another picture."""
        self.call_after_refresh(self._show)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a path is written it is about this picture."""
        return not self._path.display if action in ("go", "to") else True

    @property
    def picture(self) -> ChatPicture:
        """The one that is shown."""
        return self._album()[self._index]

    def action_go(self, by: int) -> None:
        """The next or the previous one, round and round."""
        self._index = (self._index + by) % len(self._album())
        self._show()

    def action_to(self, index: int) -> None:
        """The first or the last one."""
        self._index = index % len(self._album())
        self._show()

    def action_back(self) -> None:
        """Out of the line for the path, then out of the screen."""
        if self._path.display:
            self._path.display = False
            self._show_status("")
            self.set_focus(None)
        else:
            self.dismiss()

    @work(group="picture", exclusive=True, exit_on_error=False, description="draw a picture")
    async def _show(self) -> None:
        picture, album = self.picture, self._album()
        place = f"  {self._index + 1} of {len(album)}" if len(album) > 1 else ""
        self._heading.update(f" {picture_facts(picture, self._glyphs)}{place}")
        self._show_status("")
        room = self.query_one("#picture-room")
        await self._drop_pixels()
        columns, rows = room.size
        if not columns or not rows:
            return
        chosen: Way = "cells" if self.app.is_headless or self.app.is_web else way()
        try:
            if chosen != "cells":
                await self._show_pixels(picture, chosen, room)
            else:
                await self._show_cells(picture, columns, rows)
        except Unreadable as problem:
            self._canvas.show(None)
            self._show_status(f"{picture.name}: {problem}")
            chosen = "cells"
        self.shown = chosen

    async def _drop_pixels(self) -> None:
        old, self._pixels = self._pixels, None
        if old is not None:
            let_go(old)
            await old.remove()

    async def _show_cells(self, picture: ChatPicture, columns: int, rows: int) -> None:
        self._canvas.display = True
        ground = self._canvas.background_colors[1].rgb
        ascii_only = self._glyphs is not UNICODE
        drawn = await asyncio.to_thread(
            lambda: draw(picture.raw, columns, rows, ground, ascii_only=ascii_only)
        )
        self._canvas.show(drawn)
        if drawn.moving:
            self._show_status("This picture is animated; this is its first frame.")

    async def _show_pixels(self, picture: ChatPicture, chosen: Way, room: Widget) -> None:
        image, moving = await asyncio.to_thread(_decoded, picture, chosen)
        widget = picture_widget(image, chosen)
        widget.add_class("picture-pixels")
        self._canvas.display = False
        self._pixels = widget
        await room.mount(widget)
        if moving:
            self._show_status("This picture is animated; this is its first frame.")

    # Saving

    def action_save(self) -> None:
        """Ask where to."""
        picture = self.picture
        name = picture.path.name if picture.path else picture.name.replace(" ", "-").replace("/", "-")
        name = name if Path(name).suffix else f"{name}{SUFFIXES.get(picture.mime_type, '')}"
        self._path.value = str(Path.cwd() / name)
        self._path.display = True
        self._overwrite = None
        self._show_status("Save as: enter saves, escape leaves.")
        self.set_focus(self._path)

    @on(Input.Submitted, "#picture-path")
    async def _on_path(self, event: Input.Submitted) -> None:
        event.stop()
        if not event.value.strip():
            self.action_back()
            return
        path = user_path(event.value, Path.cwd())
        try:
            await asyncio.to_thread(save_image, self.picture, path, overwrite=path == self._overwrite)
        except FileExistsError:
            self._overwrite = path
            self._show_status(f"There is a file {path.name} already: enter again overwrites it.")
        except Fault as fault:
            self._show_status(fault.message)
        else:
            self.action_back()
            self.notify(f"Saved as {os.fspath(path)}", markup=False)

    def _show_status(self, text: str) -> None:
        self._status.update(text)
        self._status.display = bool(text)


def _decoded(picture: ChatPicture, chosen: Way) -> "tuple[Image, bool]":
    prepare(chosen)
    return decode(picture.raw, 1920, 1200)
