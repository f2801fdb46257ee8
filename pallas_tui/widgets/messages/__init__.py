"""The messages between handlers, on screen."""

from .pane import MessagesPane

__all__ = ["MessagesPane"]
