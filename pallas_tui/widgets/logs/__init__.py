"""The log of the fleet."""

from .pane import LogsPane

__all__ = ["LogsPane"]
