"""`pallas dev --web`: the workbench in a browser."""

from .web_command import main

__all__ = ["main"]
