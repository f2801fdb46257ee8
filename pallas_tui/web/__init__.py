"""`pallas dev --web`: the workbench in a browser."""

from .command import main

__all__ = ["main"]
