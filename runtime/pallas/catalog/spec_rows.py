"""Converts specs to rows and back."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pallas.ledger.kept import FOLDER_ID, ResourceRow, ResourceRows
from pallas.model import ResourceKind

from .spec_fields import unknown, wrong
from .specs import (
    AgentSpec,
    LlmSpec,
    ProjectSpec,
    PromptSpec,
    SecretSpec,
    ServerSpec,
    Spec,
    read_params,
)

API_VERSION: Final = "pallas/v1"
API_VERSIONS: Final = (API_VERSION, "mcpctl.io/v1")

EMPTY: Final[Mapping[ResourceKind, Mapping[str, Any]]] = {
    "agent": {
        "description": "",
        "systemPrompt": "",
        "llm": None,
        "project": None,
        "proxyModelName": "",
        "defaultParams": None,
        "maxIterations": None,
        "loopRepeatThreshold": None,
        "extras": {},
    },
    "llm": {
        "type": "",
        "model": "",
        "url": "",
        "apiKeyRef": None,
        "description": "",
        "defaultParams": None,
        "maxOutputTokens": None,
        "extra": {},
    },
    "secret": {"keys": []},
    "project": {"description": "", "servers": [], "prompts": []},
}
"""The empty spec of each kind, with all of its keys."""

_LIMITS: Final = "$limits"
"""The key of a row's free JSON that holds spec keys without a column."""
LIMITS: Final[Mapping[str, tuple[str, ...]]] = {
    "agent": ("maxIterations", "loopRepeatThreshold"),
    "llm": ("maxOutputTokens",),
}


class Names:
    """The ids and names of all rows. ``folder`` is the name of the folder's own project."""

    def __init__(self, rows: ResourceRows, folder: str) -> None:
        self._rows = rows
        self.folder = folder

    def name(self, kind: ResourceKind, key: str | None) -> str | None:
        """The name of the row with that id."""
        if kind == "project" and key == FOLDER_ID:
            return self.folder
        return next((each.name for each in self._rows.of(kind) if each.id == key), None)

    def find(self, kind: ResourceKind, name_or_id: str) -> ResourceRow | None:
        """The row of that name, or else of that id. The folder's project precedes another of its name."""
        rows = self._rows.of(kind)
        if kind == "project" and name_or_id == self.folder:
            return next((each for each in rows if each.id == FOLDER_ID), None)
        return next((each for each in rows if each.name == name_or_id), None) or next(
            (each for each in rows if each.id == name_or_id), None
        )

    def all(self, kind: ResourceKind) -> Iterable[str]:
        """All names of a kind."""
        for each in self._rows.of(kind):
            yield self.folder if each.id == FOLDER_ID and kind == "project" else each.name

    def reference(self, kind: ResourceKind, key: str | None) -> dict[str, str] | None:
        """``{id, name}`` of a row, as other rows refer to it."""
        name = self.name(kind, key)
        return {"id": str(key), "name": name} if name is not None else None


def spec_of(stored: ResourceRow, names: Names) -> dict[str, Any]:
    """The whole spec of a row, as its author reads and writes it."""
    row = stored.values
    if stored.kind == "agent":
        return {
            "description": row["description"],
            "systemPrompt": row["system_prompt"],
            "llm": names.name("llm", row["llm_id"]),
            "project": names.name("project", row["project_id"]),
            "proxyModelName": row["proxy_model_name"],
            "defaultParams": row["default_params"],
            **limits_of(stored),
            "extras": _without_limits(row["extras"]),
        }
    if stored.kind == "llm":
        secret = names.name("secret", row["secret_id"])
        return {
            "type": row["type"],
            "model": row["model"],
            "url": row["url"],
            "apiKeyRef": {"name": secret, "key": row["secret_key"]} if secret is not None else None,
            "description": row["description"],
            "defaultParams": row["default_params"],
            **limits_of(stored),
            "extra": _without_limits(row["extra"]),
        }
    if stored.kind == "secret":
        return {"keys": sorted(row["keys"])}
    return {
        "description": row["description"],
        "servers": list(row["servers"] or []),
        "prompts": list(row["prompts"] or []),
    }


