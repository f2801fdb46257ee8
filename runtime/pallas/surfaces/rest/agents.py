"""Agents as they are sent (SPEC AG-1)."""

from typing import Any

from pallas.model import Resource
from pallas.model.safe_text import sanitize

from .response_models import AgentModel, Ref, iso


def agent_out(resource: Resource) -> AgentModel:
    """An agent: what its author wrote of it, and how it is now."""
    spec, status = resource.spec, resource.status
    return AgentModel(
        id=resource.id,
        name=resource.name,
        # What files say may hold anything.
        description=sanitize(str(spec.get("description") or "")),
        systemPrompt=sanitize(str(spec.get("systemPrompt") or "")),
        llm=_reference(status, spec, "llm"),
        project=_reference(status, spec, "project"),
        proxyModelName=spec.get("proxyModelName") or None,
        defaultParams=spec.get("defaultParams"),
        maxIterations=spec.get("maxIterations"),
        loopRepeatThreshold=spec.get("loopRepeatThreshold"),
        extras=spec.get("extras") or None,
        ownerId=resource.owner,
        version=resource.version,
        createdAt=iso(resource.created_at),
        updatedAt=iso(resource.updated_at),
        source=str(status.get("source") or "api"),
        kind=status.get("kind") or "llm",
        capabilities=list(status.get("capabilities") or ()),
        availability=status.get("availability") or None,
        state=status.get("state") or None,
        health=status.get("health") or None,
        healthMessage=status.get("health_message") or None,
        url=status.get("url") or None,
        reason=status.get("reason") or None,
        problem=status.get("problem") or None,
        shadowed=status.get("shadowed") or None,
        shadows=status.get("shadows") or None,
        payload=status.get("payload") or None,
    )


def _reference(status: Any, spec: Any, key: str) -> Ref | None:
    found = status.get(key)
    if isinstance(found, dict):
        return Ref(id=found.get("id"), name=str(found.get("name")))
    return Ref(name=str(spec[key])) if spec.get(key) else None
