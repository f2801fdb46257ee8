"""Outcomes of edits and problems of a running fleet, without the screen."""

from .agent_versions import Attempt, Versions
from .reload_history import History

__all__ = ["Attempt", "History", "Versions"]