def values_of(kind: ResourceKind, spec: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """The columns of a row from a whole spec, whose references exist. Not for secrets."""
    if kind == "agent":
        return {
            "description": spec["description"],
            "system_prompt": spec["systemPrompt"],
            "llm_id": _id(names, "llm", spec["llm"]),
            "project_id": _id(names, "project", spec["project"]),
            "proxy_model_name": spec["proxyModelName"],
            "default_params": spec["defaultParams"],
            "extras": _with_limits(kind, spec, spec["extras"]),
        }
    if kind == "llm":
        ref = spec["apiKeyRef"]
        return {
            "type": spec["type"],
            "model": spec["model"],
            "url": spec["url"],
            "secret_id": _id(names, "secret", ref["name"]) if ref else None,
            "secret_key": ref["key"] if ref else "",
            "description": spec["description"],
            "default_params": spec["defaultParams"],
            "extra": _with_limits(kind, spec, spec["extra"]),
        }
    return {"description": spec["description"], "servers": spec["servers"], "prompts": spec["prompts"]}


def limits_of(row: ResourceRow) -> dict[str, int | None]:
    """The limits of an agent or an LLM, None for those that are not set."""
    free = row.values["extras" if row.kind == "agent" else "extra"] or {}
    found = free.get(_LIMITS)
    found = found if isinstance(found, Mapping) else {}
    return {key: found.get(key) for key in LIMITS[row.kind]}


def _without_limits(free: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (free or {}).items() if key != _LIMITS}


def _with_limits(kind: str, spec: Mapping[str, Any], free: Mapping[str, Any]) -> dict[str, Any] | None:
    limits = {key: spec[key] for key in LIMITS[kind] if spec[key] is not None}
    return _without_limits(free) | ({_LIMITS: limits} if limits else {}) or None


def merged_spec(spec: Mapping[str, Any], given: Spec, names: Names) -> dict[str, Any]:
    """``spec`` with the given keys replaced: references by name, parameters by their own keys."""
    kind = kind_of(given)
    found = dict(spec)
    for key, value in given.given().items():
        if key not in spec:
            continue
        found[key] = EMPTY[kind][key] if value is None else value
        if value is None:
            continue
        if key in ("llm", "project"):
            row = names.find("llm" if key == "llm" else "project", value)
            found[key] = names.name(row.kind, row.id) if row is not None else value
        elif key == "apiKeyRef":
            row = names.find("secret", value["name"])
            found[key] = {"name": row.name if row is not None else value["name"], "key": value["key"]}
        elif key == "defaultParams":
            found[key] = read_params(value, key).to_json()
    if isinstance(given, ProjectSpec):
        if given.servers is not None:
            found["servers"] = [_server(each) for each in given.servers]
        if given.prompts is not None:
            found["prompts"] = [_prompt(each) for each in given.prompts]
    return found


def kind_of(spec: Spec) -> ResourceKind:
    """The resource kind of a spec."""
    if isinstance(spec, AgentSpec):
        return "agent"
    if isinstance(spec, LlmSpec):
        return "llm"
    return "secret" if isinstance(spec, SecretSpec) else "project"


def short(spec: Mapping[str, Any], kind: ResourceKind) -> dict[str, Any]:
    """``spec`` without keys that have no value."""
    return {key: value for key, value in spec.items() if value != EMPTY[kind][key]}


def read_document(document: object) -> tuple[ResourceKind, Any, Any]:
    """The kind, name and spec of a document. Raises Fault (PROTOCOL) that names the key."""
    if not isinstance(document, Mapping):
        raise wrong("document", "must be an object with apiVersion, kind, metadata and spec")
    known = ("apiVersion", "kind", "metadata", "spec")
    for key in document:
        if key not in known:
            raise unknown(str(key), str(key), known)
    version = document.get("apiVersion")
    if version not in API_VERSIONS:
        raise wrong("apiVersion", f"must be {' or '.join(API_VERSIONS)}")
    given_kind = str(document.get("kind") or "").lower()
    kind = next((each for each in EMPTY if each == given_kind), None)
    if kind is None:
        raise wrong("kind", f"must be {', '.join(EMPTY)}")
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or set(metadata) - {"name"}:
        raise wrong("metadata", "must be an object with the key name, and no other")
    spec = document.get("spec")
    return kind, metadata.get("name"), spec if spec is not None else {}


def _id(names: Names, kind: ResourceKind, name: str | None) -> str | None:
    row = names.find(kind, name) if name is not None else None
    return row.id if row is not None else None


def _server(server: ServerSpec) -> Any:
    if not server.url:
        return server.name
    return {"name": server.name, "url": server.url} | ({"headers": server.headers} if server.headers else {})


def _prompt(prompt: PromptSpec) -> Any:
    found = prompt.given()
    return (
        found["text"]
        if set(found) == {"text"}
        else {"text": prompt.text, "name": prompt.name, "priority": prompt.priority}
    )
