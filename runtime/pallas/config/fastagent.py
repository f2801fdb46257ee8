"""The fast-agent configuration and its secrets, as far as Pallas reads them.

Read from the YAML itself: fast-agent's own models drop keys they do not know, ``forward_inbound_auth``
among them (PR-28).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from .agent_entries import CapabilitiesEntry
from .agents import declared
from .downstreams import SERVERS_PATH, McpEntry, OpenModel, read_downstreams
from .field_types import CHOICE, Line, Maybe
from .files import is_there, shown
from .models import DownstreamConfig, Where
from .notes import Notes, nearest
from .permissions import warn_if_shared
from .section import Section
from .tree import Leaf, Table, merge, plain, unset_in
from .upstream import PROVIDERS, TOP_KEYS
from .validation import validate
from .yamlfile import read_table

CONFIG_NAMES: Final = ("fast-agent.yaml", "fast-agent.config.yaml", "fastagent.config.yaml")
HOME: Final = ".fast-agent"
"""The folder of a project whose configuration fast-agent takes first, unless FAST_AGENT_HOME is set."""
SECRETS_NAMES: Final = ("fast-agent.secrets.yaml", "fastagent.secrets.yaml")
OPENAI_BASE_URL: Final = "https://api.openai.com/v1"
_OWN_MODELS: Final = frozenset({"passthrough", "playback", "slow", "silent"})
"""Models of fast-agent's own, for tests."""
OUR_KEYS: Final = ("default_model", "model_capabilities", "mcp", "logger")

# A model name without a provider may hold a dot too (gpt-4.1): what is before it ends in a digit then.
_PROVIDER: Final = re.compile(r"[A-Za-z]+([_-][A-Za-z]+)*")


class LoggerEntry(OpenModel):
    """``logger``."""

    level: Maybe[Annotated[Literal["debug", "info", "warning", "error"], CHOICE]] = None


class FastAgentEntry(OpenModel):
    """The configuration, without what fast-agent alone reads."""

    default_model: Maybe[Line] = None
    model_capabilities: CapabilitiesEntry | None = None
    logger: LoggerEntry | None = None
    mcp: McpEntry | None = None


@dataclass(frozen=True, slots=True)
class FastAgentFiles:
    """What the two files say together; ``unset`` are all variables they refer to that are not set.

    ``unset_keys`` are, by provider, those that its ``api_key`` refers to. ``unusable_servers`` are entries
    under ``mcp.servers`` that no agent can use, each with the reason.
    """

    config_file: Path | None = None
    provider: str = ""
    model: str = ""
    capabilities: Mapping[str, bool | int] | None = None
    downstreams: Mapping[str, DownstreamConfig] = field(default_factory=dict)
    unusable_servers: Mapping[str, str] = field(default_factory=dict)
    log_level: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    unset: tuple[str, ...] = ()
    unset_keys: Mapping[str, str] = field(default_factory=dict)
    model_where: Where = field(default_factory=lambda: Where(CONFIG_NAMES[-1]))


def read_fast_agent(root: Path, environ: Mapping[str, str], notes: Notes) -> FastAgentFiles:
    """Both files merged, secrets over configuration; every mistake is noted."""
    folder = _folder(root, environ)
    config = _only_one(root, folder, CONFIG_NAMES, notes)
    secrets = _only_one(root, folder, SECRETS_NAMES, notes)
    merged = Table({}, Where(config or CONFIG_NAMES[-1]))
    for name in (config, secrets):
        if name:
            warn_if_shared(root / name, name, notes)
            table = read_table(root / name, name, notes, environ, lenient=True, last_wins=True)
            merged = merge(merged, table) if table else merged
    top = Section(merged, "", merged.where, notes, echo=False)
    _warn_of_misspelt(top)
    entry = validate(FastAgentEntry, top)
    provider, model = _default_model(entry.default_model, top)
    downstreams, unusable = read_downstreams(entry.mcp) if entry.mcp else ({}, {})
    unset_keys = _unset_keys(merged)
    _warn_of_missing_key(merged, provider, unset_keys.get(provider, ""), notes)
    return FastAgentFiles(
        config_file=root / config if config else None,
        provider=provider,
        model=model,
        capabilities=declared(entry.model_capabilities),
        downstreams=downstreams,
        unusable_servers=unusable,
        log_level=entry.logger.level if entry.logger else None,
        settings=_settings(merged, environ),
        unset=unset_in(merged),
        unset_keys=unset_keys,
        model_where=top.place("default_model"),
    )


