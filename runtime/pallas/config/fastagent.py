"""The fast-agent configuration and its secrets, as far as Pallas reads them.

Read from the YAML itself: fast-agent's own models drop keys they do not know, ``forward_inbound_auth``
among them (PR-28).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from .agent_entries import CapabilitiesEntry
from .agent_text import leaves
from .agents import declared
from .downstreams import SERVERS_PATH, McpEntry, OpenModel, read_downstreams
from .environment_settings import environment_settings
from .field_types import CHOICE, Loose, Maybe
from .files import is_there, shown
from .models import DownstreamConfig, KeySource, Where
from .notes import Notes, nearest
from .permissions import warn_if_shared
from .section import Section
from .skill_folders import OPTIONAL, missing_skills
from .tree import REFERENCE, Leaf, Table, handed_over, merge, plain, unset_in
from .upstream import PROVIDERS, TOP_KEYS
from .validation import validate
from .yamlfile import read_table

CONFIG_NAMES: Final = ("fast-agent.yaml", "fast-agent.config.yaml", "fastagent.config.yaml")
HOME: Final = ".fast-agent"
"""The folder of a project whose configuration fast-agent takes first, unless FAST_AGENT_HOME is set."""
SECRETS_NAMES: Final = ("fast-agent.secrets.yaml", "fastagent.secrets.yaml")
OPENAI_BASE_URL: Final = "https://api.openai.com/v1"
OUR_KEYS: Final = ("default_model", "model_capabilities", "mcp", "logger")

_MODEL: Final = "default_model"
_ELSEWHERE: Final[Mapping[str, str]] = {
    "mcpServers": "mcp.servers",
    "mcp_servers": "mcp.servers",
    "mcp-servers": "mcp.servers",
    "servers": "mcp.servers",
    "model": "default_model",
}
"""Keys of other programs' files, and where fast-agent has the same."""
# A model name without a provider may hold a dot too (gpt-4.1): what is before it ends in a digit then.
_PROVIDER: Final = re.compile(r"[A-Za-z]+([_-][A-Za-z]+)*")


class LoggerEntry(OpenModel):
    """``logger``."""

    level: Maybe[Annotated[Literal["debug", "info", "warning", "error"], CHOICE]] = None


class FastAgentEntry(OpenModel):
    """The configuration, without what fast-agent alone reads."""

    default_model: Loose | None = None
    model_capabilities: CapabilitiesEntry | None = None
    logger: LoggerEntry | None = None
    mcp: McpEntry | None = None


@dataclass(frozen=True, slots=True)
class FastAgentFiles:
    """What the two files say together; ``unset`` are all variables they refer to that are not set.

    ``handed_over`` is as in ``Project``.

    ``keys`` are those of the providers, by provider. ``unusable_servers`` are entries under ``mcp.servers``
    that no agent can use, each with the reason.
    """

    config_file: Path | None = None
    provider: str = ""
    model: str = ""
    capabilities: Mapping[str, bool | int] | None = None
    downstreams: Mapping[str, DownstreamConfig] = field(default_factory=dict)
    unusable_servers: Mapping[str, str] = field(default_factory=dict)
    log_level: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    handed_over: tuple[str, ...] = field(default=(), repr=False)
    unset: tuple[str, ...] = ()
    keys: Mapping[str, KeySource] = field(default_factory=dict)
    model_where: Where = field(default_factory=lambda: Where(CONFIG_NAMES[-1]))


