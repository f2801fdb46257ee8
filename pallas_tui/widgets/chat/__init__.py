"""Conversations with agents."""

from .chat_pane import ChatPane

__all__ = ["ChatPane"]
