"""What handlers wait for, as a board; nothing of the screen in here."""

from .board import Todo, TodoBoard

__all__ = ["Todo", "TodoBoard"]