def read_fast_agent(
    root: Path, environ: Mapping[str, str], notes: Notes, sources: "ConfigurationSources | None" = None
) -> FastAgentFiles:
    """The files merged, secrets over configuration; every mistake is noted.

    Without ``sources`` they are those that fast-agent finds in the project's folder.
    """
    sources = sources or usual_sources(root, environ, notes)
    merged = _merged(root, environ, notes, sources)
    _warn_of_near_files(root, sources, notes)
    config = sources.config
    top = Section(merged, "", merged.where, notes, echo=False)
    _warn_of_misspelt(top)
    _warn_of_skills(root, merged, notes)
    entry = validate(FastAgentEntry, top)
    of_environment = None if entry.default_model else _model_of_environment(merged, environ)
    provider, model = _default_model(entry.default_model or of_environment, top)
    downstreams, unusable = read_downstreams(entry.mcp) if entry.mcp else ({}, {})
    return FastAgentFiles(
        config_file=config,
        provider=provider,
        model=model,
        capabilities=declared(entry.model_capabilities),
        downstreams=downstreams,
        unusable_servers=unusable,
        log_level=entry.logger.level if entry.logger else None,
        settings=_settings(merged, environ, of_environment),
        handed_over=tuple(handed_over(merged, environ)),
        unset=unset_in(merged),
        keys=_keys(merged),
        model_where=top.place("default_model"),
    )


@dataclass(frozen=True, slots=True)
class ConfigurationSources:
    """The two files, each None where there is none; ``others`` are those of agents that read other ones."""

    config: Path | None = None
    secrets: Path | None = None
    others: tuple[Path, ...] = ()


def usual_sources(root: Path, environ: Mapping[str, str], notes: Notes) -> ConfigurationSources:
    """The files that fast-agent finds from the project's folder; two of one kind are noted."""
    folder = _folder(root, environ)
    config = _only_one(root, folder, CONFIG_NAMES, notes)
    return ConfigurationSources(config, _only_one(root, folder, SECRETS_NAMES, notes))


def sources_beside(
    root: Path, config: Path, notes: Notes, others: tuple[Path, ...] = ()
) -> ConfigurationSources:
    """A configuration with the secrets that fast-agent reads with it: those in the same folder."""
    found = _only_one(root, config.parent, SECRETS_NAMES, notes)
    beside = (_only_one(root, each.parent, SECRETS_NAMES, notes) for each in others)
    below = [path for each in zip(others, beside, strict=True) for path in each if path is not None]
    return ConfigurationSources(config, found, tuple(below))


def settings_files(
    root: Path, environ: Mapping[str, str], config: Path | None
) -> tuple[tuple[Path, ...], Table]:
    """The files of the configuration, those that count first, and what they say together, with places."""
    notes = Notes()
    sources = sources_beside(root, config, notes) if config else usual_sources(root, environ, notes)
    return tuple(filter(None, (sources.config, sources.secrets))), _merged(root, environ, notes, sources)


def _merged(root: Path, environ: Mapping[str, str], notes: Notes, sources: ConfigurationSources) -> Table:
    """All files, secrets over configuration, and both over the environment."""
    place = Where(shown(root, sources.config) if sources.config else CONFIG_NAMES[-1])
    merged = replace(environment_settings(environ), where=place)
    for path in (*sources.others, sources.config, sources.secrets):
        if path is not None:
            name = shown(root, path)
            warn_if_shared(path, name, notes)
            table = read_table(path, name, notes, environ, lenient=True, last_wins=True)
            merged = merge(merged, table) if table else merged
    return merged


def _folder(root: Path, environ: Mapping[str, str]) -> Path:
    """Where fast-agent finds its files: the first folder with a configuration, else that with secrets."""
    folders = (root / (environ.get("FAST_AGENT_HOME") or HOME), root)
    for names in (CONFIG_NAMES, SECRETS_NAMES):
        for folder in folders:
            if any(is_there(folder / name) for name in names):
                return folder
    return root


def _only_one(root: Path, folder: Path, names: tuple[str, ...], notes: Notes) -> Path | None:
    """The one of ``names`` that is there; two of them are a mistake, as they are for fast-agent."""
    found = [folder / name for name in names if is_there(folder / name)]
    if len(found) > 1:
        texts = [shown(root, each) for each in found]
        notes.error(Where(texts[0]), "", f"is one of {len(found)}: {' and '.join(texts)}", "keep one of them")
    return found[0] if found else None


