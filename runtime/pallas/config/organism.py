"""``organism.yaml``: a project of handlers as xml-pipeline writes it down, understood as far as it goes.

What is not used is said, with why: never silently (SPEC 10).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from .agents import Draft, read_file_name
from .kinds import LlmRouting, PumpLimits
from .listeners import read_listeners
from .models import TlsConfig
from .notes import Notes
from .read_llm import MAX_TOKENS, read_backends, read_routing
from .read_messages import MAX_AT_ONCE
from .section import Section
from .tree import Entry, Items, Leaf, Node, Table
from .where import Where

ORGANISM_FILE: Final = "organism.yaml"
DEFAULT_PORT: Final = 8_765
LIMITS: Final[Mapping[str, str]] = {
    "max_concurrent_pipelines": "pipelines",
    "max_concurrent_handlers": "handlers",
    "max_concurrent_per_agent": "per_agent",
}
"""What may be at once, as these files call it, and as ``messages:`` does."""
ORGANISM_KEYS: Final = (
    "name", "version", "description", "port", "identity", "tls", "max_tokens_per_thread", "thread_scheduling",
    *LIMITS,
)  # fmt: skip
TOP_KEYS: Final = (
    "organism", "listeners", "llm", "llm_backends", "thread_scheduling", "backend", "process_pool", "oob",
    "meta", "gateways", "identity", "tls", "server", "auth", *LIMITS,
)  # fmt: skip
SCHEDULING: Final = ("breadth-first", "depth-first")
BACKENDS: Final = ("memory", "manager", "redis")
NOT_USED: Final[Mapping[str, str]] = {
    "process_pool": "each listener with `cpu_bound: true` has a process of its own",
    "oob": "a fleet is controlled over its API, as docs/attach.md says",
    "meta": "who may see what is said by rbac: in agents.yaml",
    "gateways": "agents of another fleet are `kind: remote` in agents.yaml",
    "server": "the fleet serves at its port: MCP, the registry and the API",
    "identity": "messages within a fleet are not signed; who calls it is asked by auth: in agents.yaml",
}
"""Keys that change nothing here, each with why."""
_MAX_NAME: Final = 100


@dataclass(frozen=True, slots=True)
class Organism:
    """What the file says. ``own`` are ``name``, ``version`` and ``port`` as ``agents.yaml`` has them.

    ``llm`` and ``limits`` are None where it says nothing of them; ``tokens`` is ``max_tokens_per_thread``.
    ``places`` are those of keys at its top and of ``organism:``, by the name in a note. ``gateways`` are the
    names of its ``gateways:``, which listeners may have among their peers.
    """

    file: str
    agents: Mapping[str, Draft]
    own: Mapping[str, Entry]
    llm: LlmRouting | None = None
    limits: PumpLimits | None = None
    tokens: int | None = None
    tls: TlsConfig | None = None
    places: Mapping[str, Where] | None = None
    gateways: frozenset[str] = frozenset()

    @property
    def table(self) -> Table:
        """The top of an ``agents.yaml`` that says the same, without its agents."""
        return Table(self.own, Where(self.file))

    def where(self, key: str) -> Where:
        """Where ``key`` stands, the file itself where it does not."""
        return (self.places or {}).get(key, Where(self.file))


def is_organism(table: Table) -> bool:
    """Whether a file holds an organism and not ``agents.yaml``'s keys."""
    return "organism" in table.entries and "agents" not in table.entries


def read_organism(
    table: Table, file: str, root: Path, notes: Notes, variables: Mapping[str, str]
) -> Organism:
    """All of the file; every mistake is noted, and what is not used is warned of."""
    top = Section(table, "", Where(file), notes)
    top.only(TOP_KEYS)
    inner = top.section("organism") if top.need("organism", "{name: hello-world}") else None
    own: dict[str, Entry] = {}
    if inner is not None:
        inner.only(ORGANISM_KEYS)
        own = _own(inner)
    else:
        own = {"name": _entry("organism", Where(file)), "port": _entry(DEFAULT_PORT, Where(file))}
    sections = [top, *([inner] if inner is not None else [])]
    for section in sections:
        _look_at_unused(section)
    _look_at_auth(top)
    tokens = inner.integer("max_tokens_per_thread", 0, MAX_TOKENS) if inner is not None else None
    return Organism(
        file=file,
        agents=read_listeners(top, root),
        own=own,
        llm=_llm(top, variables, tokens),
        limits=_limits(sections),
        tokens=tokens,
        tls=next((tls for section in sections if (tls := _tls(section, root)) is not None), None),
        places={
            section.key(key): entry.where
            for section in sections
            for key, entry in section.table.entries.items()
        },
        gateways=_gateways(top),
    )


