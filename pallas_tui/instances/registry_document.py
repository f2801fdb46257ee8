"""What a registry's document says: hostile until it has been read here."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pallas.model import Fault, FaultType
from pallas.safe_text import one_line, sanitize

from .instance_model import RegistryAgent, RegistryListing
from .registry_address import MAX_URL, is_endpoint

MAX_AGENTS: Final = 200
"""Agents of one instance: each is a connection and a poll."""
MAX_AGENT_TITLE: Final = 100
MAX_DESCRIPTION: Final = 500

_MAX_SKIPPED: Final = 20
_MAX_COUNT: Final = 10**12


class _Malformed(Exception):
    """Why an entry cannot be used."""


def read_document(document: Any, where: str) -> RegistryListing:
    """Return the agents of a parsed document (PI-6); ``where`` is its URL, for the message.

    Entries that cannot be used are skipped, each with its reason; unknown keys, ``_meta`` too, are
    ignored. Raises Fault PROTOCOL when it is no registry's document at all.
    """
    servers = document.get("servers") if isinstance(document, Mapping) else None
    if not isinstance(servers, list):
        raise Fault(
            FaultType.PROTOCOL,
            f"{where} is JSON, but holds no list named servers: it is not a registry's document. "
            "Register the URL of the registry's port, not that of an agent.",
        )
    agents: dict[str, RegistryAgent] = {}
    skipped: list[str] = []
    for number, entry in enumerate(servers, 1):
        try:
            agent = _agent(entry)
            if agent.id in agents:
                raise _Malformed(f"an entry before it has the same id {agent.id}")
            if len(agents) == MAX_AGENTS:
                raise _Malformed(f"an instance may have {MAX_AGENTS} agents")
        except _Malformed as reason:
            skipped.append(f"entry {number}{_named(entry)}: {reason}")
        else:
            agents[agent.id] = agent
    if len(skipped) > _MAX_SKIPPED:
        more = len(skipped) - _MAX_SKIPPED
        skipped[_MAX_SKIPPED:] = [f"and {more} more"]
    return RegistryListing(tuple(agents.values()), tuple(skipped))


def _agent(entry: Any) -> RegistryAgent:
    server = entry.get("server") if isinstance(entry, Mapping) else None
    if not isinstance(server, Mapping):
        raise _Malformed("it has no server object")
    name = _text(server.get("name"), 200)
    if not name:
        raise _Malformed("its name is missing or not a text")
    id_ = name.rpartition("/")[2].strip()
    if not id_:
        raise _Malformed("its name ends with / and leaves nothing for an id")
    capabilities = server.get("capabilities")
    capabilities = capabilities if isinstance(capabilities, Mapping) else {}
    vision = capabilities.get("vision")
    return RegistryAgent(
        id=id_,
        name=name,
        title=_text(server.get("title"), MAX_AGENT_TITLE) or name,
        url=_endpoint(server.get("remotes")),
        description=_text(server.get("description"), MAX_DESCRIPTION),
        icon=_icon(server.get("icons")),
        version=_text(server.get("version"), 60),
        model=_text(capabilities.get("model"), 100),
        vision=vision if isinstance(vision, bool) else None,
        context_window=_count(capabilities.get("context_window")),
        max_output_tokens=_count(capabilities.get("max_output_tokens")),
    )


def _endpoint(remotes: Any) -> str:
    for remote in _mappings(remotes):
        if remote.get("type") == "streamable-http":
            url = remote.get("url")
            if not is_endpoint(url):
                raise _Malformed("the url of its streamable-http remote is missing or not usable")
            return str(url)
    raise _Malformed("it has no remote of type streamable-http")


def _icon(icons: Any) -> str:
    first = next(_mappings(icons), {})
    return _text(first.get("src"), MAX_URL)


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    return (each for each in (value if isinstance(value, list) else ()) if isinstance(each, Mapping))


def _text(value: Any, limit: int) -> str:
    return one_line(value, limit) if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 < value <= _MAX_COUNT else None


def _named(entry: Any) -> str:
    """The name of an entry in brackets, as far as it has one."""
    server = entry.get("server") if isinstance(entry, Mapping) else None
    name = _text(server.get("name"), 60) if isinstance(server, Mapping) else ""
    return f" ({sanitize(name)})" if name else ""
