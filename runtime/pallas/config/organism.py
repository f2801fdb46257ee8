"""``organism.yaml``: a project of handlers as xml-pipeline writes it down, understood as far as it goes.

What is not used is said, with why: never silently.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from .agents import Draft
from .field_types import CHOICE, Line, Maybe, Port, TextRule
from .file_model import FileModel
from .files import project_file
from .kinds import LlmRouting, PumpLimits
from .listeners import ListenerEntry, listeners_of
from .llm_section import MAX_TOKENS, BackendEntry, LlmSection, backends_of, routing_of
from .models import TlsConfig
from .notes import Notes
from .section import Section
from .tree import Entry, Items, Leaf, Node, Table
from .validation import validate
from .where import Where

_LISTENERS: Final = [{"name": "greeter", "handler": "my.code.greet", "payload_class": "my.code.Greeting"}]
ORGANISM_FILE: Final = "organism.yaml"
DEFAULT_PORT: Final = 8_765
LIMITS: Final[Mapping[str, str]] = {
    "max_concurrent_pipelines": "pipelines",
    "max_concurrent_handlers": "handlers",
    "max_concurrent_per_agent": "per_agent",
}
"""What may be at once, as these files call it, and as ``messages:`` does."""
NOT_USED: Final[Mapping[str, str]] = {
    "process_pool": "each listener with `cpu_bound: true` has a process of its own",
    "oob": "a fleet is controlled over its API, as docs/api.md says",
    "meta": "rbac: in agents.yaml decides who may see what",
    "gateways": "agents of another fleet are `kind: remote` in agents.yaml",
    "server": "the fleet serves at its port: MCP, the registry and the API",
    "identity": "messages within a fleet are not signed; auth: in agents.yaml identifies its callers",
}
"""Keys that change nothing here, each with why."""
_AtOnce = Annotated[int, Field(ge=1, le=10_000)]
_Scheduling = Annotated[Literal["breadth-first", "depth-first"], CHOICE]


class TlsEntry(FileModel):
    """The certificate that the ports show, unless the environment names one."""

    cert: Maybe[Line] = None
    """A PEM file with the certificate and its chain."""
    key: Maybe[Line] = None
    """A PEM file with its private key, where the certificate's file holds none."""
    enabled: Any = None
    """With false it is not read."""


class StateEntry(FileModel):
    """What keeps messages while they are under way."""

    model_config = ConfigDict(extra="ignore")

    type: Maybe[Annotated[Literal["memory", "manager", "redis"], CHOICE]] = None
    """Only ``memory`` is used."""


class _Shared(FileModel):
    """Keys that may be at the top and under ``organism:``."""

    identity: Any = None
    """Not used."""
    tls: TlsEntry | None = None
    """The certificate that the ports show."""
    thread_scheduling: Maybe[_Scheduling] = None
    """Messages are taken in the order in which they come."""
    max_concurrent_pipelines: Maybe[_AtOnce] = None
    """Runs at a time."""
    max_concurrent_handlers: Maybe[_AtOnce] = None
    """Messages being handled at a time."""
    max_concurrent_per_agent: Maybe[_AtOnce] = None
    """Messages being handled by one listener at a time."""


class OrganismSection(_Shared):
    """The project as a whole."""

    name: Annotated[str, TextRule(most=100), Field(examples=["hello-world"])]
    """The project's name."""
    version: Any = None
    """Its version, checked as that of agents.yaml."""
    description: Any = None
    """Not used."""
    port: Port = DEFAULT_PORT
    """The one port for everything."""
    max_tokens_per_thread: Maybe[Annotated[int, Field(ge=0, le=MAX_TOKENS)]] = None
    """Tokens that one thread may use; 0 for any."""


class OrganismFile(_Shared):
    """What an organism.yaml may say."""

    organism: Annotated[OrganismSection | None, Field(examples=[{"name": "hello-world"}])]
    """The project as a whole."""
    listeners: Annotated[tuple[ListenerEntry, ...] | None, Field(max_length=1_000, examples=[_LISTENERS])] = (
        None
    )
    """The typed handlers."""
    llm: LlmSection | None = None
    """The models that handlers may ask."""
    llm_backends: Any = None
    """The backends as older files write them."""
    backend: StateEntry | None = None
    """What keeps messages while they are under way."""
    process_pool: Any = None
    """Not used."""
    oob: Any = None
    """Not used."""
    meta: Any = None
    """Not used."""
    gateways: Any = None
    """Not used, but for the names: listeners may have them among their peers."""
    server: Any = None
    """Not used."""
    auth: Any = None
    """Refused: callers are asked who they are by ``auth:`` of agents.yaml."""


