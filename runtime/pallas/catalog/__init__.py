"""The catalog: agents, LLMs, secrets and projects that are created over the API, next to those that files
declare.

``catalog`` creates, changes, deletes and applies them; ``catalog_view`` shows rows as resources. ``specs``
and ``spec_fields`` are the pydantic models of what an author writes, ``spec_rows`` converts between specs and
rows, ``write_checks`` checks a write. ``desired_fleet`` derives the agents that the fleet must have.
``secret_vault`` and ``secret_seal`` hold the values of secrets, ``secret_references`` puts them into texts.
``provider_probe`` asks a provider whether it accepts a key.
"""

from .catalog import Applied, Catalog
from .catalog_view import Live
from .desired_fleet import DesiredFleet

__all__ = ["Applied", "Catalog", "DesiredFleet", "Live"]
