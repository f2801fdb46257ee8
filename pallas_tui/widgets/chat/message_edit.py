"""Editing of a sent message: it returns to the prompt, and the draft waits."""

from ...chat.conversation import ChatEntry
from ...chat.message_queue import MessageQueue
from ...text import clock
from .picture_tray import Tray
from .prompt_area import PromptArea


class MessageEdit:
    """The message that is edited in ``prompt``, and the draft to restore afterwards."""

    def __init__(self, prompt: PromptArea, tray: Tray, queue: MessageQueue) -> None:
        self._prompt, self._tray, self._queue = prompt, tray, queue
        self._draft = ""
        self.entry: ChatEntry | None = None

    def begin(self, entry: ChatEntry) -> None:
        """Put the message into the prompt, with those of its pictures that are kept."""
        if self.entry is None:
            self._draft = self._prompt.text
        self.entry = entry
        self._write(entry.text)
        self._tray.put(tuple(one for one in entry.attachments if one.data))

    def leave(self) -> bool:
        """Leave the message unchanged; return False when none is being edited."""
        if self.entry is None:
            return False
        self._tray.empty()
        self._write(self._draft)
        self._draft = ""
        self.take()
        return True

    def replace(self, text: str) -> None:
        """Change the queued message to ``text`` and the attached pictures, and end the edit."""
        if (entry := self.take()) is not None:
            entry.text, entry.attachments = text, self._tray.empty()

    def take(self) -> ChatEntry | None:
        """Return the edited message, if any, and end the edit: it is sent now."""
        entry, draft, self.entry, self._draft = self.entry, self._draft, None, ""
        if draft:  # after the prompt was cleared
            self._prompt.call_next(self._write, draft)
        return entry

    def hint(self, dot: str) -> str:
        """Return a hint about the edit, in a line; empty when no message is being edited."""
        if self.entry is None:
            return ""
        if self.is_queued:
            return f"changing a queued message {dot} enter queues it again, escape leaves it"
        return (
            f"changing the message of {clock(self.entry.at)[:5]} {dot} enter sends it again, escape leaves it"
        )

    @property
    def is_queued(self) -> bool:
        """Whether the message was not sent yet."""
        return self.entry in self._queue.messages

    def _write(self, text: str) -> None:
        self._prompt.load_text(text)
        self._prompt.move_cursor(self._prompt.document.end)
