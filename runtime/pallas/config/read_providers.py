"""``providers:`` and ``default_provider:`` of an agent: those that callers may choose among (SPEC 7.4)."""

import re
from collections.abc import Mapping
from typing import Final, get_args

from pallas.model import ProviderKind

from .kinds import ProviderConfig
from .notes import allowed, nearest
from .params import read_params
from .section import Section
from .tree import Items, Leaf
from .upstream import PROVIDERS

KEYS: Final = (
    "id", "models", "kind", "capabilities", "display_name", "description", "params", "failover",
)  # fmt: skip
"""The keys of an entry; ``displayName`` is understood as well."""
CAPABILITIES: Final[Mapping[str, str]] = {
    "streaming": "streaming",
    "tools": "tools",
    "vision": "vision",
    "jsonMode": "jsonMode",
    "json_mode": "jsonMode",
}
MAX_ID: Final = 100
MAX_DESCRIPTION: Final = 500
MAX_PROVIDERS: Final = 50
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# What stands before the first dot of a model may be a part of its name (gpt-4.1), which ends in a digit then.
_PREFIX: Final = re.compile(r"[A-Za-z]+([_-][A-Za-z]+)*")


def read_providers(section: Section) -> tuple[tuple[ProviderConfig, ...], str]:
    """The providers of an agent's entry, the default one first, and the id of that; ``((), "")`` for none.

    Every mistake is noted with its line. Without ``default_provider`` the first of kind ``llm`` is it.
    """
    items = section.table.get("providers")
    if isinstance(items, Leaf) and items.value is None:
        items = None  # all of its lines are commented out
    found: dict[str, ProviderConfig] = {}
    if items is not None and not isinstance(items, Items):
        section.texts("providers", "a list of entries with `id` and `models`")
    elif items is not None:
        found = _entries(section, items)
    default = section.text("default_provider")
    if not found:
        if default is not None and items is None:
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
        section.error("default_provider", f'"{default}" is no llm and cannot answer', allowed(answering))
    elif not answering:
        section.error("providers", "none of them is an llm", "nobody could answer; add one of kind llm")
    chosen = default if default in answering else next(iter(answering), "")
    ordered = sorted(found.values(), key=lambda each: each.id != chosen)
    return tuple(ordered), chosen


def _entries(section: Section, items: Items) -> dict[str, ProviderConfig]:
    if not items.items:
        section.error("providers", "is empty", "leave it out for an agent without a choice")
    if len(items.items) > MAX_PROVIDERS:
        section.error("providers", f"has {len(items.items)} entries", f"allowed: at most {MAX_PROVIDERS}")
    found: dict[str, ProviderConfig] = {}
    for number, node in enumerate(items.items[:MAX_PROVIDERS]):
        inner = section.section_of(node, f"{section.key('providers')}[{number}]", node.where)
        provider = _provider(inner) if inner is not None else None
        if inner is None or provider is None:
            continue
        if provider.id in found:
            inner.error(
                "id", f'Provider with id "{provider.id}" is already registered', "give each its own id"
            )
            continue
        found[provider.id] = provider
    return found


def _provider(section: Section) -> ProviderConfig | None:
    """One entry; None where it has no id that could stand for it."""
    section.only([*KEYS, "displayName"])
    name = section.text("id", check=_id_problem) if section.need("id", "openai") else None
    models = _models(section)
    kind = section.choice("kind", get_args(ProviderKind))
    if "displayName" in section and "display_name" in section:
        section.error("displayName", "is given twice, in two spellings", "leave one out")
    shown = section.text("displayName" if "displayName" in section else "display_name", most=MAX_ID)
    failover = section.flag("failover") or False
    if failover and kind not in (None, "llm"):
        section.error(
            "failover", f"no provider of kind {kind} can answer in place of another", "leave it out"
        )
    description = section.text("description", most=MAX_DESCRIPTION)
    params, capabilities = read_params(section), _capabilities(section)
    if name is None:
        return None
    return ProviderConfig(
        id=name,
        models=models,
        kind=kind or "llm",  # type: ignore[arg-type]
        capabilities=capabilities,
        display_name=shown or "",
        description=description or "",
        params=params,
        failover=failover,
    )


def _id_problem(text: str) -> str | None:
    if len(text) <= MAX_ID and _ID.fullmatch(text):
        return None
    return f"is not an id; allowed: letters, digits and . _ - after the first, at most {MAX_ID}"


def _models(section: Section) -> tuple[str, ...]:
    if not section.need("models", "[openai.gpt-4o]"):
        return ()
    given = section.texts("models", "[openai.gpt-4o]")
    node = section.table.get("models")
    if not given and (not isinstance(node, Items) or not node.items):
        if isinstance(node, Items) or getattr(node, "value", "") is None:
            section.error("models", "is empty", "name at least one, for example [openai.gpt-4o]")
        return ()
    found: dict[str, None] = {}
    for text, where in given:
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
        return "has an entry that is no name of a model; write it as openai.gpt-4o"
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
        return f"{spec} names no model; write one behind {prefix}."
    near = nearest(prefix, PROVIDERS, cutoff=0.6)
    hint = f"did you mean {near}.{model}" if near else allowed(sorted(PROVIDERS))
    return f"{prefix} is not a provider of fast-agent; {hint}"


def _capabilities(section: Section) -> Mapping[str, bool] | None:
    inner = section.section("capabilities")
    if inner is None:
        return None
    inner.only(list(CAPABILITIES))
    found: dict[str, bool] = {}
    for key, name in CAPABILITIES.items():
        if (value := inner.flag(key)) is not None:
            if name in found:
                inner.error(key, "is given twice, in two spellings", "leave one out")
            found[name] = value
    return found or None
