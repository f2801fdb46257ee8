"""Typed handlers: messages a second through the pump, beside another pump of its kind; frames; whole runs."""

from .measure import measure

__all__ = ["measure"]
