"""Convert the API's view of a thing to the document that `pallas apply` accepts, and back."""

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
"""The keys of a document's ``spec``, in printing order."""


def document_of(kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the complete document of an agent, an LLM, a secret or a project; of a secret only the keys."""
    spec = {key: _short(key, body.get(key)) for key in SPEC_KEYS[kind] if key != "data"}
    if body.get("source", "api") != "api":
        # Applying this must not clear what a file declares and the fleet has not read yet.
        spec = {key: value for key, value in spec.items() if value not in (None, "", [], {})}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": body.get("name", "")}, "spec": spec}


def list_of(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Return several documents as one, which `pallas apply` accepts as well."""
    return {"apiVersion": API_VERSION, "kind": "list", "items": documents}


def same(kind: str, spec: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """Return whether everything that a checked spec says is already so. What it leaves out stays.

    A secret's values cannot be read back: a spec that gives some always differs.
    """
    return "data" not in spec and not differing(kind, spec, body)


def differing(kind: str, spec: Mapping[str, Any], body: Mapping[str, Any]) -> list[str]:
    """Return the keys of a checked spec that differ from the present state."""
    now = document_of(kind, body)["spec"]
    return [key for key, value in spec.items() if _plain(key, value) != _plain(key, now.get(key))]


def _short(key: str, value: Any) -> Any:
    """Return a reference as its name."""
    if key in ("llm", "project") and isinstance(value, Mapping):
        return value.get("name", value.get("id"))
    return value


def _plain(key: str, value: Any) -> Any:
    """Normalize a value: empty values are None, parameters get their names and types."""
    if key == "defaultParams" and isinstance(value, Mapping):
        with suppress(Fault):
            value = Params.read(value, strict=False).to_json()
    if key == "keys" and isinstance(value, list):
        value = sorted(value)
    if key in ("servers", "prompts") and isinstance(value, list):
        value = [_item(each) for each in value]
    return None if value in ("", [], {}) else value


def _item(value: Any) -> Any:
    """Return a server or a prompt as a single word when that is all it has."""
    if not isinstance(value, Mapping):
        return value
    parameters = {key: each for key, each in value.items() if each not in ("", None, {}, 0)}
    return next(iter(parameters.values())) if len(parameters) == 1 else parameters
