"""What became of edits, and what is wrong with a running fleet; nothing of the screen in here."""

from .history import History
from .versions import Attempt, Versions

__all__ = ["Attempt", "History", "Versions"]
