"""What became of edits, and what is wrong with a running fleet; nothing of the screen in here."""

from .agent_versions import Attempt, Versions
from .reload_history import History

__all__ = ["Attempt", "History", "Versions"]
