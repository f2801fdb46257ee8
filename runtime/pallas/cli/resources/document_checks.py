"""Checks of documents that need no change to the fleet."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pallas.catalog.spec_fields import check_name
from pallas.catalog.specs import read_spec
from pallas.config.models import Where
from pallas.config.notes import Notes, did_you_mean
from pallas.model import Fault
from pallas.model.params import KEYS, Params

from .document_reader import ResourceDocument
from .resource_documents import same

Current = Mapping[tuple[str, str], Mapping[str, Any] | None]
"""The present state by kind and name; None for what does not exist."""

_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {"llm": ("type", "model"), "secret": ("data",)}


def check_alone(documents: Sequence[ResourceDocument], notes: Notes) -> dict[str, dict[str, Any]]:
    """Note mistakes within each document, and duplicates.

    Returns the specs by title, with the API's keys and types; an invalid one as far as it was valid.
    """
    seen: dict[str, ResourceDocument] = {}
    specs: dict[str, dict[str, Any]] = {}
    for document in documents:
        first = seen.setdefault(document.title, document)
        if first is not document:
            notes.error(document.where, document.title, f"is given twice, first at {first.where}")
            continue
        try:
            check_name(document.kind, document.name)
        except Fault as fault:
            notes.error(document.line_of_name(), "metadata.name", _problem(fault))
        specs[document.title] = _spec(document, notes)
    return specs


def _spec(document: ResourceDocument, notes: Notes) -> dict[str, Any]:
    """Check key by key, so that no mistake hides another."""
    found: dict[str, Any] = {}
    for key, value in document.spec.items():
        try:
            given = read_spec(document.kind, {key: value}, at="spec").given()
        except Fault as fault:
            path = str(fault.data.get("key") or f"spec.{key}")
            notes.error(document.line_of(path.removeprefix("spec.")), path, _problem(fault))
            continue
        if twice := next((name for name in given if name in found), None):
            notes.error(document.line_of(key), f"spec.{key}", f"is given twice, as {twice} too")
        found |= given
        if isinstance(params := given.get("defaultParams"), dict):
            _warn_of_extras(document, key, params, notes)
    return found


def _warn_of_extras(document: ResourceDocument, at: str, params: Mapping[str, Any], notes: Notes) -> None:
    """Warn of keys that are no parameters: they go to the provider, or are typing errors."""
    for name in params:
        near = did_you_mean(name, KEYS)
        if near and name != "extra" and "extra" in Params.read({name: params[name]}, strict=False).values:
            where = document.line_of(f"{at}.{name}")
            notes.warn(
                where,
                f"spec.{at}.{name}",
                "is not a known parameter, and is sent to the provider as extra",
                near,
            )


def references(kind: str, spec: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return kind, name and key of everything that a checked spec refers to."""
    found = []
    if kind == "agent":
        found = [(key, spec[key], key) for key in ("llm", "project") if spec.get(key)]
    elif kind == "llm" and spec.get("apiKeyRef"):
        found = [("secret", spec["apiKeyRef"]["name"], "apiKeyRef")]
    return found


def check_together(
    documents: Sequence[ResourceDocument],
    specs: Mapping[str, Mapping[str, Any]],
    current: Current,
    notes: Notes,
) -> None:
    """Note references to things that exist neither here nor in the fleet, and required keys of new things."""
    here = {(document.kind, document.name) for document in documents}
    for document in documents:
        spec = specs.get(document.title, {})
        for kind, name, key in references(document.kind, spec):
            if (kind, name) not in here and current.get((kind, name)) is None:
                known = [n for k, n in here if k == kind]
                hint = did_you_mean(name, known) or f"apply it too, or: pallas create {kind} {name}"
                notes.error(document.line_of(key), f"spec.{key}", f"there is no {kind} {name}", hint)
        now = current.get((document.kind, document.name))
        if now is None:
            for key in _NEEDED.get(document.kind, ()):
                if not document.has(key):
                    notes.error(document.where, document.title, _missing(document, key))
        elif document.kind == "secret" and "data" not in spec and not same("secret", spec, now):
            hint = "write data: {KEY: value}"
            notes.error(document.line_of("keys"), "spec.keys", "are not the keys of the secret", hint)


def _missing(document: ResourceDocument, key: str) -> str:
    if document.kind == "secret" and document.has("keys"):
        return "does not exist yet, and a secret is listed without its values; write spec.data: {KEY: value}"
    return f"is new and needs spec.{key}"


def _problem(fault: Fault) -> str:
    return fault.message.removeprefix(f"{fault.data.get('key')}: ")


def place_of(document: ResourceDocument, fault: Fault) -> tuple[Where, str]:
    """Return the line and the key that a refusal of the fleet is about."""
    key = str(fault.data.get("key") or "").removeprefix("spec.")
    if not key:
        return document.where, ""
    # A parameter may be named without the mapping that contains it.
    for candidate in (key, f"defaultParams.{key}"):
        if document.has(candidate.partition(".")[0]):
            return document.line_of(candidate), f"spec.{candidate}"
    return document.where, key
