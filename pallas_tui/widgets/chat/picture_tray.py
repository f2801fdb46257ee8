"""The images of the next message, and the ways to attach them."""

import asyncio
from pathlib import Path
from typing import ClassVar, Final, Protocol

from rich.segment import Segment
from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import HorizontalScroll, Vertical
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from pallas.model import Fault
from pallas.safe_text import one_line

from ...actions import bindings
from ...pictures.cells import Unreadable, draw, fit
from ...pictures.images import ChatPicture, image_of, read_image, size_text, user_path
from ...pictures.paste import Pasted, paste
from ...text import UNICODE, Glyphs, width_of
from ...text import fit as fit_text
from ..removal import remove
from .prompt_area import PathLine

READ_TIMEOUT: Final = 10.0
"""Seconds that reading an image may take; a network disk may never answer."""
TALL: Final = 30
"""Rows of a terminal from which on an image is shown as a picture here."""
_COLUMNS, _ROWS = 12, 4


class Writable(Protocol):
    """The target of pasted text."""

    def insert(self, text: str) -> object:
        """Insert text at the cursor."""
        ...


class Chip(Widget, can_focus=True):
    """One image: its picture where there is room, its name, its size, and a cross that removes it."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("tray")

    class Removed(Message):
        """The image should not be sent."""

        def __init__(self, attachment: ChatPicture) -> None:
            super().__init__()
            self.attachment = attachment

    def __init__(self, attachment: ChatPicture, glyphs: Glyphs, *, tall: bool = False) -> None:
        super().__init__(classes="chat-chip")
        cross = "×" if glyphs is UNICODE else "x"
        self._attachment, self._glyphs = attachment, glyphs
        self._text = f"{attachment.name} {size_text(attachment.size)} {cross}"
        self._strips: tuple[Strip, ...] = ()
        self._columns, self._rows = (
            fit(attachment.pixels, _COLUMNS, _ROWS) if tall and all(attachment.pixels) else (0, 0)
        )
        self.styles.height = max(1, self._rows)
        self.styles.width = width_of(((self._text, ""),)) + 2 + (self._columns + 1 if self._rows else 0)

    def on_mount(self) -> None:
        """Draw the picture in the background."""
        if self._rows:
            self.run_worker(self._draw(), group="picture", exit_on_error=False, description="draw a chip")

    async def _draw(self) -> None:
        ground, picture = self.background_colors[1].rgb, self._attachment
        ascii_only = self._glyphs is not UNICODE
        try:
            drawn = await asyncio.to_thread(
                lambda: draw(picture.raw, self._columns, self._rows, ground, ascii_only=ascii_only)
            )
        except Unreadable:  # the message reports that later
            return
        self._strips = drawn.strips
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Render the picture on the left, the words on the right of its first line."""
        style, width = self.rich_style, self.size.width
        parts = []
        if self._rows:
            picture = self._strips[y] if y < len(self._strips) else Strip.blank(0)
            parts = [picture.extend_cell_length(self._columns, style), Strip.blank(1, style)]
        room = width - sum(part.cell_length for part in parts)
        parts.append(
            Strip([Segment(fit_text(self._text if y == 0 else "", room, self._glyphs), style)], room)
        )
        return Strip.join(parts)

    def action_remove_image(self) -> None:
        """Remove the image."""
        self.post_message(self.Removed(self._attachment))

    def action_open(self) -> None:
        """Show the image in full."""
        from ..dialogs.picture_dialog import PictureScreen

        self.app.push_screen(PictureScreen(lambda: (self._attachment,), 0, self._glyphs))

    def on_click(self, event: events.Click) -> None:
        """Remove the image on a click on its words; show it on a click on the picture."""
        if event.x < self._columns:
            self.action_open()
        else:
            self.action_remove_image()


