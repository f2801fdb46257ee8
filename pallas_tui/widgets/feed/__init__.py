"""What every call is doing, as it does it."""

from .feed_pane import FeedPane

__all__ = ["FeedPane"]
