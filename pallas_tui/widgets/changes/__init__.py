"""The last versions of agents, and the changes of each."""

from .changes_pane import ChangesPane

__all__ = ["ChangesPane"]
