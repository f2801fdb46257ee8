"""The durable threads of a fleet."""

from .threads_pane import ThreadsPane

__all__ = ["ThreadsPane"]
