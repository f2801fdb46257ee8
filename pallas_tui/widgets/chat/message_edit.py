"""Changing a message that was sent: it comes back into the prompt, and what was written there waits."""

from ...chat.conversation import ChatEntry
from ...text import clock
from .picture_tray import Tray
from .prompt_area import PromptArea


class MessageEdit:
    """The message that is changed in ``prompt``, and the draft that comes back when that is left."""

    def __init__(self, prompt: PromptArea, tray: Tray) -> None:
        self._prompt, self._tray = prompt, tray
        self._draft = ""
        self.entry: ChatEntry | None = None

    def begin(self, entry: ChatEntry) -> None:
        """Put the message into the prompt, with its pictures as far as they are kept."""
        if self.entry is None:
            self._draft = self._prompt.text
        self.entry = entry
        self._write(entry.text)
        self._tray.put(tuple(one for one in entry.attachments if one.data))

    def leave(self) -> bool:
        """Leave the message as it is; False when none is being changed."""
        if self.entry is None:
            return False
        self._tray.empty()
        draft = self._draft
        self.take()
        self._write(draft)
        return True

    def take(self) -> ChatEntry | None:
        """The message that is changed, if any: the change is sent now."""
        entry, self.entry, self._draft = self.entry, None, ""
        return entry

    def hint(self, dot: str) -> str:
        """What is going on, in a line; empty when no message is being changed."""
        if self.entry is None:
            return ""
        return (
            f"changing the message of {clock(self.entry.at)[:5]} {dot} enter sends it again, escape leaves it"
        )

    def _write(self, text: str) -> None:
        self._prompt.load_text(text)
        self._prompt.move_cursor(self._prompt.document.end)
