"""The durable tasks of a fleet."""

from .tasks_pane import TasksPane

__all__ = ["TasksPane"]
