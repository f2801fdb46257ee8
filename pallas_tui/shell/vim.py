"""The keys of vi for moving, wherever something can be moved in; a set that can be turned off."""

from typing import Final

from textual.binding import Binding

KEYS: Final = {
    "j": ("down", "Down"),
    "k": ("up", "Up"),
    "g": ("home", "First"),
    "G": ("end", "Last"),
    "ctrl+d": ("pagedown", "Page down"),
    "ctrl+u": ("pageup", "Page up"),
}
"""What each stands for: the key that moves there, and its name."""


def vim_bindings() -> list[Binding]:
    """The bindings of the set, for the application and for each modal screen.

    They come last: a pane that has one of the keys for something of its own keeps it, and in a line of text
    a letter is a letter.
    """
    return [
        Binding(key, f"app.vim('{stands_for}')", words, show=False, id=f"vim.{stands_for}")
        for key, (stands_for, words) in KEYS.items()
    ]