def _folder(root: Path, environ: Mapping[str, str]) -> Path:
    """Where fast-agent finds its files: the first folder with a configuration, else that with secrets."""
    folders = (root / (environ.get("FAST_AGENT_HOME") or HOME), root)
    for names in (CONFIG_NAMES, SECRETS_NAMES):
        for folder in folders:
            if any(is_there(folder / name) for name in names):
                return folder
    return root


def _only_one(root: Path, folder: Path, names: tuple[str, ...], notes: Notes) -> str | None:
    """The one of ``names`` that is there; two of them are a mistake, as they are for fast-agent."""
    found = [shown(root, folder / name) for name in names if is_there(folder / name)]
    if len(found) > 1:
        notes.error(Where(found[0]), "", f"is one of {len(found)}: {' and '.join(found)}", "keep one of them")
    return found[0] if found else None


def _warn_of_misspelt(top: Section) -> None:
    for key in top.table.entries:
        meant = nearest(key, TOP_KEYS, cutoff=0.66)
        if key not in TOP_KEYS and meant in OUR_KEYS:
            top.warn(key, "unknown key", f"did you mean {meant}")


def _default_model(text: str | None, top: Section) -> tuple[str, str]:
    """Provider and model, split at the first dot (PR-12), without the ``?`` settings after the model."""
    spec = (_referred(text, top) if text else "").partition("?")[0].strip()
    slash, _, rest = spec.partition("/")
    if rest and slash in PROVIDERS:
        return slash, rest
    provider, _, model = spec.partition(".")
    if not model or not _PROVIDER.fullmatch(provider):
        _warn_of_no_provider(spec, top)
        return "", spec
    if provider not in PROVIDERS and (meant := nearest(provider, PROVIDERS, cutoff=0.75)):
        top.warn(
            "default_model", f"{provider} is not a provider of fast-agent", f"did you mean {meant}.{model}"
        )
    return provider, model


def _warn_of_no_provider(spec: str, top: Section) -> None:
    if spec and "$" not in spec and spec not in _OWN_MODELS:
        top.warn(
            "default_model",
            f"{spec} has no provider before it; fast-agent finds one for the names that it knows alone",
            f"write PROVIDER.MODEL, for example generic.{spec}",
        )


def _referred(text: str, top: Section) -> str:
    """``$group.name`` looked up under ``model_references``; any other text as it is."""
    if not text.startswith("$"):
        return text
    group, _, name = text[1:].partition(".")
    references = top.table.get("model_references")
    inner = references.get(group) if isinstance(references, Table) else None
    leaf = inner.get(name) if isinstance(inner, Table) else None
    if isinstance(leaf, Leaf) and isinstance(leaf.value, str):
        return leaf.value
    top.error(
        "default_model", f"there is no {text[1:]} under model_references", "add it there, or name a model"
    )
    return ""


def _unset_keys(merged: Table) -> dict[str, str]:
    """By provider, the variables that its key refers to and that are not set."""
    keys = {
        name: entry.node.unset
        for name in sorted(PROVIDERS)
        if isinstance(block := merged.get(name), Table)
        and (entry := block.entries.get("api_key"))
        and isinstance(entry.node, Leaf)
    }
    return {name: ", ".join(unset) for name, unset in keys.items() if unset}


def _warn_of_missing_key(merged: Table, provider: str, names: str, notes: Notes) -> None:
    """The provider that answers has a key that refers to nothing: better said before the first call."""
    block = merged.get(provider)
    if names and isinstance(block, Table):
        notes.warn(
            block.entries["api_key"].node.where,
            f"{provider}.api_key",
            f"{names} is not set, and default_model uses {provider}",
            f"set {names} in the environment or in .env",
        )


def _settings(merged: Table, environ: Mapping[str, str]) -> Mapping[str, Any]:
    settings: dict[str, Any] = plain(merged)
    openai = settings.get("openai") or {}
    if isinstance(openai, dict):
        base_url = openai.get("base_url") or environ.get("OPENAI_BASE_URL") or OPENAI_BASE_URL
        settings["openai"] = {**openai, "base_url": base_url}
    servers: Any = settings
    for key in SERVERS_PATH:
        servers = servers.get(key) if isinstance(servers, dict) else None
    for server in servers.values() if isinstance(servers, dict) else ():
        # fast-agent refuses a token that is there and empty.
        if isinstance(server, dict) and server.get("access_token") == "":
            del server["access_token"]
    return settings
