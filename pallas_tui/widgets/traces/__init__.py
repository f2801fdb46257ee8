"""The traces pane: what credential went with each hop."""

from .pane import TracesPane

__all__ = ["TracesPane"]
