"""The fleet at the edge of the eye: who is there, how they are, and why."""

from .agents_pane import AgentsPane

__all__ = ["AgentsPane"]
