"""The entries under ``agents:``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from pallas.model import AgentKind

from .files import file_like, is_file, is_folder, module_problem
from .icons import read_icons
from .models import AgentConfig, Capabilities, InstanceScope, Isolation, Need, RestartConfig
from .notes import suggest
from .params import read_params
from .ports import Ports
from .read_auth import AgentAuth, read_agent_auth
from .read_kinds import (
    COMMON_KEYS,
    KEYS_OF,
    Members,
    read_capability_words,
    read_environment,
    read_examples,
    read_handler,
    read_kind,
    read_remote,
    read_router,
    read_worker,
)
from .read_providers import read_providers
from .read_typed import Named, check_module, read_peers
from .section import Section
from .supervision import RESTART, read_needs, read_restart
from .where import Where

AGENT_KEYS: Final = tuple(dict.fromkeys((*COMMON_KEYS, *(key for keys in KEYS_OF.values() for key in keys))))
CAPABILITY_KEYS: Final = ("vision", "context_window", "max_output_tokens")
# `shared` and `connection` are the names older projects use (SPEC C12).
SCOPES: Final[Mapping[str, InstanceScope]] = {
    "pooled": "pooled",
    "conversation": "conversation",
    "request": "request",
    "shared": "pooled",
    "connection": "conversation",
}
RESTARTS: Final[Mapping[AgentKind, RestartConfig]] = {
    # Five restarts in a minute, and the failure after those is a crash loop (DR-29).
    "worker": RestartConfig(backoff=0.5, backoff_max=10.0, crashes=6, within=60.0),
    # Whoever runs it elsewhere brings it back without telling: it is tried again for ever.
    "remote": RestartConfig(backoff=1.0, backoff_max=30.0, crashes=1_000, within=60.0),
}
"""What becomes of an agent that fails where ``restart:`` does not say it, by kind."""
MAX_NAME: Final = 100
MAX_TEXT: Final = 100
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


def read_agent(section: Section, name: str, root: Path, ports: Ports, *, port_needed: bool = True) -> Draft:
    """One entry under ``agents:``. Its port is claimed in ``ports``; it may have none unless needed."""
    kind = read_kind(section)
    if problem := name_problem(name):
        section.notes.error(section.where, section.path, problem, name_hint(name))
    module, card = _code(section, root) if kind == "llm" else (None, None)
    providers, default_provider = read_providers(section) if kind == "llm" else ((), "")
    router, members = read_router(section) if kind == "router" else (None, ())
    there = "port" in section or (port_needed and section.need("port", "24201"))
    port = section.integer("port", 1, 65_535) if there else None
    if port is not None:
        ports.claim(port, f"agent {name}", section.place("port"), section.key("port"))
    title = section.text("title", most=MAX_TEXT) or name.title()[:MAX_TEXT]
    needs = read_needs(section)
    peers = read_peers(section) if kind in ("llm", "handler") else ()
    # A router takes runs while one of those it chooses among does not: it only follows them.
    implied = tuple(Need(member, "started") for member, _, _ in members)
    wanted = (*reversed(implied), *(need for need, _ in reversed(needs)))
    capabilities = section.section("model_capabilities")
    scope = section.choice("instance_scope", tuple(SCOPES))
    return Draft(
        AgentConfig(
            name=name,
            port=port or 0,
            title=title,
            description=section.text("description", most=MAX_TEXT) or title,
            module=module,
            card=card,
            needs=tuple({need.name: need for need in wanted}.values())[::-1],
            icons=read_icons(section),
            instance_scope=SCOPES[scope or "pooled"],
            max_instances=_or(section.integer("max_instances", 1, 64), 8),
            max_iterations=_or(section.integer("max_iterations", 1), 12),
            loop_repeat_threshold=_or(_repeats(section), 3),
            run_timeout=_or(section.integer("run_timeout", 1, 86_400), 1800),
            start_timeout=_seconds(section, "start_timeout", 60.0),
            restart=read_restart(section, RESTARTS.get(kind or "llm", RESTART)),
            params=read_params(section),
            isolation="process" if section.choice("isolation", get_args(Isolation)) == "process" else "none",
            env=read_environment(section, name) if kind in (None, "llm") else {},
            kind=kind or "llm",
            capabilities=read_capability_words(section),
            examples=read_examples(section),
            worker=read_worker(section, name, root) if kind == "worker" else None,
            remote=read_remote(section, name) if kind == "remote" else None,
            handler=read_handler(section, root, name) if kind == "handler" else None,
            router=router,
            providers=providers,
            default_provider=default_provider,
            peers=tuple(peer for peer, _ in peers),
            where=section.where,
        ),
        tuple((need.name, where) for need, where in needs),
        read_capabilities(capabilities) if capabilities else None,
        read_agent_auth(section),
        members,
        peers,
        section.path,
        _required(section) if kind == "llm" else (),
    )


def _required(section: Section) -> Named:
    """The names under ``servers`` that say ``required: true``, with their places."""
    found = []
    for name, server in section.sections("servers"):
        server.only(("required",))
        if server.flag("required"):
            found.append((name, server.where))
    return tuple(found)


def _seconds(section: Section, key: str, default: float) -> float:
    value = section.number(key, 0.1, 3_600)
    return default if value is None else value


def _repeats(section: Section) -> int | None:
    """How often a call may repeat; one that may not be made once would stop every loop at its first call."""
    given = section.integer("loop_repeat_threshold", 0)
    if given == 1:
        section.error(
            "loop_repeat_threshold", "1 would stop at the first call", "allowed: 0 (off), or 2 or more"
        )
    return given


def read_capabilities(section: Section) -> dict[str, bool | int]:
    """The keys of a ``model_capabilities`` mapping that are given and right (PR-13)."""
    section.only(CAPABILITY_KEYS)
    given = {
        "vision": section.flag("vision"),
        "context_window": section.integer("context_window", 1),
        "max_output_tokens": section.integer("max_output_tokens", 1),
    }
    return {key: value for key, value in given.items() if value is not None}


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
    """What is wrong with a name for an agent (C20)."""
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


def _code(section: Section, root: Path) -> tuple[str | None, Path | None]:
    """The module or the card, checked to be there."""
    if "module" in section and "card" in section:
        section.error("card", "module and card are both given", "allowed: exactly one of them")
    elif "module" not in section and "card" not in section:
        section.error(
            "module", "is missing", "required: module, for example `module: agents.jarvis`, or card"
        )
    module = section.text("module", check=module_problem)
    if module:
        check_module(section, "module", root, module)
    card = read_file_name(section, "card", root)
    return module, card


def read_file_name(section: Section, key: str, root: Path) -> Path | None:
    """The file that ``key`` names, relative to the project, as an absolute path; noted when not there."""
    text = section.text(key)
    if text is None:
        return None
    path = root / text
    if is_folder(path):
        section.error(key, f"{text} is a folder", "name a file in it")
    elif not is_file(path):
        section.error(
            key,
            f"there is no file {text}",
            "paths start at the project's folder",
            suggest(file_like(root, path)),
        )
    return path


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
