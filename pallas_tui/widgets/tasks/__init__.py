"""The durable tasks of a fleet."""

from .pane import TasksPane

__all__ = ["TasksPane"]
