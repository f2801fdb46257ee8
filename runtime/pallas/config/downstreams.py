"""``mcp.servers``: the MCP servers that agents call."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, TypeIs
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field

from pallas.model.redaction import redact_text

from .field_types import CHOICE, Line, Loose, Maybe
from .file_model import FileModel
from .models import DownstreamConfig, Where
from .network import secret_in, url_problem
from .notes import allowed, did_you_mean, nearest
from .section import Section, because, filled
from .tree import Leaf, Node, Table, as_written, key_variable, plain, unset_in
from .upstream import AUTH_KEYS, DOWNSTREAM_KEYS, MCP_KEYS
from .validation import validate

SERVERS_PATH: Final = ("mcp", "servers")
type Transport = Literal["http", "sse", "stdio"]
type _Source = tuple[Transport | None, str, tuple[str, ...]]

_PLACES: Final = ("url", "command", "target")
"""Keys that say where a server is."""
_NOWHERE: Final[_Source] = (None, "", ())
_MISSPELT: Final = 0.85
"""How near an unknown key is to a known one that was meant."""
SAMPLING_REQUESTS: Final = 10
"""Requests of one server that the model answers in one run, unless ``max_requests`` says otherwise."""
SAMPLING_TOKENS: Final = 4_096
"""Tokens of one such answer, unless ``max_tokens`` says otherwise."""
# A source of its own says all of these already.
_SOURCES: Final = ("url", "command", "args", "transport", "connector_id")
# Keys that say how a server is reached, and those of which only the names do.
_REACHED: Final = ("transport", "url", "command", "args", "target", "cwd", "protocol_mode")
_NAMED: Final = ("env", "headers")


class OpenModel(FileModel):
    """A mapping of fast-agent's, of which other keys are left to it."""

    model_config = ConfigDict(extra="ignore")


class SamplingEntry(FileModel):
    """What a server may ask of the model."""

    model: Maybe[Line] = None
    max_requests: Maybe[Annotated[int, Field(ge=1, le=1_000)]] = None
    max_tokens: Maybe[Annotated[int, Field(ge=1, le=1_000_000)]] = None


class ElicitationEntry(OpenModel):
    """What becomes of a server's questions to people."""

    mode: Maybe[Annotated[Literal["forms", "auto-cancel", "none"], CHOICE]] = None


class DownstreamEntry(OpenModel):
    """An entry under ``mcp.servers``; of the keys that are not here only the names are checked."""

    transport: Maybe[Annotated[Transport, CHOICE]] = None
    url: Maybe[Line] = None
    command: Maybe[Line] = None
    args: Annotated[tuple[Loose, ...] | None, Field(examples=[["--option", "value"]])] = None
    target: Maybe[Line] = None
    headers: dict[str, str] | None = None
    env: dict[str, str] | None = None
    access_token: str | None = None
    auth: dict[str, Any] | None = None
    forward_inbound_auth: bool = False
    sampling: SamplingEntry | None = None
    elicitation: ElicitationEntry | None = None


class ClientEntry(OpenModel):
    """What holds for all servers."""

    auto_sampling: bool = False


class McpEntry(OpenModel):
    """``mcp``."""

    client: ClientEntry | None = None
    servers: dict[str, dict[str, Any]] | None = None


