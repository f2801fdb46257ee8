"""What handlers wait for, as a board; nothing of the screen in here."""

from .board import BoardTodo, TodoBoard

__all__ = ["BoardTodo", "TodoBoard"]
