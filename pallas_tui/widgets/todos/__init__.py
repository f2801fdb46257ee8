"""The board of todos, on screen."""

from .pane import TodosPane

__all__ = ["TodosPane"]