class _OlderBackends(FileModel):
    llm_backends: Annotated[
        tuple[BackendEntry, ...] | None,
        Field(max_length=50, examples=[[{"provider": "openai"}]]),
    ] = None


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
    given = validate(OrganismFile, Section(table, "", Where(file), notes))
    top, inner = given.at, given.organism
    own = {"name": _entry("organism", Where(file)), "port": _entry(DEFAULT_PORT, Where(file))}
    shared: list[_Shared] = [given]
    if inner is not None:
        own = _own(inner)
        shared.append(inner)
    for each in shared:
        _look_at_unused(each)
    _look_at_auth(top)
    _look_at_backend(given.backend)
    tokens = inner.max_tokens_per_thread if inner is not None else None
    return Organism(
        file=file,
        agents=listeners_of(top, given.listeners or (), root),
        own=own,
        llm=_llm(given, variables, tokens),
        limits=_limits(shared),
        tokens=tokens,
        tls=next((tls for each in shared if (tls := _tls(each, root)) is not None), None),
        places={
            each.at.key(key): entry.where for each in shared for key, entry in each.at.table.entries.items()
        },
        gateways=_gateways(top),
    )


def _gateways(top: Section) -> frozenset[str]:
    """The names of its gateways; nothing else of them is read."""
    node = top.table.get("gateways")
    tables = [item for item in node.items if isinstance(item, Table)] if isinstance(node, Items) else []
    names = [table.get("name") for table in tables]
    return frozenset(str(name.value) for name in names if isinstance(name, Leaf) and name.value)


def _own(inner: OrganismSection) -> dict[str, Entry]:
    """What ``agents.yaml`` would say of the project."""
    at = inner.at
    found = {"name": _entry(inner.name or "organism", at.place("name"))}
    if "version" in at:
        found["version"] = at.table.entries["version"]
    found["port"] = _entry(inner.port, at.place("port"))
    return found


def _entry(value: str | int, where: Where) -> Entry:
    return Entry(where, Leaf(value, str(value), where))


def _look_at_unused(given: _Shared) -> None:
    section = given.at
    for key, why in NOT_USED.items():
        if key in section and not _is_off(section.table.get(key)):
            section.warn(key, "is not used", why)
    if given.thread_scheduling == "depth-first":
        section.warn(
            "thread_scheduling",
            "depth-first is not used",
            "messages are handled in the order in which they arrive",
        )


def _look_at_backend(given: StateEntry | None) -> None:
    if given is not None and given.type in ("manager", "redis"):
        given.at.warn(
            "type",
            "is not used",
            "messages in flight are in the fleet's memory; database_url: in agents.yaml is where "
            "threads are stored",
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
    """A user who writes ``enabled: true`` would believe that callers need a token."""
    if "auth" in top and not _is_off(top.table.get("auth")):
        top.error(
            "auth",
            "is not supported here, so callers would not be identified",
            "write auth: in agents.yaml beside this file (docs/auth.md), and leave it out here",
        )


def _limits(shared: list[_Shared]) -> PumpLimits | None:
    limits = {
        name: value
        for each in shared
        for key, name in LIMITS.items()
        if (value := getattr(each, key)) is not None
    }
    return PumpLimits(**limits) if limits else None


def _tls(given: _Shared, root: Path) -> TlsConfig | None:
    inner = given.tls
    if inner is None or _is_off(inner.at.table):
        return None
    inner.at.need("cert", "certs/server.pem")
    cert = project_file(inner.at, "cert", root, inner.cert)
    key = project_file(inner.at, "key", root, inner.key)
    return TlsConfig(cert, key or cert) if cert is not None else None


def _llm(given: OrganismFile, variables: Mapping[str, str], tokens: int | None) -> LlmRouting | None:
    top, listed = given.at, given.at.table.get("llm_backends")
    if listed is not None and "llm" in top:
        top.error("llm_backends", "is given beside llm", "write all of them under llm.backends")
    found = routing_of(given.llm, variables) if given.llm is not None else None
    if found is None and listed is not None:
        table = Table({"llm_backends": Entry(top.place("llm_backends"), _older(listed))}, top.where)
        older = validate(_OlderBackends, Section(table, top.path, top.where, top.notes))
        found = LlmRouting(backends=backends_of(older.llm_backends or (), variables))
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
