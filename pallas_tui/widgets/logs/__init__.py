"""The log of the fleet."""

from .logs_pane import LogsPane

__all__ = ["LogsPane"]
