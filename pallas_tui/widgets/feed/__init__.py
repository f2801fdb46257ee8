"""The live calls of all agents."""

from .feed_pane import FeedPane

__all__ = ["FeedPane"]
