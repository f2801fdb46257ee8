"""The board of todos, on screen."""

from .todos_pane import TodosPane

__all__ = ["TodosPane"]
