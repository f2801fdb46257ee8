"""Asks a provider whether it accepts a key, when an LLM is written."""

from dataclasses import dataclass, replace
from typing import Any, Final

from pallas.config import Project
from pallas.health.preflight import preflight
from pallas.health.provider_endpoint import PROVIDERS

_REFUSED: Final = "was refused"


@dataclass(frozen=True, slots=True)
class Probed:
    """The result of the question."""

    message: str = ""  # empty if all is well
    refused: bool = False  # the provider itself refused the key


async def probe(project: Project, kind: str, model: str, url: str, key: str) -> Probed:
    """Ask the provider, 5 s at most. One without a known address is not asked, others as if compatible."""
    if kind not in PROVIDERS and not url:
        return Probed()
    provider = kind if kind in PROVIDERS else "generic"
    block: dict[str, Any] = {"api_key": key}
    if url:
        block["base_url"] = url
    asked = replace(project, agents={}, settings={provider: block}, keys={}, provider=provider, model=model)
    for report in await preflight(asked):
        if report.provider == provider and not report.ok:
            refused = report.certain and _REFUSED in report.message
            # The key came with the request, and is in no file.
            return Probed(report.message.partition("; correct ")[0] if refused else report.message, refused)
    return Probed()
