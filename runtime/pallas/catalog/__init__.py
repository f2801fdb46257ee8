"""Agents, LLMs, secrets and projects that are made over the API, beside those that files declare (SPEC 6)."""

from .catalog import Applied, Catalog
from .catalog_view import Live
from .desired_fleet import DesiredFleet

__all__ = ["Applied", "Catalog", "DesiredFleet", "Live"]
