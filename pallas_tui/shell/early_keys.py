"""Keys as they are meant, where a terminal tells them another way, or before anything can take them."""

from typing import Final
from unicodedata import category

from textual.events import Event, Key, Paste

MAX_EARLY: Final = 2_000
"""Keys that are held until there is a line of text for them."""
_TEXT: Final = frozenset(("enter", "backspace"))


def as_meant(event: Event) -> Event:
    """Return the event for a letter pressed with alt, which is no text, and for a joiner, which is.

    Most terminals send an escape and the letter for alt and a letter, and the letter stays with the event: a
    line of text would take it for one that was typed, before any action got the key. A joiner or another
    format character is not printable, so a line of text would leave it out; it is taken from a paste.
    """
    if isinstance(event, Key) and event.key.startswith("alt+"):
        event.character = None
    elif isinstance(event, Key) and event.character is not None and category(event.character) == "Cf":
        return Paste(event.character)
    return event


class EarlyKeys:
    """Keys typed before the panes exist: text for the line that gets the focus, never shortcuts."""

    def __init__(self) -> None:
        self._held: list[Key] | None = []

    def hold(self, event: Event) -> bool:
        """Whether the event is kept for later; keys that are no text never are."""
        if self._held is None or not isinstance(event, Key) or event.is_forwarded:
            return False
        if not (event.is_printable or event.key in _TEXT):
            return False
        if len(self._held) < MAX_EARLY:
            self._held.append(event)
        return True

    def release(self) -> list[Key]:
        """Everything that was kept, in order; from now on nothing is."""
        held, self._held = self._held or [], None
        return held
