"""Small pictures of a message, in half cells: true pixels would cover text that scrolls over them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import ItemGrid
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from ...actions import bindings
from ...pictures.cells import Unreadable, draw, fit
from ...pictures.images import ChatPicture, picture_facts
from ...text import UNICODE, Glyphs
from ...text import fit as fit_text
from ..setting_watch import follow, unfollow

Album = Callable[[], Sequence[ChatPicture]]
"""Returns the pictures as they are now: their data may have been dropped."""

ROWS: Final = 12
"""Rows of a picture in the transcript at most, with its caption."""
COLUMNS: Final = 36
_SMALL_ROWS: Final = 7
_SMALL_COLUMNS: Final = 24
_FIRST: Final = " (first frame)"


class Thumbnail(Widget, can_focus=True):
    """One picture with its caption, or why it cannot be shown. Its height is known before it is decoded."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("pictures")

    def __init__(self, album: Album, index: int, columns: int, rows: int, glyphs: Glyphs = UNICODE) -> None:
        """``rows`` counts the caption."""
        super().__init__(classes="picture")
        self._album, self._index, self._glyphs = album, index, glyphs
        picture = album()[index]
        self._caption = picture_facts(picture, glyphs)
        self._room = (columns, rows - 1)
        self._strips: tuple[Strip, ...] = ()
        self.problem = "" if picture.mime_type else "this is not a picture"
        seen = picture.mime_type and picture.data and all(picture.pixels)
        self._full = fit(picture.pixels, *self._room)[1] if seen else 0
        self._wanted = True
        if not seen and not self.problem:
            self.problem = "no longer kept" if not picture.data else "broken: it cannot be decoded"

    @property
    def _high(self) -> int:
        """Return the rows of the picture itself: 0 where it cannot be shown, or pictures are turned off."""
        return self._full if self._wanted else 0

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Return the columns it was given, as far as there is room; all of them for text alone."""
        return min(self._room[0], container.width) if self._high else container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the height of the picture and its caption."""
        return self._high + 1

    def on_mount(self) -> None:
        """Show as much as the settings say."""
        follow(self, "thumbnails", True, self._want)

    def on_unmount(self) -> None:
        """Let go of the message and its picture."""
        unfollow(self)

    def _want(self, wanted: bool) -> None:
        self._wanted = wanted
        self.refresh(layout=True)
        if self._high and not self._strips:  # it is decoded in the background
            self.run_worker(self._draw(), group="picture", exit_on_error=False, description="draw a picture")

    async def _draw(self) -> None:
        picture = self._album()[self._index]
        ground = self.background_colors[1]
        try:
            drawn = await asyncio.to_thread(
                lambda: draw(picture.raw, *self._room, ground.rgb, ascii_only=self._glyphs is not UNICODE)
            )
        except Unreadable as problem:
            self.problem = str(problem)
        else:
            self._strips = drawn.strips[: self._full]
            if drawn.moving and not self._caption.endswith(_FIRST):
                self._caption += _FIRST
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Render a line of the picture, and the caption last."""
        style, width = self.rich_style, self.size.width
        if y < self._high:
            strip = self._strips[y] if y < len(self._strips) else Strip.blank(0)
            return strip.crop(0, width).extend_cell_length(width, style)
        text = f"{self._caption}: {self.problem}" if self.problem else self._caption
        return Strip([Segment(fit_text(text, width, self._glyphs), style)], width)

    def action_open(self) -> None:
        """Show the picture in full."""
        from ..dialogs.picture_dialog import PictureScreen

        self.app.push_screen(PictureScreen(self._album, self._index, self._glyphs))

    def on_click(self, event: events.Click) -> None:
        """Show the picture in full, as enter does."""
        event.stop()
        self.action_open()


class Thumbnails(ItemGrid):
    """All pictures of a message: one at its size, several side by side as far as there is room."""

    def __init__(self, album: Album, glyphs: Glyphs = UNICODE) -> None:
        several = len(album()) > 1
        self._columns, self._rows = (_SMALL_COLUMNS, _SMALL_ROWS) if several else (COLUMNS, ROWS)
        super().__init__(classes="pictures", min_column_width=self._columns, stretch_height=False)
        self._album, self._glyphs = album, glyphs

    def compose(self) -> ComposeResult:
        for index in range(len(self._album())):
            yield Thumbnail(self._album, index, self._columns, self._rows, self._glyphs)
