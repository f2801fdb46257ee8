"""What the API says of a thing, as the document that `pallas apply` takes, and back."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from pallas.model import Fault, Params

API_VERSION: Final = "pallas/v1"
API_VERSIONS: Final = (API_VERSION, "mcpctl.io/v1")

SPEC_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "agent": (
        "description",
        "systemPrompt",
        "llm",
        "project",
        "proxyModelName",
        "defaultParams",
        "maxIterations",
        "loopRepeatThreshold",
        "extras",
    ),
    "llm": ("type", "model", "url", "apiKeyRef", "description", "defaultParams", "maxOutputTokens", "extra"),
    "secret": ("keys", "data"),
    "project": ("description", "servers", "prompts"),
}
"""What a document's ``spec`` may hold, in the order in which it is printed."""


def document_of(kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The document of an agent, an LLM, a secret or a project, complete; a secret's has its keys alone."""
    spec = {key: _short(key, body.get(key)) for key in SPEC_KEYS[kind] if key != "data"}
    if body.get("source", "api") != "api":
        # What a file declares and nobody has read yet is not to be cleared by whoever applies this.
        spec = {key: value for key, value in spec.items() if value not in (None, "", [], {})}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": body.get("name", "")}, "spec": spec}


def list_of(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Several documents as one, which `pallas apply` takes as well."""
    return {"apiVersion": API_VERSION, "kind": "list", "items": documents}


def same(kind: str, spec: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """Whether what a checked spec says is so already. What it leaves out stays as it is.

    A secret's values are nowhere to be seen: a spec that gives some is never the same.
    """
    return "data" not in spec and not differing(kind, spec, body)


def differing(kind: str, spec: Mapping[str, Any], body: Mapping[str, Any]) -> list[str]:
    """The keys of a checked spec that say something else than is so."""
    now = document_of(kind, body)["spec"]
    return [key for key, value in spec.items() if _plain(key, value) != _plain(key, now.get(key))]


def _short(key: str, value: Any) -> Any:
    """A reference as the name alone."""
    if key in ("llm", "project") and isinstance(value, Mapping):
        return value.get("name", value.get("id"))
    return value


def _plain(key: str, value: Any) -> Any:
    """What counts as nothing is nothing, and parameters have their names and forms."""
    if key == "defaultParams" and isinstance(value, Mapping):
        with suppress(Fault):
            value = Params.read(value, strict=False).to_json()
    if key == "keys" and isinstance(value, list):
        value = sorted(value)
    if key in ("servers", "prompts") and isinstance(value, list):
        value = [_item(each) for each in value]
    return None if value in ("", [], {}) else value


def _item(value: Any) -> Any:
    """A server or a prompt by its one word where it has no more."""
    if not isinstance(value, Mapping):
        return value
    said = {key: each for key, each in value.items() if each not in ("", None, {}, 0)}
    return next(iter(said.values())) if len(said) == 1 else said