def _gateways(top: Section) -> frozenset[str]:
    """The names of its gateways; nothing else of them is read."""
    node = top.table.get("gateways")
    tables = [item for item in node.items if isinstance(item, Table)] if isinstance(node, Items) else []
    names = [table.get("name") for table in tables]
    return frozenset(str(name.value) for name in names if isinstance(name, Leaf) and name.value)


def _own(inner: Section) -> dict[str, Entry]:
    """What ``agents.yaml`` would say of the project."""
    name = inner.text("name", most=_MAX_NAME) if inner.need("name", "hello-world") else None
    found = {"name": _entry(name or "organism", inner.place("name"))}
    if "version" in inner:
        found["version"] = inner.table.entries["version"]
    port = inner.integer("port", 1, 65_535)
    found["port"] = _entry(port or DEFAULT_PORT, inner.place("port"))
    return found


def _entry(value: str | int, where: Where) -> Entry:
    return Entry(where, Leaf(value, str(value), where))


def _look_at_unused(section: Section) -> None:
    for key, why in NOT_USED.items():
        if key in section and not _is_off(section.table.get(key)):
            section.warn(key, "is not used", why)
    if section.choice("thread_scheduling", SCHEDULING) == "depth-first":
        section.warn(
            "thread_scheduling",
            "depth-first is not used",
            "messages are taken in the order in which they come",
        )
    backend = section.section("backend")
    if backend is not None and backend.choice("type", BACKENDS) in ("manager", "redis"):
        backend.warn(
            "type",
            "is not used",
            "what is under way is in the fleet's memory; database_url: of agents.yaml says where threads are",
        )


def _is_off(node: Node | None) -> bool:
    """Nothing, an empty list, or a mapping with ``enabled: false``."""
    match node:
        case Leaf(value):
            return value is None or value == "" or value is False
        case Items(items):
            return not items
        case Table():
            switch = node.get("enabled")
            return not node.entries or (isinstance(switch, Leaf) and switch.value is False)
    return True


def _look_at_auth(top: Section) -> None:
    """Who reads ``enabled: true`` and starts would believe that callers are asked who they are."""
    if "auth" in top and not _is_off(top.table.get("auth")):
        top.error(
            "auth",
            "is not understood here, and so nobody would be asked who they are",
            "write auth: in agents.yaml beside this file (docs/auth.md), and leave it out here",
        )


def _limits(sections: list[Section]) -> PumpLimits | None:
    found: dict[str, int] = {}
    for section in sections:
        for key, name in LIMITS.items():
            value = section.integer(key, 1, MAX_AT_ONCE)
            if value is not None:
                found[name] = value
    return replace(PumpLimits(), **found) if found else None


def _tls(section: Section, root: Path) -> TlsConfig | None:
    inner = section.section("tls")
    if inner is None or _is_off(section.table.get("tls")):
        return None
    inner.only(("cert", "key", "enabled"))
    cert = read_file_name(inner, "cert", root) if inner.need("cert", "certs/server.pem") else None
    key = read_file_name(inner, "key", root)
    return TlsConfig(cert, key or cert) if cert is not None else None


def _llm(top: Section, variables: Mapping[str, str], tokens: int | None) -> LlmRouting | None:
    inner = top.section("llm")
    listed = top.table.get("llm_backends")
    if listed is not None and "llm" in top:
        top.error("llm_backends", "is given beside llm", "write all of them under llm.backends")
    found = read_routing(inner, variables) if inner is not None else None
    if found is None and listed is not None:
        older = Section(
            Table({"llm_backends": Entry(top.place("llm_backends"), _older(listed))}, top.where),
            top.path,
            top.where,
            top.notes,
        )
        found = LlmRouting(backends=read_backends(older, "llm_backends", variables))
    if tokens is None:
        return found
    return replace(found or LlmRouting(), max_tokens_per_thread=tokens)


def _older(node: Node) -> Node:
    """``llm_backends`` as ``llm.backends``: ``name`` is the id there, ``model`` the one that is supported."""
    if not isinstance(node, Items):
        return node
    return Items(tuple(_older_backend(item) for item in node.items), node.where)


def _older_backend(node: Node) -> Node:
    if not isinstance(node, Table):
        return node
    entries: dict[str, Entry] = {}
    for key, entry in node.entries.items():
        if key == "model":
            empty = isinstance(entry.node, Leaf) and entry.node.value in (None, "")
            listed = Items(() if empty else (entry.node,), entry.node.where)
            entries["supported_models"] = Entry(entry.where, listed)
        else:
            entries["id" if key == "name" else key] = entry
    return Table(entries, node.where)
