"""The leak test of ``pallas check bearer``: canary tokens, the project's own servers, an echo behind each."""

from .check import check_bearer
from .verdict import Verdict

__all__ = ["Verdict", "check_bearer"]
