"""Verdicts on saves: the line that tells of one, their list, and one run of one."""

from .verdicts_pane import VerdictsPane

__all__ = ["VerdictsPane"]