class _Unusable(Exception):
    """An entry that fast-agent reads, but that no agent can connect to."""

    def __init__(self, key: str, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.key, self.problem, self.hint = key, problem, hint


def read_downstreams(mcp: McpEntry) -> tuple[Mapping[str, DownstreamConfig], Mapping[str, str]]:
    """The entries that an agent of ours connects to, and by name what is wrong with those it cannot use.

    Those that a model's provider calls are left out. An entry that cannot be used is a warning: it is a
    mistake only for an agent that uses it.
    """
    if "targets" in mcp.at:
        mcp.at.error("targets", "is no longer read by fast-agent", "write each entry under mcp.servers")
    _warn_of_misspelt(mcp.at, MCP_KEYS)
    if mcp.client is not None and mcp.client.auto_sampling:
        mcp.client.at.warn(
            "auto_sampling",
            "has no effect: no server uses a model by default",
            "write `sampling: {}` into the entry of each server that may",
        )
    servers = mcp.at.section("servers") if mcp.servers else None
    sections = ((name, servers.section(name)) for name in mcp.servers or ()) if servers else ()
    found: dict[str, DownstreamConfig] = {}
    unusable: dict[str, str] = {}
    for name, section in sections:
        if section is None:
            continue
        try:
            if (server := _downstream(section, name)) is not None:
                found[name] = server
        except _Unusable as refusal:
            section.warn(
                refusal.key, refusal.problem, refusal.hint, "until then no agent can use this server"
            )
            where = section.place(refusal.key)
            unusable[name] = f"cannot be used ({where}: {refusal.key}: {refusal.problem})"
    return found, unusable


def _downstream(section: Section, name: str) -> DownstreamConfig | None:
    entry = validate(DownstreamEntry, _without_blanks(section))
    for key in section.table.entries:
        if key not in DOWNSTREAM_KEYS:
            hints = allowed(DOWNSTREAM_KEYS), did_you_mean(key, DOWNSTREAM_KEYS)
            if nearest(key, DOWNSTREAM_KEYS, cutoff=_MISSPELT):
                section.error(key, "unknown key", *hints)
            else:  # as for fast-agent, and in what others read too
                section.warn(
                    key, "unknown key, which has no effect", *hints[1:], "remove it if it should have"
                )
    auth = section.section("auth") if entry.auth else None
    if auth is not None:
        _warn_of_misspelt(auth, AUTH_KEYS)
    transport, url, command = _source(entry, section)
    headers = dict(entry.headers or {})
    token = re.sub(r"^bearer(?= )", "", (entry.access_token or "").strip(), flags=re.IGNORECASE).strip()
    if token and any(key.lower() == "authorization" for key in headers):
        section.error("access_token", "is given beside headers.Authorization", "allowed: one of them")
    elif token:
        headers["Authorization"] = f"Bearer {token}"
    if url and (secret := secret_in(url)):
        key = "target" if "target" in section else "url"
        section.warn(key, f"holds {secret}, which logs and pages may show", "send it in headers")
    if entry.forward_inbound_auth and transport == "stdio":
        section.warn("forward_inbound_auth", "has no effect on a command", "it is for servers with a url")
    if transport is None:
        return None
    return DownstreamConfig(
        name=name,
        transport=transport,
        url=url,
        command=command,
        headers=headers,
        forward_inbound_auth=entry.forward_inbound_auth,
        unset=_unset(section),
        key_variable=key_variable(section.table),
        where=section.where,
        written=_written(section),
    )


def _written(section: Section) -> str:
    """How the server is reached, as the file says it: variables by their name, no value of a header."""
    entry = plain(as_written(section.table))
    found = {key: entry.get(key) for key in _REACHED}
    found |= {key: sorted(entry[key]) for key in _NAMED if isinstance(entry.get(key), dict)}
    return redact_text(json.dumps(found, sort_keys=True, default=str))


def _is_blank(node: Node | None) -> TypeIs[Leaf]:
    """Whether it is a value that is left empty, as fast-agent takes it for one that is not there."""
    return isinstance(node, Leaf) and (node.value is None or not str(node.value).strip())


def _without_blanks(section: Section) -> Section:
    """The section without a url and a command left empty, or a target that is for want of a variable."""
    entries = {
        key: entry
        for key, entry in section.table.entries.items()
        if key not in _PLACES or not _is_blank(entry.node) or (key == "target" and not unset_in(entry.node))
    }
    table = replace(section.table, entries=entries)
    return Section(table, section.path, section.where, section.notes, echo=section.echo)


def _source(entry: DownstreamEntry, section: Section) -> _Source:
    """Where the server is, guessed as fast-agent does: a url goes before a command. Raises _Unusable."""
    for key in _PLACES:
        node = section.table.get(key)
        if _is_blank(node) and unset_in(node):
            raise _Unusable(key, "is empty" + because(node), filled(node))
    if "target" in section:
        return _target(entry.target, section)
    if "connector_id" in section or _is_provider_managed(section):
        return _NOWHERE
    url, given = entry.url, entry.at
    transport = entry.transport or ("http" if url else "stdio")
    if transport == "stdio":
        if entry.command:
            return "stdio", "", (entry.command, *(entry.args or ()))
        if "command" in given or (not entry.transport and "url" in given):
            return _NOWHERE  # what is there is a mistake that is noted already
        if entry.transport:
            hint = "required with transport stdio, for example `command: npx`"
            raise _Unusable("command", "is missing", hint)
        raise _Unusable("url", "url and command are both missing", "required: one of them")
    if url is None:
        if "url" in given:
            return _NOWHERE
        raise _Unusable("url", "is missing", f"required with transport {transport}")
    if refusal := url_problem(url):
        section.refuse("url", refusal)
        return _NOWHERE
    return transport, endpoint(url) if transport == "http" else url, ()


def _target(text: str | None, section: Section) -> _Source:
    """``target``: a URL or a command line in one text."""
    for key in _SOURCES:
        if key in section:
            section.error(key, "is given beside target", "allowed: only target, or url, or command and args")
    if text is None:
        return _NOWHERE
    if text.lower().startswith(("http://", "https://")):
        if refusal := url_problem(text):
            section.refuse("target", refusal)
            return _NOWHERE
        sse = urlsplit(text).path.rstrip("/").endswith("/sse")
        return ("sse", text, ()) if sse else ("http", endpoint(text), ())
    try:
        return "stdio", "", tuple(shlex.split(text))
    except ValueError as error:
        section.error("target", f"cannot be split into words: {error}", "close the quote")
        return _NOWHERE


def endpoint(url: str) -> str:
    """The URL that fast-agent calls: ``/mcp`` is added to a path that has no query and does not end so."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if parts.query or path.endswith(("/mcp", "/sse")):
        return url
    return parts._replace(path=f"{path}/mcp").geturl()


def _unset(section: Section) -> tuple[str, ...]:
    """Variables that authentication needs and that are not set, one warning each (PR-9)."""
    server = section.path.removeprefix("mcp.servers.")
    headers = section.table.get("headers")
    nodes = (
        {f"headers.{key}": entry.node for key, entry in headers.entries.items()}
        if isinstance(headers, Table)
        else {}
    )
    if (token := section.table.get("access_token")) is not None:
        nodes["access_token"] = token
    places: dict[str, tuple[str, Where]] = {}
    for key, node in nodes.items():
        for name in unset_in(node):
            places.setdefault(name, (key, node.where))
    for name, (key, where) in places.items():
        problem = f"server {server} needs {name}, which is not set"
        section.notes.warn(where, section.key(key), problem, f"set {name} in the environment or in .env")
    return tuple(places)


def _warn_of_misspelt(section: Section, known: Sequence[str]) -> None:
    for key in section.table.entries:
        if key not in known and (meant := nearest(key, known, cutoff=0.75)):
            section.warn(key, "unknown key", f"did you mean {meant}")


def _is_provider_managed(section: Section) -> bool:
    leaf = section.table.get("management")
    return isinstance(leaf, Leaf) and leaf.value == "provider"
