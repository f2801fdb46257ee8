"""The images that will go with the next message."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import HorizontalScroll
from textual.message import Message
from textual.widgets import Static

from ...images import Attachment, size_text


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

    def __init__(self, attachment: Attachment) -> None:
        super().__init__(
            f"{attachment.name} {size_text(attachment.size)} ×", markup=False, classes="chat-chip"
        )
        self._attachment = attachment

    def action_remove_image(self) -> None:
        """Take the image away."""
        self.post_message(self.Removed(self._attachment))

    def on_click(self) -> None:
        """The whole chip is its cross."""
        self.action_remove_image()


class Chips(HorizontalScroll, can_focus=False):
    """A line of chips; not there while there are none."""

    def __init__(self) -> None:
        super().__init__(classes="chat-chips")
        self.display = False

    async def show(self, attachments: tuple[Attachment, ...], problem: str = "") -> None:
        """Draw these, with the reason why they cannot be sent, if there is one."""
        await self.remove_children()
        self.display = bool(attachments)
        if attachments:
            hint = problem or "backspace takes the last one away"
            note = Static(hint, markup=False, classes="chat-chips-note")
            note.set_class(bool(problem), "-problem")
            await self.mount(*(Chip(attachment) for attachment in attachments), note)
