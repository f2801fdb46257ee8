"""The durable threads of a fleet."""

from .pane import ThreadsPane

__all__ = ["ThreadsPane"]