class Tray(Vertical):
    """The attached images as chips, and the reason why they cannot be sent if there is one.

    Hidden while there are none and no path is asked for.
    """

    class TrayLeft(Message):
        """The focus should return to the prompt."""

    def __init__(self, glyphs: Glyphs, base: Path) -> None:
        super().__init__(classes="chat-tray")
        self.attachments: tuple[ChatPicture, ...] = ()
        self.problem = ""
        self._glyphs = glyphs
        self._base = base
        self._folder = base
        self._chips = HorizontalScroll(classes="chat-chips", can_focus=False)
        self._path = PathLine(base)
        self._taking = asyncio.Lock()

    def compose(self) -> ComposeResult:
        yield self._chips
        yield self._path

    def on_mount(self) -> None:
        """Hide the tray."""
        self._chips.display = False

    def open(self) -> None:
        """Ask for the path of an image."""
        self._path.open()

    def pick(self) -> None:
        """Choose images among the files."""
        from ..dialogs.file_dialog import FilesScreen

        def chosen(paths: tuple[Path, ...] | None) -> None:
            if paths:
                self._folder = paths[0].parent
                self._take_all(paths)
            self.post_message(self.TrayLeft())

        self.app.push_screen(FilesScreen(self._folder, self._glyphs), chosen)

    @work(group="paste", exclusive=True, exit_on_error=False, description="read the clipboard")
    async def paste(self, prompt: Writable) -> None:
        """Attach the image on the clipboard, or insert its text into ``prompt``; say if there is neither."""
        pasted = Pasted(problem="The clipboard of a browser is pasted with its own key.")
        if not self.app.is_web:
            pasted = await paste()
        if pasted.picture:
            await self.take(pasted.picture)
        elif pasted.files:
            self._take_all(pasted.files)
        elif text := pasted.text or self.app.clipboard:
            prompt.insert(text)
        else:
            self.app.notify(pasted.problem, severity="warning", markup=False)

    @work(group="take", exit_on_error=False, description="read the chosen images")
    async def _take_all(self, paths: tuple[Path, ...]) -> None:
        for path in paths:
            if not await self.take(path):
                break

    def tell(self, problem: str) -> None:
        """Show why the images cannot be sent; empty when they can."""
        if problem != self.problem:
            self.problem = problem
            self._show()

    def empty(self) -> tuple[ChatPicture, ...]:
        """Return the images, which are sent now, and remove them."""
        attachments, self.attachments = self.attachments, ()
        self._show()
        return attachments

    def put(self, attachments: tuple[ChatPicture, ...]) -> None:
        """Show these images and no others."""
        self.attachments = attachments
        self._show()

    def drop_last(self) -> None:
        """Remove the last image."""
        if self.attachments:
            self._drop(self.attachments[-1])

    async def take(self, image: Path | bytes) -> bool:
        """Attach the image at a path, or its bytes; return False, and say why, when that is not possible."""
        async with self._taking:  # two at once would not know of each other's size
            size, count = sum(one.size for one in self.attachments), len(self.attachments)
            try:
                async with asyncio.timeout(READ_TIMEOUT):
                    if isinstance(image, Path):
                        taken = await asyncio.to_thread(read_image, image, size, count)
                    else:
                        name = f"pasted image {count + 1}"
                        taken = await asyncio.to_thread(image_of, image, name, size, count)
            except Fault as fault:
                self.app.notify(fault.message, severity="error", markup=False)
                return False
            except TimeoutError:
                problem = f"{one_line(str(image), 120)} could not be read within {READ_TIMEOUT:g} s"
                self.app.notify(problem, severity="error", markup=False)
                return False
            self.attachments = (*self.attachments, taken)
        self._show()
        return True

    def _drop(self, attachment: ChatPicture) -> None:
        self.attachments = tuple(one for one in self.attachments if one is not attachment)
        self._show()
        self.post_message(self.TrayLeft())

    def _show(self) -> None:
        self.run_worker(self._draw(), group="chips", exclusive=True, description="draw the chips")

    async def _draw(self) -> None:
        await remove(self._chips.children)
        self._chips.display = bool(self.attachments)
        if self.attachments:
            hint = self.problem or "backspace removes the last one"
            note = Static(hint, markup=False, classes="chat-chips-note")
            note.set_class(bool(self.problem), "-problem")
            tall = self.app.size.height >= TALL
            await self._chips.mount(*(Chip(one, self._glyphs, tall=tall) for one in self.attachments), note)

    @on(PathLine.PathGiven)
    async def _on_path(self, event: PathLine.PathGiven) -> None:
        event.stop()
        if await self.take(user_path(event.text, self._base)):
            self._path.action_close()

    @on(PathLine.Closed)
    def _on_path_closed(self, event: PathLine.Closed) -> None:
        event.stop()
        self.post_message(self.TrayLeft())

    @on(Chip.Removed)
    def _on_removed(self, event: Chip.Removed) -> None:
        event.stop()
        self._drop(event.attachment)
