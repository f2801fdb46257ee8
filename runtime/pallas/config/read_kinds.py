"""What an entry under ``agents:`` says beside what all of them have, by its ``kind``."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, cast, get_args
from urllib.parse import parse_qsl, urlsplit

from pallas.model import AgentKind
from pallas.model.redaction import is_sensitive

from .command import read_command
from .files import is_folder, module_problem
from .kinds import Dialect, HandlerConfig, Permissions, RemoteConfig, RouteBy, RouterConfig, WorkerConfig
from .network import local_port, url_problem
from .notes import allowed, did_you_mean, suggest
from .read_typed import TYPED_KEYS, check_module, read_object, read_typed
from .section import Section
from .tree import Node, Table, unset_in
from .where import Where

KINDS: Final[tuple[AgentKind, ...]] = get_args(AgentKind)
COMMON_KEYS: Final = (
    "kind",
    "port",
    "title",
    "description",
    "capabilities",
    "examples",
    "depends_on",
    "icons",
    "run_timeout",
    "start_timeout",
    "restart",
    "auth",
)
LLM_KEYS: Final = (
    "module",
    "card",
    "instance_scope",
    "max_instances",
    "servers",
    "max_iterations",
    "loop_repeat_threshold",
    "isolation",
    "env",
    "model_capabilities",
    "params",
    "providers",
    "default_provider",
    "peers",
)
WORKER_KEYS: Final = (
    "command",
    "env",
    "cwd",
    "dialect",
    "agent_id",
    "request_timeout",
    "capacity",
    "permissions",
)
REMOTE_KEYS: Final = (
    "url",
    "tool",
    "argument",
    "conversation",
    "headers",
    "forward_inbound_auth",
    "params",
    "capacity",
)
HANDLER_KEYS: Final = ("handler", "params", "capacity", *TYPED_KEYS)
ROUTER_KEYS: Final = ("agents", "by", "ask", "fallback")
KEYS_OF: Final[Mapping[AgentKind, tuple[str, ...]]] = {
    "llm": LLM_KEYS,
    "handler": HANDLER_KEYS,
    "worker": WORKER_KEYS,
    "remote": REMOTE_KEYS,
    "router": ROUTER_KEYS,
}
"""The keys of each kind beside the common ones."""
MAX_CAPACITY: Final = 100_000
MAX_WORDS: Final = 50
MAX_WORD: Final = 64
MAX_EXAMPLES: Final = 50
MAX_EXAMPLE: Final = 500
MAX_MEMBERS: Final = 200
_MAX_NAMED: Final = 200
_WORD: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

type Members = tuple[tuple[str, str, Where], ...]
"""Names of other agents that an agent names, each with its key and its place."""


def read_kind(section: Section) -> AgentKind | None:
    """``kind:``, ``llm`` where there is none, None where that has to be mended; keys of others are noted."""
    chosen = section.choice("kind", KINDS) if "kind" in section else "llm"
    kind: AgentKind | None = next((each for each in KINDS if each == chosen), None)
    if kind is None:  # which keys it may have is not known
        return None
    mine = ("kind", *KEYS_OF[kind], *COMMON_KEYS[1:])
    others = {key: each for each in reversed(KINDS) for key in KEYS_OF[each] if key not in mine}
    if "kind" not in section and not {"module", "card"} & section.table.entries.keys():
        kind = None if others.keys() & section.table.entries.keys() else kind
    for key in section.table.entries:
        if key in others:
            theirs = " or ".join(each for each in KINDS if key in KEYS_OF[each])
            section.error(
                key,
                f"is a key of kind {theirs}, and this agent is of kind {kind or 'llm'}",
                f"write `kind: {others[key]}`" if "kind" not in section else "leave it out",
            )
        elif key not in mine:
            section.error(key, "unknown key", allowed(mine), did_you_mean(key, mine))
    return kind


def read_capability_words(section: Section) -> tuple[str, ...]:
    """``capabilities``: what the agent can do, a word each, in the order given and once each."""
    given = section.texts("capabilities", "[coding, review]")
    if len(given) > MAX_WORDS:
        section.error("capabilities", f"has {len(given)} entries", f"allowed: at most {MAX_WORDS}")
    for word, where in given:
        if len(word) > MAX_WORD or not _WORD.fullmatch(word):
            better = re.sub(r"[^a-z0-9._-]+", "-", word.lower()).strip("-._")[:MAX_WORD]
            section.error(
                "capabilities",
                f"{word[:MAX_WORD]} is not a capability" if word else "is empty",
                f"allowed: a-z, 0-9 and . _ - after the first, at most {MAX_WORD}",
                suggest(better or None),
                where=where,
            )
    return tuple(dict.fromkeys(word for word, _ in given))


def read_examples(section: Section) -> tuple[str, ...]:
    """``examples``: questions that the agent is good at, a line each."""
    given = section.texts("examples", '["Why does this test fail?"]')
    if len(given) > MAX_EXAMPLES:
        section.error("examples", f"has {len(given)} entries", f"allowed: at most {MAX_EXAMPLES}")
    for text, where in given:
        if not text.strip():
            section.error("examples", "is empty", "write a question, or leave it out", where=where)
        elif len(text) > MAX_EXAMPLE:
            hint = f"allowed: 1 to {MAX_EXAMPLE} characters"
            section.error("examples", f"has {len(text)} characters", hint, where=where)
    return tuple(dict.fromkeys(" ".join(text.split()) for text, _ in given))


def read_worker(section: Section, name: str, root: Path) -> WorkerConfig | None:
    """The keys of a worker, None when its command is missing or wrong."""
    command = read_command(section) if section.need("command", "[python, worker.py]") else ()
    cwd = root / (section.text("cwd") or ".")
    if not is_folder(cwd):
        section.error(
            "cwd", "there is no such folder", "allowed: a folder; paths start at the project's folder"
        )
    env = _pairs(section, "env")
    _unset(section, name, "env", "command")
    timeout = section.number("request_timeout", 0.1, 3_600)
    config = WorkerConfig(
        command=command,
        cwd=cwd.absolute(),
        env=env,
        dialect=_choice(section, "dialect", get_args(Dialect), "auto"),
        agent_id=section.text("agent_id", most=_MAX_NAMED) or name,
        request_timeout=30.0 if timeout is None else timeout,
        capacity=_capacity(section, 1_000),
        permissions=_choice(section, "permissions", get_args(Permissions), "reject"),
    )
    return config if command else None


def read_remote(section: Section, name: str) -> RemoteConfig | None:
    """The keys of a remote agent, None when its URL is missing or wrong. Its headers are never repeated."""
    url = section.text("url", check=url_problem) if section.need("url", "https://HOST/mcp") else None
    headers = _headers(section)
    unset = _unset(section, name, "headers", "url")
    forward = section.flag("forward_inbound_auth") or False
    if forward and any(key.lower() == "authorization" for key in headers):
        section.error(
            "forward_inbound_auth",
            "is given beside headers.Authorization",
            "allowed: one of them; the caller's own token, or one of the project's",
        )
    if url is not None:
        _warn_of_url(section, url, forward=forward or bool(headers))
    config = RemoteConfig(
        url=url or "",
        tool=section.text("tool", most=_MAX_NAMED) or "",
        argument=section.text("argument", most=_MAX_NAMED) or "",
        conversation=section.text("conversation", most=_MAX_NAMED) or "",
        headers=headers,
        forward_inbound_auth=forward,
        capacity=_capacity(section, 32),
        unset=unset,
    )
    return config if url else None


def read_handler(section: Section, root: Path, name: str) -> HandlerConfig | None:
    """The keys of a handler, None when its code is not named. Nothing is imported."""
    typed = read_typed(section, root, name)
    if typed is not None and "env" in section:
        typed = replace(typed, env=read_environment(section, name))
    path: str | None
    if typed is not None:
        path = read_object(section, "handler", root, "my.code:answer")
    else:
        path = (
            section.text("handler", check=_path_problem) if section.need("handler", "my.code:AGENT") else None
        )
        if path:
            check_module(section, "handler", root, path.partition(":")[0])
    capacity = _capacity(section, 64)
    if typed is not None and "capacity" in section:
        typed = replace(typed, capacity=capacity)
    return HandlerConfig(path, capacity, typed=typed) if path else None


def read_router(section: Section) -> tuple[RouterConfig | None, Members]:
    """The keys of a router, None when it names nobody, and the agents it names."""
    listed = section.texts("agents", "[coder, writer]") if section.need("agents", "[coder, writer]") else ()
    members = dict(reversed(listed))
    if "agents" in section and not listed:
        section.error("agents", "names no agent", "required: the agents among whom it chooses")
    if len(members) > MAX_MEMBERS:
        section.error("agents", f"has {len(members)} entries", f"allowed: at most {MAX_MEMBERS}")
    by = _choice(section, "by", get_args(RouteBy), "examples")
    ask, fallback = section.text("ask") or "", section.text("fallback") or ""
    if by == "model" and "ask" not in section:
        section.error("ask", "is missing", "required with `by: model`: the agent that is asked who answers")
    elif by != "model" and "ask" in section:
        section.error("ask", f"is for `by: model`, and this is `by: {by}`", "leave it out")
    named: list[tuple[str, str, Where]] = [
        (name, "agents", members[name]) for name in dict.fromkeys(name for name, _ in listed)
    ]
    named += [(name, key, section.place(key)) for key, name in (("ask", ask), ("fallback", fallback)) if name]
    config = RouterConfig(tuple(dict.fromkeys(name for name, _ in listed)), by, ask, fallback)
    return (config if listed else None), tuple(named)


def _choice[T](section: Section, key: str, choices: tuple[T, ...], default: T) -> T:
    chosen = section.choice(key, cast("tuple[str, ...]", choices))
    return next((each for each in choices if each == chosen), default)


def _capacity(section: Section, default: int) -> int:
    given = section.integer("capacity", 1, MAX_CAPACITY)
    return default if given is None else given


def read_environment(section: Section, name: str) -> dict[str, str]:
    """``env`` of what runs in the fleet's process, unless it has one of its own."""
    if "env" not in section:
        return {}
    if section.choice("isolation", ("none", "process")) != "process":
        section.error("env", "needs `isolation: process`", "write it, or leave env out")
    env = _pairs(section, "env")
    _unset(section, name, "env")
    return env


def _pairs(section: Section, key: str) -> dict[str, str]:
    found = section.pairs(key) if key in section else {}
    for name in found:
        if not name or "=" in name or "\0" in name:
            section.error(key, f"{name or 'an empty text'} is not a name of a variable", "write NAME: value")
    return found


def _headers(section: Section) -> dict[str, str]:
    """Header values are often secrets: what is wrong with one is said without repeating it."""
    node = section.table.get("headers")
    if not isinstance(node, Table):
        return section.pairs("headers") if node is not None else {}
    quiet = Section(section.table, section.path, section.where, section.notes, echo=False)
    found = quiet.pairs("headers")
    for name, value in found.items():
        if not _HEADER.fullmatch(name) or any(ord(char) < 32 or ord(char) == 127 for char in value):
            section.error(
                "headers",
                f"{name} cannot be sent as a header",
                "allowed: a name of letters, digits and -, and a value on one line",
                where=node.entries[name].where,
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
