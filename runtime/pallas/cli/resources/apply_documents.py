"""`pallas apply`: create and change things as documents describe them, after checking everything."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pallas.config.notes import Notes, allowed, did_you_mean

from .document_checks import Current, check_alone, check_together, place_of, references
from .document_reader import ResourceDocument, read
from .fleet_requests import OK, REFUSED, FleetLocation, Wrong, complain, fault_text, run_with_fleet, warn_of
from .resource_documents import differing, same
from .resource_kinds import KINDS, ORDER

if TYPE_CHECKING:
    from pallas.client import RestClient


Specs = Mapping[str, Mapping[str, Any]]


def foresee(
    documents: Sequence[ResourceDocument],
    specs: Specs,
    current: Current,
    servers: Sequence[str] | None,
    notes: Notes,
) -> None:
    """Note what the fleet would refuse, so that nothing is applied halfway.

    That is: a change to what a file declares, a key that a secret does not have, an unknown server.
    ``servers`` are those of the folder's configuration, None when unknown.
    """
    for document in documents:
        spec, now = specs.get(document.title, {}), current.get((document.kind, document.name))
        if now is not None and now.get("source", "api") != "api":
            _check_declared(document, spec, now, notes)
        elif document.kind == "llm":
            _check_key(document, spec, specs, current, notes)
        elif document.kind == "project" and servers is not None:
            _check_servers(document, spec, servers, notes)


def _check_declared(
    document: ResourceDocument, spec: Mapping[str, Any], now: Mapping[str, Any], notes: Notes
) -> None:
    place = now["source"]
    for key in differing(document.kind, spec, now):
        # An agent's defaults may be set here too, unless its file sets them: the fleet checks that.
        if key != "defaultParams":
            notes.error(
                document.line_of(key),
                f"spec.{key}",
                f"is declared in {place}",
                "change it there, or leave it out",
            )


def _check_key(
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


def _check_servers(
    document: ResourceDocument, spec: Mapping[str, Any], servers: Sequence[str], notes: Notes
) -> None:
    for number, each in enumerate(spec.get("servers") or []):
        name = each.get("name") if isinstance(each, Mapping) and not each.get("url") else None
        if name is not None and name not in servers:
            hint = did_you_mean(name, servers) or allowed(servers)
            at = f"servers.{number}"
            notes.error(document.line_of(at), f"spec.{at}", f"the configuration has no server {name}", hint)


_AT_ONCE: Final = 8


def apply(sources: Sequence[str], dry_run: bool, reach: FleetLocation) -> int:
    """Read, check and apply every document of the sources, and print the result of each.

    The status is 1 when something is wrong. When a check finds it, nothing was changed.
    """
    if not sources:
        complain("pallas apply: name what to apply: -f FILE, -f DIR, or -f - for stdin")
        return 2
    notes = Notes()
    try:
        documents, names = read(sources, notes)
    except Wrong as error:
        complain(str(error))
        return 2
    specs = check_alone(documents, notes)
    if not documents and not _errors(notes, names):
        complain("pallas apply: the input has no document")
        return 2

    async def work(api: "RestClient") -> int:
        current = await _current(api, documents, specs)
        check_together(documents, specs, current, notes)
        foresee(documents, specs, current, await _servers(api, specs), notes)
        for mistake in notes.sorted(names):
            text = str(mistake)
            if mistake.level == "warning":
                text = text.replace(f"{mistake.where}: ", f"{mistake.where}: warning: ", 1)
            complain(text)
        if _errors(notes, names):
            complain("nothing was changed")
            return REFUSED
        statuses = [
            await _one(api, document, specs[document.title], current, dry_run)
            for kind in ORDER
            for document in documents
            if document.kind == kind
        ]
        return max(statuses, default=OK)

    return run_with_fleet(reach, work)


def _errors(notes: Notes, names: Sequence[str]) -> bool:
    return any(mistake.level == "error" for mistake in notes.sorted(names))


async def _current(
    api: "RestClient", documents: Sequence[ResourceDocument], specs: Mapping[str, dict[str, Any]]
) -> Current:
    """Return the present state of everything that is given or referred to."""
    wanted: set[tuple[str, str]] = {(document.kind, document.name) for document in documents}
    for document in documents:
        spec = specs.get(document.title, {})
        wanted |= {(kind, name) for kind, name, _ in references(document.kind, spec)}
    bound = asyncio.Semaphore(_AT_ONCE)

    async def look(kind: str, name: str) -> dict[str, Any] | None:
        async with bound:
            return await find(api, kind, name)

    pairs = sorted(wanted)
    return dict(zip(pairs, await asyncio.gather(*(look(*pair) for pair in pairs)), strict=True))


async def _servers(api: "RestClient", specs: Mapping[str, dict[str, Any]]) -> list[str] | None:
    """Return the servers of the folder's configuration; None when no document needs them."""
    if not any(spec.get("servers") for spec in specs.values()):
        return None
    async for body in api.items(KINDS["project"].path):
        if isinstance(body, Mapping) and body.get("source", "api") != "api":
            return [each for each in body.get("servers") or [] if isinstance(each, str)]
    return None


async def find(api: "RestClient", kind: str, name: str) -> dict[str, Any] | None:
    """Return the fleet's document of one thing; None when there is none. Raises Fault."""
    from pallas.client.rest_client import part
    from pallas.model import Fault

    try:
        body = await api.get(f"{KINDS[kind].path}/{part(name)}", visible=False)
    except Fault as fault:
        if fault.data.get("reason") == "not_found":
            return None
        raise
    return body if isinstance(body, dict) else None


async def _one(
    api: "RestClient", document: ResourceDocument, spec: dict[str, Any], current: Current, dry_run: bool
) -> int:
    from pallas.model import Fault

    now = current[document.kind, document.name]
    try:
        if now is None:
            became = "created" if dry_run else await _create(api, document, spec)
        elif same(document.kind, spec, now):
            became = "unchanged"
        else:
            became = "configured" if dry_run else await _change(api, document, spec, now)
    except Fault as fault:
        where, key = place_of(document, fault)
        problem = fault.message
        complain(
            f"{where}: {key}: {problem}" if key and key not in problem else f"{where}: {fault_text(fault)}"
        )
        return REFUSED
    print(f"{document.title} {became}{' (dry run)' if dry_run else ''}")
    sys.stdout.flush()
    return OK


async def _create(api: "RestClient", document: ResourceDocument, spec: dict[str, Any]) -> str:
    created = await api.post(KINDS[document.kind].path, {"name": document.name, **spec})
    warn_of(document.title, created)
    return "created"


async def _change(
    api: "RestClient", document: ResourceDocument, spec: dict[str, Any], now: dict[str, Any] | Any
) -> str:
    from pallas.client.rest_client import part

    after = await api.put(f"{KINDS[document.kind].path}/{part(document.name)}", spec)
    warn_of(document.title, after)
    changed = not isinstance(after, dict) or after.get("version") != now.get("version")
    return "configured" if changed else "unchanged"