def _warn_of_near_files(root: Path, sources: ConfigurationSources, notes: Notes) -> None:
    """Warn of files that are named nearly like the two, where fast-agent finds none."""
    for path, names in ((sources.config, CONFIG_NAMES), (sources.secrets, SECRETS_NAMES)):
        if path is not None:
            continue
        for file in sorted(root.glob("fast*agent*.y*ml")):
            meant = nearest(file.name, names, cutoff=0.9)
            if meant is not None and file.name not in (*CONFIG_NAMES, *SECRETS_NAMES):
                notes.warn(
                    Where(file.name), "", "is not read: fast-agent knows no such name", f"name it {meant}"
                )


def _warn_of_misspelt(top: Section) -> None:
    for key in top.table.entries:
        if key in _ELSEWHERE:
            top.warn(key, "unknown key, which has no effect", f"fast-agent reads {_ELSEWHERE[key]}")
            continue
        meant = nearest(key, TOP_KEYS, cutoff=0.66)
        if key not in TOP_KEYS and meant in OUR_KEYS:
            top.warn(key, "unknown key", f"did you mean {meant}")


def _warn_of_skills(root: Path, merged: Table, notes: Notes) -> None:
    """Warn of folders under ``skills.directories`` from which no agent would get a skill."""
    skills = merged.get("skills")
    for name in leaves(skills.get("directories")) if isinstance(skills, Table) else ():
        if name.text not in OPTIONAL and (words := missing_skills(root, name.text)):
            notes.warn(name.where, "skills.directories", *words)


def _model_of_environment(merged: Table, environ: Mapping[str, str]) -> str | None:
    """The default model where the files name none, as fast-agent finds it."""
    fields = {key.casefold(): value for key, value in environ.items()} if merged.get(_MODEL) is None else {}
    return fields.get(_MODEL, "").strip() or environ.get("FAST_AGENT_MODEL", "").strip() or None


def _default_model(text: str | None, top: Section) -> tuple[str, str]:
    """Provider and model, split at the first dot (PR-12), without the ``?`` settings after the model."""
    spec = (_referred(text, top) if text else "").partition("?")[0].strip()
    slash, _, rest = spec.partition("/")
    if rest and slash in PROVIDERS:
        return slash, rest
    provider, _, model = spec.partition(".")
    if not model or not _PROVIDER.fullmatch(provider):
        return "", spec  # fast-agent knows the provider of some names
    return provider, model


def _referred(text: str, top: Section) -> str:
    """``$group.name`` looked up under ``model_references``; any other text as it is."""
    references = top.table.get("model_references")
    found = resolve_reference(text, plain(references) if references is not None else None)
    if not found.startswith("$"):
        return found
    top.error(
        "default_model", f"there is no {found[1:]} under model_references", "add it there, or name a model"
    )
    return ""


def resolve_reference(text: str, references: Any) -> str:
    """``$group.name`` looked up in ``model_references``, also through other references.

    Any other text is returned as it is, and so is a reference that leads nowhere or in a circle.
    """
    seen: set[str] = set()
    while text.startswith("$") and text not in seen:
        seen.add(text)
        group, _, name = text[1:].partition(".")
        inner = references.get(group) if isinstance(references, Mapping) else None
        found = inner.get(name) if isinstance(inner, Mapping) else None
        if not isinstance(found, str) or not found.strip():
            break
        text = found.strip()
    return text


def _keys(merged: Table) -> dict[str, KeySource]:
    """The ``api_key`` of each provider that has one."""
    found: dict[str, KeySource] = {}
    for name in sorted(PROVIDERS):
        block = merged.get(name)
        leaf = block.get("api_key") if isinstance(block, Table) else None
        if isinstance(leaf, Leaf) and (leaf.value or leaf.unset):
            named = [each.partition(":")[0] for each in REFERENCE.findall(leaf.raw)] if leaf.expanded else ()
            found[name] = KeySource(leaf.where, ", ".join(leaf.unset or named), is_set=not leaf.unset)
    return found


def _settings(merged: Table, environ: Mapping[str, str], model: str | None) -> Mapping[str, Any]:
    settings: dict[str, Any] = plain(merged)
    if model is not None:
        settings["default_model"] = model
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
