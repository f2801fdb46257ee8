"""The images that will go with the next message, and the line to attach one by its path."""

import asyncio
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import HorizontalScroll, Vertical
from textual.message import Message
from textual.widgets import Static

from pallas.model import Fault

from ...images import Attachment, read_image, size_text, user_path
from ...text import UNICODE, Glyphs
from .prompt import PathLine


class Chip(Static, can_focus=True):
    """One image: its name, its size, and a cross that takes it away."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("delete,backspace,x", "remove_image", "Take the image away"),
    ]

    class Removed(Message):
        """The image is not to be sent."""

        def __init__(self, attachment: Attachment) -> None:
            super().__init__()
            self.attachment = attachment

    def __init__(self, attachment: Attachment, glyphs: Glyphs) -> None:
        cross = "×" if glyphs is UNICODE else "x"
        super().__init__(
            f"{attachment.name} {size_text(attachment.size)} {cross}", markup=False, classes="chat-chip"
        )
        self._attachment = attachment

    def action_remove_image(self) -> None:
        """Take the image away."""
        self.post_message(self.Removed(self._attachment))

    def on_click(self) -> None:
        """The whole chip is its cross."""
        self.action_remove_image()


class Tray(Vertical):
    """The attached images as chips, with the reason why they cannot be sent if there is one.

    It takes no room while there are none and no path is asked for.
    """

    class Left(Message):
        """The focus should go back to the prompt."""

    def __init__(self, glyphs: Glyphs, base: Path) -> None:
        super().__init__(classes="chat-tray")
        self.attachments: tuple[Attachment, ...] = ()
        self.problem = ""
        self._glyphs = glyphs
        self._base = base
        self._chips = HorizontalScroll(classes="chat-chips", can_focus=False)
        self._path = PathLine(base)

    def compose(self) -> ComposeResult:
        yield self._chips
        yield self._path

    def on_mount(self) -> None:
        """Nothing is attached yet."""
        self._chips.display = False

    def open(self) -> None:
        """Ask for the path of an image."""
        self._path.open()

    def tell(self, problem: str) -> None:
        """Why the images could not be sent as things are; empty when they can."""
        if problem != self.problem:
            self.problem = problem
            self._show()

    def empty(self) -> tuple[Attachment, ...]:
        """The images, which are sent now: they are gone from here."""
        attachments, self.attachments = self.attachments, ()
        self._show()
        return attachments

    def drop_last(self) -> None:
        """Take the last image away."""
        if self.attachments:
            self._drop(self.attachments[-1])

    async def take(self, path: Path) -> bool:
        """Attach the image at ``path``; when that cannot be it says why, and returns False."""
        size = sum(one.size for one in self.attachments)
        try:
            image = await asyncio.to_thread(read_image, path, size, len(self.attachments))
        except Fault as fault:
            self.app.notify(fault.message, severity="error", markup=False)
            return False
        self.attachments = (*self.attachments, image)
        self._show()
        return True

    def _drop(self, attachment: Attachment) -> None:
        self.attachments = tuple(one for one in self.attachments if one is not attachment)
        self._show()
        self.post_message(self.Left())

    def _show(self) -> None:
        self.run_worker(self._draw(), group="chips", exclusive=True, description="draw the chips")

    async def _draw(self) -> None:
        await self._chips.remove_children()
        self._chips.display = bool(self.attachments)
        if self.attachments:
            hint = self.problem or "backspace takes the last one away"
            note = Static(hint, markup=False, classes="chat-chips-note")
            note.set_class(bool(self.problem), "-problem")
            await self._chips.mount(*(Chip(one, self._glyphs) for one in self.attachments), note)

    @on(PathLine.Given)
    async def _on_path(self, event: PathLine.Given) -> None:
        event.stop()
        if await self.take(user_path(event.text, self._base)):
            self._path.action_close()

    @on(PathLine.Closed)
    def _on_path_closed(self, event: PathLine.Closed) -> None:
        event.stop()
        self.post_message(self.Left())

    @on(Chip.Removed)
    def _on_removed(self, event: Chip.Removed) -> None:
        event.stop()
        self._drop(event.attachment)
