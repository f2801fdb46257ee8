"""``mcp.servers``: the MCP servers that agents call."""

import shlex
from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

from .models import DownstreamConfig, Where
from .network import secret_in, url_problem
from .notes import nearest
from .section import Section
from .tree import Leaf, Table, unset_in
from .upstream import AUTH_KEYS, DOWNSTREAM_KEYS, MCP_KEYS

SERVERS_PATH: Final = ("mcp", "servers")
type Transport = Literal["http", "sse", "stdio"]
type _Source = tuple[Transport | None, str, tuple[str, ...]]

TRANSPORTS: Final[Mapping[str, Transport]] = {"http": "http", "sse": "sse", "stdio": "stdio"}
_NOWHERE: Final[_Source] = (None, "", ())
SAMPLING_KEYS: Final = ("model", "max_requests", "max_tokens")
SAMPLING_REQUESTS: Final = 10
"""Requests of one server that the model answers in one run, unless ``max_requests`` says otherwise."""
SAMPLING_TOKENS: Final = 4_096
"""Tokens of one such answer, unless ``max_tokens`` says otherwise."""
# A source of its own says all of these already.
_SOURCES: Final = ("url", "command", "args", "transport", "connector_id")


def read_downstreams(mcp: Section) -> Mapping[str, DownstreamConfig]:
    """The entries that an agent of ours connects to; those that a model's provider calls are left out."""
    if "targets" in mcp:
        mcp.error("targets", "is no longer read by fast-agent", "write each entry under mcp.servers")
    for key in mcp.table.entries:
        if key not in MCP_KEYS and (meant := nearest(key, MCP_KEYS, cutoff=0.75)):
            mcp.warn(key, "unknown key", f"did you mean {meant}")
    client = mcp.section("client")
    if client is not None and client.flag("auto_sampling"):
        client.warn(
            "auto_sampling",
            "has no effect: no server uses a model by default",
            "write `sampling: {}` into the entry of each server that may",
        )
    found = ((name, _downstream(section, name)) for name, section in mcp.sections("servers"))
    return {name: server for name, server in found if server is not None}


def _downstream(section: Section, name: str) -> DownstreamConfig | None:
    section.only(DOWNSTREAM_KEYS)
    _warn_of_misspelt_auth(section)
    forward = section.flag("forward_inbound_auth") or False
    transport, url, command = _source(section)
    headers = _strings(section, "headers")
    token = _token(section)
    if token and any(key.lower() == "authorization" for key in headers):
        section.error("access_token", "is given beside headers.Authorization", "allowed: one of them")
    elif token:
        headers["Authorization"] = f"Bearer {token}"
    _strings(section, "env")
    _check_requests(section)
    if url and (secret := secret_in(url)):
        key = "target" if "target" in section else "url"
        section.warn(key, f"holds {secret}, which logs and pages may show", "send it in headers")
    if forward and transport == "stdio":
        section.warn("forward_inbound_auth", "has no effect on a command", "it is for servers with a url")
    if transport is None:
        return None
    return DownstreamConfig(
        name=name,
        transport=transport,
        url=url,
        command=command,
        headers=headers,
        forward_inbound_auth=forward,
        unset=_unset(section),
        where=section.where,
    )


def _check_requests(section: Section) -> None:
    """What the server may ask of its client."""
    if (sampling := section.section("sampling")) is not None:
        sampling.only(SAMPLING_KEYS)
        sampling.text("model")
        sampling.integer("max_requests", 1, 1_000)
        sampling.integer("max_tokens", 1, 1_000_000)
    elicitation = section.section("elicitation")
    if elicitation is not None and elicitation.choice("mode", ("forms", "auto-cancel", "none")) == "forms":
        elicitation.warn("mode", "has no effect: no form is opened", "questions of servers are declined")


def _source(section: Section) -> _Source:
    """Where the server is, guessed as fast-agent does: a url goes before a command."""
    if "target" in section:
        return _target(section)
    given = section.choice("transport", tuple(TRANSPORTS))
    url = section.text("url") if _is_given(section, "url") else None
    command = section.text("command") if _is_given(section, "command") else None
    args = tuple(word for word, _ in section.texts("args", "[--option, value]"))
    if "connector_id" in section or _is_provider_managed(section):
        return _NOWHERE
    transport = TRANSPORTS[given] if given else "http" if url else "stdio"
    if transport == "stdio":
        if command:
            return "stdio", "", (command, *args)
        if given:
            section.error(
                "command", "is missing", "required with transport stdio, for example `command: npx`"
            )
        elif not _is_given(section, "url") and not _is_given(section, "command"):
            section.error("url", "url and command are both missing", "required: one of them")
        return _NOWHERE
    if url is None:
        if not _is_given(section, "url"):
            section.error("url", "is missing", f"required with transport {transport}")
        return _NOWHERE
    if refusal := url_problem(url):
        section.refuse("url", refusal)
        return _NOWHERE
    return transport, endpoint(url) if transport == "http" else url, ()


def _target(section: Section) -> _Source:
    """``target``: a URL or a command line in one text."""
    for key in _SOURCES:
        if key in section:
            section.error(key, "is given beside target", "allowed: target alone, or url, or command and args")
    text = section.text("target")
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


def _token(section: Section) -> str:
    """``access_token`` without the word Bearer; empty when absent or its variable is not set."""
    node = section.table.get("access_token")
    if node is None or (isinstance(node, Leaf) and node.value in ("", None)):
        return ""
    text = (section.text_of(node, section.key("access_token")) or "").strip()
    return text[7:].strip() if text.lower().startswith("bearer ") else text


def endpoint(url: str) -> str:
    """The URL that fast-agent calls: ``/mcp`` is added to a path that has no query and does not end so."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if parts.query or path.endswith(("/mcp", "/sse")):
        return url
    return parts._replace(path=f"{path}/mcp").geturl()


def _strings(section: Section, key: str) -> dict[str, str]:
    """A mapping of texts, as fast-agent takes them: a number there is a mistake."""
    inner = section.section(key)
    if inner is None:
        return {}
    found = (
        (name, inner.text_of(entry.node, inner.key(name))) for name, entry in inner.table.entries.items()
    )
    return {name: value for name, value in found if value is not None}


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


def _warn_of_misspelt_auth(section: Section) -> None:
    auth = section.section("auth")
    for key in auth.table.entries if auth else ():
        if auth and key not in AUTH_KEYS and (meant := nearest(key, AUTH_KEYS, cutoff=0.75)):
            auth.warn(key, "unknown key", f"did you mean {meant}")


def _is_provider_managed(section: Section) -> bool:
    leaf = section.table.get("management")
    return isinstance(leaf, Leaf) and leaf.value == "provider"


def _is_given(section: Section, key: str) -> bool:
    """Whether ``key`` is there and not left empty; one whose variable is not set counts as given."""
    leaf = section.table.get(key)
    return leaf is not None and not (isinstance(leaf, Leaf) and leaf.value in ("", None) and not leaf.unset)
