"""What every call is doing, as it does it."""

from .pane import FeedPane

__all__ = ["FeedPane"]
