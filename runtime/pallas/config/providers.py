"""``providers:`` and ``default_provider:`` of an agent: those that callers may choose among."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from pydantic import Field

from pallas.model import ProviderKind

from .field_types import CHOICE, Loose, Maybe, TextRule
from .file_model import FileModel
from .kinds import ProviderConfig
from .notes import allowed, nearest
from .params import ParamsMapping, read_params
from .section import Section
from .tree import Items
from .upstream import PROVIDERS

MAX_ID: Final = 100
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# What is before the first dot of a model may be a part of its name (gpt-4.1), which ends in a digit then.
_PREFIX: Final = re.compile(r"[A-Za-z]+([_-][A-Za-z]+)*")


def _id_problem(text: str) -> str | None:
    if len(text) <= MAX_ID and _ID.fullmatch(text):
        return None
    return f"is not an id; allowed: letters, digits and . _ - after the first, at most {MAX_ID}"


class ProviderCapabilities(FileModel):
    """What a provider can do, as declared; shown to those who choose."""

    streaming: Maybe[bool] = None
    """Its answers come piece by piece."""
    tools: Maybe[bool] = None
    """It calls tools."""
    vision: Maybe[bool] = None
    """It reads pictures."""
    json_mode_camel: Annotated[Maybe[bool], Field(alias="jsonMode")] = None
    """It answers in JSON where that is asked for."""
    json_mode: Maybe[bool] = None
    """The same as ``jsonMode``."""


class ProviderEntry(FileModel):
    """A provider that callers of the agent may choose."""

    id: Annotated[str, TextRule(_id_problem, pattern=f"^{_ID.pattern}$"), Field(examples=["openai"])]
    """Its id, unique in the agent."""
    models: Annotated[tuple[Loose, ...] | None, Field(examples=[["openai.gpt-4o"]])]
    """Its models, written as in ``default_model``; the first one is used unless a caller chooses."""
    kind: Annotated[ProviderKind, CHOICE] = "llm"
    """Its kind; a provider that is not an ``llm`` is listed and cannot answer."""
    capabilities: ProviderCapabilities | None = None
    """What it can do, as callers see it."""
    display_name: Maybe[Annotated[str, TextRule(most=MAX_ID)]] = None
    """Its name for people."""
    description: Maybe[Annotated[str, TextRule(most=500)]] = None
    """One line on what it is good for."""
    params: ParamsMapping = None
    """Parameters of its requests, below the agent's own."""
    failover: bool = False
    """Whether it answers in place of another that fails."""
    display_name_camel: Annotated[
        Maybe[Annotated[str, TextRule(most=MAX_ID)]], Field(alias="displayName")
    ] = None
    """The same as ``display_name``."""


def providers_of(
    section: Section, entries: Sequence[ProviderEntry] | None, default: str | None
) -> tuple[tuple[ProviderConfig, ...], str]:
    """The providers of an agent, the default one first, and the id of that; ``((), "")`` for none.

    Without ``default_provider`` the first of kind ``llm`` is it.
    """
    found = _by_id(entries or ())
    node = section.table.get("providers")
    if isinstance(node, Items) and not node.items and not entries:
        section.error("providers", "is empty", "leave it out for an agent without a choice")
    if not found:
        if default is not None and node is None:
            section.error("default_provider", "there are no providers", "add providers: with its id")
        return (), ""
    answering = [each.id for each in found.values() if each.kind == "llm"]
    if default is not None and default not in found:
        known = nearest(default, answering)
        section.error(
            "default_provider",
            f'"{default}" is not among the providers',
            f"did you mean {known}" if known else "",
            allowed(answering),
        )
    elif default is not None and default not in answering:
        section.error("default_provider", f'"{default}" is not an llm and cannot answer', allowed(answering))
    elif not answering:
        section.error("providers", "none of them is an llm", "no provider could answer; add one of kind llm")
    chosen = default if default in answering else next(iter(answering), "")
    ordered = sorted(found.values(), key=lambda each: each.id != chosen)
    return tuple(ordered), chosen


def _by_id(entries: Sequence[ProviderEntry]) -> dict[str, ProviderConfig]:
    found: dict[str, ProviderConfig] = {}
    for entry in entries:
        provider = _provider(entry)
        if provider is not None and provider.id in found:
            entry.at.error(
                "id", f'Provider with id "{provider.id}" is already registered', "give each its own id"
            )
        elif provider is not None:
            found[provider.id] = provider
    return found


def _provider(entry: ProviderEntry) -> ProviderConfig | None:
    """One entry; None where it has no usable id."""
    section = entry.at
    models = _models(entry)
    if "displayName" in section and "display_name" in section:
        section.error("displayName", "is given twice, in two spellings", "leave one out")
    if entry.failover and entry.kind != "llm":
        section.error(
            "failover", f"no provider of kind {entry.kind} can answer in place of another", "leave it out"
        )
    params, capabilities = read_params(section), _capabilities(entry.capabilities)
    if not entry.id:  # None after a mistake
        return None
    return ProviderConfig(
        id=entry.id,
        models=models,
        kind=entry.kind,
        capabilities=capabilities,
        display_name=entry.display_name_camel or entry.display_name or "",
        description=entry.description or "",
        params=params,
        failover=entry.failover,
    )


def _models(entry: ProviderEntry) -> tuple[str, ...]:
    section = entry.at
    node = section.table.get("models")
    if node is not None and not entry.models and (not isinstance(node, Items) or not node.items):
        if isinstance(node, Items) or getattr(node, "value", "") is None:
            section.error("models", "is empty", "name at least one, for example [openai.gpt-4o]")
        return ()
    found: dict[str, None] = {}
    for text, where in entry.listed("models"):
        spec = text.strip()
        if problem := _model_problem(spec):
            section.refuse("models", problem, where)
        elif spec in found:
            section.error("models", f"{spec} is given twice", "leave one out", where=where)
        else:
            found[spec] = None
    return tuple(found)


def _model_problem(spec: str) -> str | None:
    if not spec or any(letter.isspace() for letter in spec):
        return "has an entry that is not the name of a model; write it as openai.gpt-4o"
    if spec.startswith("$"):
        return None  # a reference of the fast-agent configuration
    name = spec.partition("?")[0]
    slash, _, rest = name.partition("/")
    if rest and slash in PROVIDERS:
        return None
    prefix, dot, model = name.partition(".")
    if not dot or not _PREFIX.fullmatch(prefix) or (model and prefix in PROVIDERS):
        return None
    if prefix in PROVIDERS:
        return f"{spec} names no model; write one after {prefix}."
    near = nearest(prefix, PROVIDERS, cutoff=0.6)
    hint = f"did you mean {near}.{model}" if near else allowed(sorted(PROVIDERS))
    return f"{prefix} is not a provider of fast-agent; {hint}"


def _capabilities(entry: ProviderCapabilities | None) -> Mapping[str, bool] | None:
    if entry is None:
        return None
    if "jsonMode" in entry.at and "json_mode" in entry.at:
        entry.at.error("json_mode", "is given twice, in two spellings", "leave one out")
    json_mode = entry.json_mode_camel if entry.json_mode is None else entry.json_mode
    capabilities = {
        "streaming": entry.streaming,
        "tools": entry.tools,
        "vision": entry.vision,
        "jsonMode": json_mode,
    }
    return {key: value for key, value in capabilities.items() if value is not None} or None
