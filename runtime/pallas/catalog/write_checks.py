"""Checks before a write: free names, existing references, and resources that files declare."""

from collections.abc import Mapping, Sequence
from typing import Any

from pallas.config.notes import nearest
from pallas.ledger.kept import ResourceRow, used_by
from pallas.model import ResourceKind, refusals
from pallas.safe_text import one_line

from .catalog_view import View
from .secret_references import references_in
from .spec_fields import slug, wrong
from .specs import NEEDS_URL, SecretSpec, Spec


def check_free(view: View, kind: ResourceKind, name: str) -> None:
    """Raise Fault (conflict) for a name that is taken, or published as another's."""
    if kind == "agent":
        if place := view.live.shadow(name):
            raise refusals.conflict(
                f"{place} declares agent {name}, or one that is published under that name"
            )
        for each in view.rows.agents:
            if slug(each.name) == slug(name) and each.name != name:
                raise refusals.conflict(
                    f"agent {each.name} is published as {slug(name)} already; choose another name"
                )
    if view.names.find(kind, name) is not None:
        raise refusals.conflict(f"{kind} {name} exists already; change it, or choose another name")


def check_writable(view: View, row: ResourceRow, was: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    """Raise Fault (conflict) for a change of what a file declares."""
    place = view.declared(row)
    if not place:
        return
    name, kind = view.shown_name(row), row.kind
    if not view.is_files(row):
        raise refusals.conflict(f"{kind} {name} is declared in {place}; change it there")
    for key in spec:
        if spec[key] != was[key] and key != "defaultParams":
            raise refusals.conflict(f"{key} of agent {name} is declared in {place}; change it there", key=key)
    config = view.file_agent(row)
    if config is not None and config.params:
        raise refusals.conflict(
            f"params of agent {name} are declared in {place}; change them there", key="defaultParams"
        )


def check_complete(
    view: View, given: Spec, spec: Mapping[str, Any], kind: ResourceKind, row: ResourceRow | None
) -> None:
    """Raise Fault for a missing key (PROTOCOL), or a reference to something that does not exist
    (unprocessable).
    """
    if kind == "agent":
        _reference(view, "llm", "llm", spec["llm"])
        _reference(view, "project", "project", spec["project"])
    elif kind == "llm":
        _llm(view, spec)
    elif kind == "project":
        _servers(view, spec["servers"])
    elif isinstance(given, SecretSpec):
        _secret(view, given, row)


def _reference(view: View, key: str, kind: ResourceKind, name: str | None) -> None:
    if name is not None and view.names.find(kind, name) is None:
        near = nearest(name, view.names.all(kind))
        hint = f"did you mean {near}?" if near else "create it first"
        raise refusals.unprocessable(f"{key}: there is no {kind} {one_line(name, 80)!r}; {hint}", key=key)


def _llm(view: View, spec: Mapping[str, Any]) -> None:
    for key in ("type", "model"):
        if not spec[key]:
            raise wrong(key, "is missing")
    if spec["type"] in NEEDS_URL and not spec["url"] and not view.live.files.settings.get(spec["type"]):
        raise wrong("url", f"is missing; type {spec['type']} has no address of its own")
    if (ref := spec["apiKeyRef"]) is not None:
        _reference(view, "apiKeyRef", "secret", ref["name"])
        _key(view, "apiKeyRef.key", ref["name"], ref["key"])


def _key(view: View, at: str, secret: str, key: str) -> None:
    row = view.names.find("secret", secret)
    keys: Sequence[str] = row.values["keys"] if row is not None else ()
    if key not in keys:
        hint = f"it has {', '.join(keys)}" if keys else "it has none"
        raise refusals.unprocessable(f"{at}: secret {secret} has no key {key}; {hint}", key=at)


def _servers(view: View, servers: Sequence[Any]) -> None:
    known, seen = view.live.files.downstreams, set[str]()
    for number, each in enumerate(servers):
        at = f"servers.{number}"
        name = each if isinstance(each, str) else each["name"]
        if name in seen:
            raise wrong(at, f"{name} is there twice")
        seen.add(name)
        if isinstance(each, str):
            if each not in known:
                near = nearest(each, known)
                hint = f"did you mean {near}?" if near else f"it has {', '.join(known) or 'none'}"
                text = f"{at}: the configuration has no server {each!r} under mcp.servers; {hint}"
                raise refusals.unprocessable(text, key=at)
            continue
        if name in known:
            raise refusals.conflict(
                f"{at}: {name} is a server of the configuration; choose another name", key=f"{at}.name"
            )
        for header, text in each.get("headers", {}).items():
            for ref in references_in(text):
                _reference(view, f"{at}.headers.{header}", "secret", ref.name)
                _key(view, f"{at}.headers.{header}", ref.name, ref.key)


def _secret(view: View, given: SecretSpec, row: ResourceRow | None) -> None:
    data = given.data or {}
    if row is None:
        if not any(value is not None for value in data.values()):
            raise wrong("data", "is missing; write data: {KEY: VALUE}, since values are never given out")
        return
    gone = {key for key, value in data.items() if value is None}
    llms = [
        each.name
        for each in view.rows.llms
        if each.values["secret_id"] == row.id and each.values["secret_key"] in gone
    ]
    if llms:
        raise used_by("secret", row.name, "llm", llms)
    if users := view.header_users(row.name, gone):
        raise used_by("secret", row.name, "project", users)
