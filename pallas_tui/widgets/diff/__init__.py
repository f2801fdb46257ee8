"""What differs between two runs, on screen."""

from .diff_pane import DiffPane

__all__ = ["DiffPane"]
