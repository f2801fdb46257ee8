"""What an entry under ``agents:`` says in addition to what all of them have, as a value of its ``kind``."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from pallas.model import AgentKind
from pallas.model.redaction import is_sensitive

from .agent_entries import (
    TYPED_KEYS,
    AgentEntry,
    HandlerEntry,
    RemoteEntry,
    RouterEntry,
    WorkerEntry,
)
from .command import command_of
from .files import folder_like, is_folder, module_problem
from .kinds import HandlerConfig, RemoteConfig, RouterConfig, TypedConfig, WorkerConfig
from .models import AgentConfig, RestartConfig
from .network import local_port
from .notes import suggest
from .section import Section
from .supervision import RESTART
from .tree import Node, Table, key_variable, unset_in
from .typed_handlers import (
    check_module,
    files_of,
    memory_of,
    object_named,
    object_problem,
    prompt_of,
)
from .where import Where

MAX_WORD: Final = 64
MAX_EXAMPLE: Final = 500
_WORD: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_RESTARTS: Final[Mapping[AgentKind, RestartConfig]] = {
    # Five restarts in a minute, and the failure after those is a crash loop (DR-29).
    "worker": RestartConfig(backoff=0.5, backoff_max=10.0, crashes=6, within=60.0),
    # It is started elsewhere and comes back without notice: it is tried again for ever.
    "remote": RestartConfig(backoff=1.0, backoff_max=30.0, crashes=1_000, within=60.0),
}
"""What becomes of an agent that fails where ``restart:`` does not say it, by kind."""

type Members = tuple[tuple[str, str, Where], ...]
"""Names of other agents that an agent names, each with its key and its place."""


def with_own_values(config: AgentConfig, entry: AgentEntry, root: Path) -> tuple[AgentConfig, Members]:
    """``config`` with what an agent of its kind has in addition to all, and the agents that it names."""
    members: Members = ()
    match entry:
        case WorkerEntry():
            config = replace(config, worker=worker_of(entry, config.name, root))
        case RemoteEntry():
            config = replace(config, remote=remote_of(entry, config.name))
        case HandlerEntry():
            config = replace(config, handler=handler_of(entry, root, config.name))
        case RouterEntry():
            router, members = router_of(entry)
            config = replace(config, router=router)
    return config, members


def restart_without_words(kind: AgentKind) -> RestartConfig:
    """What becomes of an agent of that kind that fails, where ``restart:`` does not say it."""
    return _RESTARTS.get(kind, RESTART)


def capability_words(entry: AgentEntry) -> tuple[str, ...]:
    """``capabilities``: what the agent can do, a word each, in the order given and once each."""
    for word, where in entry.listed("capabilities"):
        if len(word) > MAX_WORD or not _WORD.fullmatch(word):
            better = re.sub(r"[^a-z0-9._-]+", "-", word.lower()).strip("-._")[:MAX_WORD]
            entry.at.error(
                "capabilities",
                f"{word[:MAX_WORD]} is not a capability" if word else "is empty",
                f"allowed: a-z, 0-9 and . _ - after the first, at most {MAX_WORD}",
                suggest(better or None),
                where=where,
            )
    return tuple(dict.fromkeys(entry.capabilities or ()))


def examples_of(entry: AgentEntry) -> tuple[str, ...]:
    """``examples``: questions that the agent is good at, a line each."""
    for text, where in entry.listed("examples"):
        if not text.strip():
            entry.at.error("examples", "is empty", "write a question, or leave it out", where=where)
        elif len(text) > MAX_EXAMPLE:
            hint = f"allowed: 1 to {MAX_EXAMPLE} characters"
            entry.at.error("examples", f"has {len(text)} characters", hint, where=where)
    return tuple(dict.fromkeys(" ".join(text.split()) for text in entry.examples or ()))


def worker_of(entry: WorkerEntry, name: str, root: Path) -> WorkerConfig | None:
    """The value of a worker, None when its command is missing or wrong."""
    section = entry.at
    command = command_of(section, entry.command)
    cwd = root / (entry.cwd or ".")
    if not is_folder(cwd):
        hint = "allowed: a folder; paths start at the project's folder"
        section.error("cwd", "there is no such folder", hint, suggest(folder_like(root, cwd)))
    config = WorkerConfig(
        command=command,
        cwd=cwd.absolute(),
        env=_checked_names(section, entry.env),
        dialect=entry.dialect,
        agent_id=entry.agent_id or name,
        request_timeout=entry.request_timeout,
        capacity=entry.capacity,
        permissions=entry.permissions,
    )
    _unset(section, name, "env", "command")
    return config if command else None


def remote_of(entry: RemoteEntry, name: str) -> RemoteConfig | None:
    """The value of a remote agent, None when its URL is missing or wrong."""
    section, url = entry.at, entry.url
    headers = _headers(entry)
    unset = _unset(section, name, "headers", "url")
    if entry.forward_inbound_auth and any(key.lower() == "authorization" for key in headers):
        section.error(
            "forward_inbound_auth",
            "is given beside headers.Authorization",
            "allowed: one of them; the caller's own token, or one of the project's",
        )
    if not url:
        return None
    _warn_of_url(section, url, forward=entry.forward_inbound_auth or bool(headers))
    return RemoteConfig(
        url=url,
        tool=entry.tool or "",
        argument=entry.argument or "",
        conversation=entry.conversation or "",
        headers=headers,
        forward_inbound_auth=entry.forward_inbound_auth,
        capacity=entry.capacity,
        unset=unset,
        key_variable=key_variable(section.table),
    )


def handler_of(entry: HandlerEntry, root: Path, name: str) -> HandlerConfig | None:
    """The value of a handler, None when its code is not named. Nothing is imported."""
    section = entry.at
    typed = _typed(entry, root, name)
    problem = (_path_problem if typed is None else object_problem)(entry.handler or "x:y")
    path: str | None = None
    if problem:
        section.refuse("handler", problem)
    elif typed is not None:
        path = object_named(section, "handler", root, entry.handler)
    elif entry.handler:
        path = entry.handler
        check_module(section, "handler", root, path.partition(":")[0])
    capacity = 64 if entry.capacity is None else entry.capacity
    return HandlerConfig(path, capacity, typed=typed, pure=entry.pure) if path else None


def _typed(entry: HandlerEntry, root: Path, name: str) -> TypedConfig | None:
    """The value of a typed handler, None for one that takes plain text (its keys are noted then)."""
    section = entry.at
    if "payload" not in section:
        for key in TYPED_KEYS:
            if key in section:
                section.error(
                    key,
                    "is a key of typed handlers, and this one has no payload",
                    "write `payload: module:Class`, or leave it out",
                )
        return None
    if entry.group and not entry.broadcast:
        section.error("group", "needs `broadcast: true`", "write it, or leave group out")
    isolated = entry.isolation == "process"
    return TypedConfig(
        payload=object_named(section, "payload", root, entry.payload) or "",
        agent=entry.agent,
        timeout=entry.timeout,
        broadcast=entry.broadcast,
        group=(entry.group or name) if entry.broadcast else "",
        memory=memory_of(section, isolated=isolated),
        env=environment_of(section, name, entry.env, isolated=isolated),
        files=files_of(section, root, entry.listed("files"), isolated=isolated),
        forward_inbound_auth=entry.forward_inbound_auth,
        prompt=prompt_of(section, entry.prompt),
        capacity=entry.capacity or 0,
    )


def router_of(entry: RouterEntry) -> tuple[RouterConfig | None, Members]:
    """The value of a router, None when it names no agent, and the agents it names."""
    section, listed = entry.at, entry.listed("agents")
    members = dict(reversed(listed))
    if "agents" in section and not listed:
        section.error("agents", "names no agent", "required: the agents among whom it chooses")
    by, ask, fallback = entry.by, entry.ask or "", entry.fallback or ""
    if by == "model" and "ask" not in section:
        section.error("ask", "is missing", "required with `by: model`: the agent that is asked who answers")
    elif by != "model" and "ask" in section:
        section.error("ask", f"is for `by: model`, and this is `by: {by}`", "leave it out")
    names = tuple(dict.fromkeys(name for name, _ in listed))
    named: list[tuple[str, str, Where]] = [(name, "agents", members[name]) for name in names]
    named += [(name, key, section.place(key)) for key, name in (("ask", ask), ("fallback", fallback)) if name]
    return (RouterConfig(names, by, ask, fallback) if listed else None), tuple(named)


def environment_of(
    section: Section, name: str, env: dict[str, str] | None, *, isolated: bool
) -> dict[str, str]:
    """``env`` of what runs in the fleet's process, unless it has one of its own."""
    if "env" not in section:
        return {}
    if not isolated:
        section.error("env", "needs `isolation: process`", "write it, or leave env out")
    _unset(section, name, "env")
    return _checked_names(section, env)


