"""Agents, LLMs, secrets and projects that are made over the API, beside those that files declare (SPEC 6)."""

from .catalog import Applied, Catalog
from .view import Live
from .wanted import Wanted

__all__ = ["Applied", "Catalog", "Live", "Wanted"]
