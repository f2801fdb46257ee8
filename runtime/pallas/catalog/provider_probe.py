"""Whether a provider takes a key, asked when an LLM is written."""

from dataclasses import dataclass, replace
from typing import Any, Final

from pallas.config import Project
from pallas.health.preflight import preflight

# Providers that are asked as themselves; all others speak as openai does, where they have an address.
_ITSELF: Final = frozenset({"anthropic", "openai"})
_REFUSED: Final = "was refused"


@dataclass(frozen=True, slots=True)
class Probed:
    """``message`` is empty when all is well; ``refused`` when the provider itself said no to the key."""

    message: str = ""
    refused: bool = False


async def probe(project: Project, kind: str, model: str, url: str, key: str) -> Probed:
    """Ask, 5 s at most. Nobody is asked whose address is not known."""
    if kind not in _ITSELF and not url:
        return Probed()
    provider = kind if kind in _ITSELF else "openai"
    block: dict[str, Any] = {"api_key": key}
    if url:
        block["base_url"] = url
    asked = replace(project, settings={provider: block}, provider=provider, model=model)
    for report in await preflight(asked):
        if report.provider == provider and not report.ok:
            return Probed(report.message, report.certain and _REFUSED in report.message)
    return Probed()
