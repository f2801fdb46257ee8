"""The messages between handlers, on screen."""

from .messages_pane import MessagesPane

__all__ = ["MessagesPane"]
