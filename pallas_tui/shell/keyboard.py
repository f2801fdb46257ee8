"""Keys as they are meant, where a terminal tells them another way."""

from textual.events import Event, Key


def as_meant(event: Event) -> None:
    """A letter pressed with alt is no text.

    Most terminals send an escape and the letter for it, and the letter stays with the event: a line of text
    would take it for one that was typed, before any action got the key.
    """
    if isinstance(event, Key) and event.key.startswith("alt+"):
        event.character = None
