"""What the fleet would refuse, as far as it can be known beforehand: so that no half of it is applied."""

from collections.abc import Mapping, Sequence
from typing import Any

from pallas.config.notes import Notes, allowed, did_you_mean

from .document_checks import Current
from .document_reader import ResourceDocument
from .resource_documents import differing

Specs = Mapping[str, Mapping[str, Any]]


def foresee(
    documents: Sequence[ResourceDocument],
    specs: Specs,
    current: Current,
    servers: Sequence[str] | None,
    notes: Notes,
) -> None:
    """Note what files declare and would be changed, keys that a secret has not, servers that there are not.

    ``servers`` are those of the folder's configuration, None where nobody knows them.
    """
    for document in documents:
        spec, now = specs.get(document.title, {}), current.get((document.kind, document.name))
        if now is not None and now.get("source", "api") != "api":
            _declared(document, spec, now, notes)
        elif document.kind == "llm":
            _key(document, spec, specs, current, notes)
        elif document.kind == "project" and servers is not None:
            _servers(document, spec, servers, notes)


def _declared(
    document: ResourceDocument, spec: Mapping[str, Any], now: Mapping[str, Any], notes: Notes
) -> None:
    place = now["source"]
    for key in differing(document.kind, spec, now):
        # Defaults of an agent may be set here as well, unless its file does: the fleet knows.
        if key != "defaultParams":
            notes.error(
                document.line_of(key),
                f"spec.{key}",
                f"is declared in {place}",
                "change it there, or leave it out",
            )


def _key(
    document: ResourceDocument, spec: Mapping[str, Any], specs: Specs, current: Current, notes: Notes
) -> None:
    ref = spec.get("apiKeyRef")
    if not isinstance(ref, Mapping):
        return
    given = specs.get(f"secret/{ref['name']}", {}).get("data") or {}
    there = (current.get(("secret", ref["name"])) or {}).get("keys") or []
    keys = [key for key in dict.fromkeys([*there, *given]) if given.get(key, "") is not None]
    if (given or there) and ref["key"] not in keys:
        hint = did_you_mean(ref["key"], keys) or allowed(keys)
        problem = f"secret {ref['name']} has no key {ref['key']}"
        notes.error(document.line_of("apiKeyRef"), "spec.apiKeyRef", problem, hint)


def _servers(
    document: ResourceDocument, spec: Mapping[str, Any], servers: Sequence[str], notes: Notes
) -> None:
    for number, each in enumerate(spec.get("servers") or []):
        name = each.get("name") if isinstance(each, Mapping) and not each.get("url") else None
        if name is not None and name not in servers:
            hint = did_you_mean(name, servers) or allowed(servers)
            at = f"servers.{number}"
            notes.error(document.line_of(at), f"spec.{at}", f"the configuration has no server {name}", hint)
