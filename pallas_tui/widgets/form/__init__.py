"""A form for a tool's arguments, on screen."""

from .pane import ToolPane

__all__ = ["ToolPane"]
