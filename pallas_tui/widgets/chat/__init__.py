"""Conversations with agents."""

from .pane import ChatPane

__all__ = ["ChatPane"]
