"""The last versions of agents, and what is different in each."""

from .changes_pane import ChangesPane

__all__ = ["ChangesPane"]
