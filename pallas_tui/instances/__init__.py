"""Fleets that run elsewhere: registered by their registry's URL, attached, and asked how they are."""

from .book import Instances
from .model import Instance, Listed, Listing, Remote

__all__ = ["Instance", "Instances", "Listed", "Listing", "Remote"]
