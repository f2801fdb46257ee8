"""The last versions of agents, and what is different in each."""

from .pane import ChangesPane

__all__ = ["ChangesPane"]
