"""Fleets elsewhere and their agents."""

from .pane import InstancesPane

__all__ = ["InstancesPane"]
