"""A form for a tool's arguments, on screen."""

from .tool_pane import ToolPane

__all__ = ["ToolPane"]
