"""The entries under ``agents:``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from .agent_entries import (
    MAX_TEXT,
    AgentEntry,
    CapabilitiesEntry,
    HandlerEntry,
    IconEntry,
    LlmEntry,
    UnknownEntry,
    note_foreign_keys,
)
from .agent_kinds import (
    Members,
    capability_words,
    environment_of,
    examples_of,
    restart_without_words,
    with_own_values,
)
from .auth_section import AgentAuth, agent_auth
from .cards import SUFFIXES, card_files
from .files import file_like, folder_like, is_file, is_folder, project_file
from .limits_section import limits_of
from .models import AgentConfig, Capabilities, Icon, InstanceScope, Need
from .params import read_params
from .ports import Ports
from .providers import providers_of
from .supervision import needs_of, restart_of, unfinished_of
from .textfile import text_problem
from .tool_section import tool_rules_of
from .typed_handlers import Named, check_module, once_each
from .where import Where

# `shared` and `connection` are the names older projects use.
SCOPES: Final[Mapping[str, InstanceScope]] = {
    "pooled": "pooled",
    "conversation": "conversation",
    "request": "request",
    "shared": "pooled",
    "connection": "conversation",
}
MAX_NAME: Final = 100
_SIZE: Final = re.compile(r"\d+x\d+|any", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Draft:
    """An agent as it was read; where something was wrong, a stand-in fills its place (port 0).

    ``needs`` are the names under ``depends_on`` with their places, ``own`` its keys under
    ``model_capabilities``, ``auth`` its own ``auth:`` alone. ``members`` are the agents that a router names,
    ``peers`` those that it may send to, ``required`` the MCP servers that it cannot do without. ``path`` is
    its key in the file.
    """

    config: AgentConfig
    needs: tuple[tuple[str, Where], ...]
    own: Mapping[str, bool | int] | None
    auth: AgentAuth | None = None
    members: Members = ()
    peers: Named = ()
    path: str = ""
    required: Named = ()

    @property
    def group(self) -> str | None:
        """The name that it shares as a target, None for one that shares none."""
        typed = self.config.typed
        return typed.group or None if typed is not None else None

    @property
    def payload(self) -> str:
        """``module:Class`` of what a typed handler takes, empty for others."""
        typed = self.config.typed
        return typed.payload if typed is not None else ""


def draft_of(entry: AgentEntry, name: str, root: Path, ports: Ports, *, port_needed: bool = True) -> Draft:
    """One entry under ``agents:``. Its port is claimed in ``ports``; it may have none unless needed."""
    section = entry.at
    if problem := name_problem(name):
        section.notes.error(section.where, section.path, problem, name_hint(name))
    module, card = (None, None)
    if isinstance(entry, LlmEntry) and not isinstance(entry, UnknownEntry):
        module, card = _code(entry, root)
    if port_needed:
        section.need("port", "24201")
    if entry.port is not None:
        ports.claim(entry.port, f"agent {name}", section.place("port"), section.key("port"))
    title = entry.title or name.title()[:MAX_TEXT]
    kind = "llm" if isinstance(entry, UnknownEntry) else entry.kind
    needs = needs_of(section, entry.depends_on)
    peers = once_each(entry.listed("peers")) if isinstance(entry, LlmEntry | HandlerEntry) else ()
    config = AgentConfig(
        name=name,
        port=entry.port or 0,
        module=module,
        card=card,
        agent=(entry.agent or "") if isinstance(entry, LlmEntry) else "",
        title=title,
        description=entry.description or title,
        icons=icons_of(entry),
        run_timeout=entry.run_timeout,
        start_timeout=entry.start_timeout,
        restart=restart_of(entry.restart, restart_without_words(kind)),
        unfinished_calls=unfinished_of(entry.unfinished_calls),
        tools=tool_rules_of(entry.tools, name),
        params=read_params(section),
        kind=kind,
        capabilities=capability_words(entry),
        examples=examples_of(entry),
        isolation=entry.isolation if isinstance(entry, LlmEntry | HandlerEntry) else "none",
        peers=tuple(peer for peer, _ in peers),
        limits=limits_of(entry.limits),
        where=section.where,
    )
    config, members = with_own_values(config, entry, root)
    # A router takes runs while one of those it chooses among does not: it only follows them.
    implied = tuple(Need(member, "started") for member, _, _ in members)
    wanted = (*reversed(implied), *(need for need, _ in reversed(needs)))
    config = replace(config, needs=tuple({need.name: need for need in wanted}.values())[::-1])
    return Draft(
        _with_model(entry, config) if isinstance(entry, LlmEntry) else config,
        tuple((need.name, where) for need, where in needs),
        declared(entry.model_capabilities) if isinstance(entry, LlmEntry) else None,
        agent_auth(entry.auth, section),
        members,
        peers,
        section.path,
        _required(entry) if isinstance(entry, LlmEntry) else (),
    )


def _with_model(entry: LlmEntry, config: AgentConfig) -> AgentConfig:
    """``config`` with what an agent of fast-agent's has in addition to what all have."""
    section = entry.at
    if isinstance(entry, UnknownEntry):
        note_foreign_keys(entry)
    providers, default_provider = providers_of(section, entry.providers, entry.default_provider)
    if entry.loop_repeat_threshold == 1:
        section.error(
            "loop_repeat_threshold", "1 would stop at the first call", "allowed: 0 (off), or 2 or more"
        )
    isolated = entry.isolation == "process"
    return replace(
        config,
        instance_scope=SCOPES[entry.instance_scope],
        max_instances=entry.max_instances,
        max_iterations=entry.max_iterations,
        loop_repeat_threshold=entry.loop_repeat_threshold,
        env=environment_of(section, config.name, entry.env, isolated=isolated),
        providers=providers,
        default_provider=default_provider,
    )


