"""The replicas of a fleet, on screen."""

from .replicas_pane import ReplicasPane

__all__ = ["ReplicasPane"]
