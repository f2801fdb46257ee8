"""The traces pane: what credential went with each hop."""

from .traces_pane import TracesPane

__all__ = ["TracesPane"]