def icons_of(entry: AgentEntry) -> tuple[Icon, ...]:
    """The icons of an agent; ``sizes`` is ``any`` when left out (PI-3)."""
    given = entry.icons if isinstance(entry.icons, tuple) else (entry.icons,)
    found = (Icon(each) if isinstance(each, str) else _icon(each) for each in given)
    return tuple(icon for icon in found if icon.src)


def _icon(entry: IconEntry) -> Icon:
    sizes = tuple(entry.sizes.split()) if isinstance(entry.sizes, str) else entry.sizes
    for size in sizes:
        if not _SIZE.fullmatch(size):
            entry.at.error("sizes", f"{size} is not a size", "allowed: any, or WIDTHxHEIGHT such as 48x48")
    return Icon(entry.src or "", sizes or ("any",))


def _required(entry: LlmEntry) -> Named:
    """The names under ``servers`` that say ``required: true``, with their places."""
    servers = entry.servers or {}
    return tuple((name, server.at.where) for name, server in servers.items() if server.required)


def declared(entry: CapabilitiesEntry | None) -> dict[str, bool | int] | None:
    """The keys of ``model_capabilities`` that are given and right (PR-13)."""
    return None if entry is None else entry.model_dump(exclude_none=True)


def capabilities_of(*layers: Mapping[str, bool | int] | None) -> Capabilities | None:
    """The layers laid over one another, later ones on top; None when no layer is configured."""
    given = [layer for layer in layers if layer is not None]
    if not given:
        return None
    merged = {key: value for layer in given for key, value in layer.items()}
    default = Capabilities()
    return Capabilities(
        vision=bool(merged.get("vision", default.vision)),
        context_window=merged.get("context_window", default.context_window),
        max_output_tokens=merged.get("max_output_tokens", default.max_output_tokens),
        output_declared="max_output_tokens" in merged,
    )


def name_problem(name: str) -> str | None:
    """What is wrong with a name for an agent."""
    if len(name) > MAX_NAME:
        return f"the name has {len(name)} characters"
    if not _NAME.fullmatch(name):
        return "is not a name for an agent"
    if name == "system" or name.startswith(("agent-", "system.")):
        return "this name is reserved"
    return None


def name_hint(name: str) -> str:
    """Which names there may be, and one of these that is close."""
    rule = f"allowed: a-z, 0-9 and . _ - after the first, at most {MAX_NAME}, not agent-*, system or system.*"
    better = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")
    fits = better != name and len(better) <= MAX_NAME and bool(better) and name_problem(better) is None
    return f"{rule}; did you mean {better}" if fits else rule


def _code(entry: LlmEntry, root: Path) -> tuple[str | None, Path | None]:
    """The module or the card, checked to be there."""
    section = entry.at
    if "module" in section and "card" in section:
        section.error("card", "module and card are both given", "allowed: exactly one of them")
    elif "module" not in section and "card" not in section:
        section.error(
            "module", "is missing", "required: module, for example `module: agents.jarvis`, or card"
        )
    if entry.module:
        check_module(section, "module", root, entry.module)
    card = root / entry.card if entry.card else None
    if card is None or not is_folder(card):
        like = file_like if card is not None and card.suffix else folder_like
        card = project_file(section, "card", root, entry.card, like)
        if card is not None and is_file(card) and card.suffix.casefold() not in SUFFIXES:
            if "module" not in section:
                ends = f"its name must end in {', '.join(SUFFIXES)}"
                hint = "write module: for Python" if card.suffix == ".py" else ends
                section.error("card", f"{entry.card} is not a card", hint)
        elif card is not None and is_file(card) and (problem := text_problem(card)):
            section.error(
                "card", f"{entry.card} {problem}", "a card is a text in Markdown or YAML, saved as UTF-8"
            )
    elif not card_files(card):
        section.error(
            "card", f"there is no card in the folder {entry.card}", "name a card, or a folder of cards"
        )
    return entry.module, card