def _checked_names(section: Section, env: dict[str, str] | None) -> dict[str, str]:
    for name in env or {}:
        if not name or "=" in name or "\0" in name:
            section.error(
                "env", f"{name or 'an empty text'} is not the name of a variable", "write NAME: value"
            )
    return env or {}


def _headers(entry: RemoteEntry) -> dict[str, str]:
    """Header values are often secrets: what is wrong with one is said without repeating it."""
    node, found = entry.at.table.get("headers"), entry.headers or {}
    for name, value in found.items():
        if not _HEADER.fullmatch(name) or any(ord(char) < 32 or ord(char) == 127 for char in value):
            entry.at.error(
                "headers",
                f"{name} cannot be sent as a header",
                "allowed: a name of letters, digits and -, and a value on one line",
                where=node.entries[name].where if isinstance(node, Table) else None,
            )
    return found


def _unset(section: Section, name: str, *keys: str) -> tuple[str, ...]:
    """Variables that values under ``keys`` need and that are not set, one warning each (PR-9)."""
    nodes: dict[str, Node] = {}
    for key in keys:
        node = section.table.get(key)
        if isinstance(node, Table):
            nodes |= {f"{key}.{inner}": entry.node for inner, entry in node.entries.items()}
        elif node is not None:
            nodes[key] = node
    places: dict[str, tuple[str, Where]] = {}
    for key, node in nodes.items():
        for variable in unset_in(node):
            places.setdefault(variable, (key, node.where))
    for variable, (key, where) in places.items():
        section.notes.warn(
            where,
            section.key(key),
            f"agent {name} needs {variable}, which is not set",
            f"set {variable} in the environment or in .env",
        )
    return tuple(places)


def _warn_of_url(section: Section, url: str, *, forward: bool) -> None:
    parts = urlsplit(url)
    if parts.username or parts.password:
        section.warn("url", "holds a name or a password, which logs and pages may show", _IN_A_HEADER)
    if any(is_sensitive(key) and value for key, value in parse_qsl(parts.query)):
        section.warn("url", "holds a secret in its query, which logs may show", _IN_A_HEADER)
    if forward and parts.scheme == "http" and local_port(url) is None:
        section.warn(
            "url",
            "is not encrypted, and tokens are sent to it",
            "write https://, or send no token there",
        )


_IN_A_HEADER: Final = 'send it in a header: headers: {Authorization: "Bearer ${TOKEN}"}'


def _path_problem(text: str) -> str | None:
    module, colon, attribute = text.partition(":")
    if not colon or not all(part.isidentifier() for part in attribute.split(".")):
        return "does not name an object; write module:NAME, such as handlers.upper:UPPER"
    return module_problem(module)
