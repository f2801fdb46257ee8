"""Messages that were written before the agent could take them."""

from typing import Final

from pallas.model import Fault, FaultType

from ..pictures.images import MAX_PICTURE_BYTES, ChatPicture
from .chat_entry import ChatEntry

MAX_QUEUED: Final = 20


class MessageQueue:
    """At most 20 messages of a conversation, sent one by one: each after the answer to the one before.

    ``held`` is set when a run failed or was cancelled: nothing is sent then before the user sends again.
    """

    def __init__(self) -> None:
        self.messages: list[ChatEntry] = []
        self.held = False

    def add(self, text: str, attachments: tuple[ChatPicture, ...], at: float) -> None:
        """Append a message. Raises Fault (CONFIG) when there is no room for it."""
        if len(self.messages) >= MAX_QUEUED:
            problem = f"{MAX_QUEUED} messages are queued, and no more fit: wait, or remove one (up, x)."
            raise Fault(FaultType.CONFIG, problem)
        pictures = [*attachments, *(one for each in self.messages for one in each.attachments)]
        if sum(one.size for one in pictures) > MAX_PICTURE_BYTES:
            raise Fault(FaultType.CONFIG, "The queued messages have too many pictures: wait, or remove one.")
        self.messages.append(ChatEntry("user", text, at, attachments=attachments))

    def hold(self) -> None:
        """Send nothing before the user sends again."""
        self.held = bool(self.messages)

    def clear(self) -> None:
        """Remove all messages."""
        self.messages, self.held = [], False
