"""Fleets elsewhere and their agents."""

from .instances_pane import InstancesPane

__all__ = ["InstancesPane"]
