"""`pallas get`: lists and single things, as a table, or as what `pallas apply` accepts."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pallas.safe_text import one_line

from .cost_list import cost_text
from .fleet_requests import OK, USAGE, FleetLocation, Wrong, complain, run_with_fleet
from .resource_documents import document_of, list_of
from .resource_kinds import KindInfo, NoSuchKind, split
from .text_output import FORMATS, as_json, as_yaml, seconds, when
from .text_tables import table, width_of

if TYPE_CHECKING:
    from pallas.client import RestClient

_MAX_ARGUMENTS: Final = 200
_MAX_ANSWER: Final = 300

MOST: Final = 10_000
USUAL: Final = 100
"""Default number of rows."""
Body = dict[str, Any]


def conversation(thread: Mapping[str, Any]) -> str:
    """Return the thread's heading and its messages, the oldest first."""
    title = one_line(str(thread.get("title") or ""), 200)
    head = f"{thread.get('id')}  {thread.get('agent')}{'  ' + title if title else ''}"
    blocks = [head, *(_block(each) for each in thread.get("messages") or () if isinstance(each, Mapping))]
    return "\n\n".join(blocks)


def _block(message: Mapping[str, Any]) -> str:
    role = str(message.get("role") or "?")
    notes = [str(message["status"])] if message.get("status") not in (None, "complete") else []
    if message.get("reason"):
        notes.append(one_line(str(message["reason"]), 200))
    if message.get("summary"):
        notes.append("summary of earlier messages")
    shown = f"{role}  {when(message.get('createdAt'))}".rstrip() + (
        f"  [{': '.join(notes)}]" if notes else ""
    )
    lines = [shown]
    content = str(message.get("content") or "")
    if role == "tool":
        lines.append(f"  → {one_line(content, _MAX_ANSWER)}")
    elif content:
        lines += [f"  {line}".rstrip() for line in content.split("\n")]
    for image in message.get("images") or ():
        kind = image.get("mimeType") if isinstance(image, Mapping) else ""
        lines.append(f"  [image {kind or ''}]".replace(" ]", "]"))
    for call in message.get("toolCalls") or ():
        if isinstance(call, Mapping):
            lines.append(f"  {call.get('name')}({_arguments(call.get('arguments'))})")
    return "\n".join(lines)


def _arguments(value: Any) -> str:
    if isinstance(value, Mapping):
        value = ", ".join(f"{key}={json.dumps(each, ensure_ascii=False)}" for key, each in value.items())
    return one_line(str(value if value is not None else ""), _MAX_ARGUMENTS)


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The options. ``project`` and the following narrow lists; ``limit`` is 0 for the default."""

    words: tuple[str, ...]
    output: str = "table"
    project: str = ""
    agent: str = ""
    thread: str = ""
    status: str = ""
    search: str = ""
    limit: int = 0


def get(options: ListOptions, reach: FleetLocation) -> int:
    """Print the list or the things; returns the exit status."""
    try:
        resources = split(list(options.words))
        if options.output not in FORMATS:
            raise Wrong(f"--output {options.output[:40]}: allowed: {', '.join(FORMATS)}")
        if not all(name for _, name in resources) and len(resources) > 1:
            raise Wrong("a name is missing after a /")
        _narrowing(options, resources[0][0], alone=bool(resources[0][1]))
    except (NoSuchKind, Wrong) as error:
        complain(f"pallas get: {error}")
        return USAGE

    async def work(api: "RestClient") -> int:
        if resources[0][1]:
            return await _named(api, resources, options)
        return await _listed(api, resources[0][0], options)

    return run_with_fleet(reach, work)


def _narrowing(options: ListOptions, kind: KindInfo, *, alone: bool) -> None:
    """Return the query parameters. Raises Wrong for an option that does not apply to that kind."""
    allowed = {
        "agent": ("project",),
        "thread": ("agent", "search"),
        "run": ("agent", "thread", "status"),
        "question": ("thread", "status"),
    }
    for option, value in (
        ("project", options.project),
        ("agent", options.agent),
        ("thread", options.thread),
        ("status", options.status),
        ("search", options.search),
    ):
        if value and (alone or option not in allowed.get(kind.word, ())):
            shown = "project-name" if option == "project" else option
            raise Wrong(
                f"--{shown} is not for {kind.word + ' ' if alone else ''}{'NAME' if alone else kind.plural}"
            )


async def _listed(api: "RestClient", kind: KindInfo, options: ListOptions) -> int:
    from pallas.client.rest_client import part

    path = f"/projects/{part(options.project)}/agents" if options.project else kind.path
    most = min(options.limit or USUAL, MOST)
    status = "state" if kind.word == "question" else "status"
    query = {
        "agent": options.agent,
        "thread": options.thread,
        status: options.status,
        "search": options.search,
    }
    # One row more than is shown tells whether there are more.
    found = [
        item async for item in api.items(path, most=most + 1, visible=options.output == "table", **query)
    ]
    shown = found[:most]
    _show(kind, shown, options.output, alone=False)
    if len(found) > most:
        complain(f"… and more: --limit {min(10 * most, MOST)}")
    elif not found and options.output == "table":
        complain(f"no {kind.plural}")
    return OK


async def _named(api: "RestClient", resources: Sequence[tuple[KindInfo, str]], options: ListOptions) -> int:
    from pallas.client.rest_client import part

    groups: dict[str, tuple[KindInfo, list[Body]]] = {}
    for kind, name in resources:
        body = await api.get(f"{kind.path}/{part(name)}", visible=options.output == "table")
        if kind.word == "thread":
            await _messages(api, body, options)
        groups.setdefault(kind.word, (kind, []))[1].append(body)
    for number, (kind, bodies) in enumerate(groups.values()):
        if number:
            print("---" if options.output == "yaml" else "")
        _show(kind, bodies, options.output, alone=len(resources) == 1)
    return OK


async def _messages(api: "RestClient", body: Body, options: ListOptions) -> None:
    """Add the last messages of a thread, the oldest of them first."""
    from pallas.client.rest_client import part

    most = min(options.limit or USUAL, MOST)
    path = f"/threads/{part(str(body.get('id')))}/messages"
    found = [
        each async for each in api.items(path, most=most, visible=options.output == "table", order="desc")
    ]
    total = body.get("messages")
    body["messages"] = found[::-1]
    if isinstance(total, int) and total > len(found):
        complain(f"the last {len(found)} of {total} messages: --limit {total}")


def _show(kind: KindInfo, bodies: Sequence[Body], output: str, *, alone: bool) -> None:
    if output == "table":
        if kind.word == "thread" and bodies and isinstance(bodies[0].get("messages"), list):
            print("\n\n".join(conversation(body) for body in bodies))
        elif bodies:
            columns = COLUMNS[kind.word]
            if any(body.get("snippet") for body in bodies):
                columns = {**columns, "FOUND": _text("snippet")}
            rows = [[cell(body) for cell in columns.values()] for body in bodies]
            print(table(list(columns), rows, width_of()))
        return
    # Of two agents of one name, the one created over the API is the one that can be applied.
    bodies = [body for body in bodies if not (kind.has_document and body.get("shadows"))]
    documents = [document_of(kind.word, body) if kind.has_document else body for body in bodies]
    if output == "yaml":
        print(as_yaml(documents) if documents or alone else "[]")
    elif alone:
        print(as_json(documents[0]))
    else:
        print(as_json(list_of(documents) if kind.has_document else {"items": documents}))


def _text(key: str) -> Callable[[Body], str]:
    return lambda body: str(body.get(key) if body.get(key) is not None else "")


def _name(key: str) -> Callable[[Body], str]:
    def cell(body: Body) -> str:
        value = body.get(key)
        return str((value.get("name") if isinstance(value, Mapping) else value) or "")

    return cell


def _time(key: str) -> Callable[[Body], str]:
    return lambda body: when(body.get(key))


def _number(key: str) -> Callable[[Body], str]:
    return lambda body: f"{number:,}" if isinstance(number := body.get(key), int) else ""


def _bytes(key: str) -> Callable[[Body], str]:
    def cell(body: Body) -> str:
        left, units = body.get(key), ["bytes", "KiB", "MiB", "GiB"]
        if not isinstance(left, int):
            return ""
        unit = min(len(units) - 1, max(0, left.bit_length() - 1) // 10)
        return f"{left / 2 ** (10 * unit):.1f} {units[unit]}" if unit else f"{left} bytes"

    return cell


def _state(body: Body) -> str:
    if body.get("shadowed"):
        return "shadowed"
    state, health = str(body.get("state") or ""), body.get("health")
    word = str(health.get("status") if isinstance(health, Mapping) else health or "")
    return f"{state} ({word})" if word and word not in ("ok", state) else state or "not running"


def _source(body: Body) -> str:
    shadowed = body.get("shadowed")
    return f"{body.get('source')} (shadowed by {shadowed})" if shadowed else str(body.get("source") or "")


def _key(body: Body) -> str:
    ref = body.get("apiKeyRef")
    return f"{ref.get('name')}/{ref.get('key')}" if isinstance(ref, Mapping) else str(ref or "")


def _names(key: str) -> Callable[[Body], str]:
    def cell(body: Body) -> str:
        values = body.get(key)
        each = values if isinstance(values, list) else []
        return ", ".join(str(item.get("name", "?") if isinstance(item, Mapping) else item) for item in each)

    return cell


def _count(key: str) -> Callable[[Body], str]:
    return lambda body: str(len(body.get(key) or []))


COLUMNS: Final[Mapping[str, Mapping[str, Callable[[Body], str]]]] = {
    "agent": {
        "NAME": _text("name"),
        "KIND": _text("kind"),
        "STATE": _state,
        "LLM": lambda agent: _name("llm")(agent) or _text("model")(agent),
        "PROJECT": _name("project"),
        "SERVES": _text("serves"),
        "SOURCE": _source,
        "DESCRIPTION": _text("description"),
    },
    "llm": {
        "NAME": _text("name"),
        "TYPE": _text("type"),
        "MODEL": _text("model"),
        "URL": _text("url"),
        "KEY": _key,
        "DESCRIPTION": _text("description"),
    },
    "secret": {"NAME": _text("name"), "KEYS": _names("keys"), "CHANGED": _time("updatedAt")},
    "project": {
        "NAME": _text("name"),
        "SERVERS": _names("servers"),
        "PROMPTS": _count("prompts"),
        "DESCRIPTION": _text("description"),
    },
    "thread": {
        "ID": _text("id"),
        "AGENT": _text("agent"),
        "MESSAGES": _text("messages"),
        "COST": cost_text,
        "LAST TURN": _time("lastTurnAt"),
        "TITLE": _text("title"),
    },
    "run": {
        "ID": _text("id"),
        "AGENT": _text("agent"),
        "STATUS": _text("status"),
        "STARTED": _time("startedAt"),
        "TOOK": lambda body: seconds(body.get("seconds")),
        "STEPS": _text("steps"),
        "TOOLS": _text("tools"),
        "COST": cost_text,
        "TREE": lambda body: cost_text(body, tree=True),
        "THREAD": _text("threadId"),
    },
    "question": {
        "ID": _text("id"),
        "AGENTS": lambda body: " > ".join(map(str, (*(body.get("path") or ()), body.get("agent")))),
        "TOOL": _text("tool"),
        "STATE": lambda body: str(body.get("action") or body.get("state") or ""),
        "UNTIL": _time("expiresAt"),
        "ARGUMENTS": lambda body: _arguments(body.get("arguments")),
        "MESSAGE": lambda body: "" if body.get("tool") else one_line(str(body.get("message")), 200),
    },
    "audit": {
        "AT": _time("at"),
        "WHO": _text("who"),
        "WHAT": _text("what"),
        "AGENT": _text("agent"),
        "TOOL": _text("tool"),
        "RUN": _text("run"),
        "DIGEST": lambda body: str(body.get("digest") or "")[:12],
        "DETAIL": _text("detail"),
    },
    "replica": {
        "ID": lambda body: f"{body.get('id')}{' *' if body.get('isHere') else ''}",
        "HOST": _text("host"),
        "PID": _text("pid"),
        "RELEASE": _text("release"),
        "STATE": _text("state"),
        "STARTED": _time("startedAt"),
        "LAST BEAT": lambda body: seconds(body.get("lastBeatSeconds")),
        "RUNS": _text("runs"),
        "CONTINUED": _text("continued"),
        "TAKEN OVER": _text("takenOver"),
    },
    "storage": {
        "WHAT": _text("what"),
        "COUNT": _number("count"),
        "CHARACTERS": _number("characters"),
        "STORED": _bytes("storedBytes"),
        "LIMIT": _bytes("limitBytes"),
    },
    "limit": {
        "ACCOUNT": _text("scope"),
        "LIMIT": _text("limit"),
        "ALLOWED": _text("allowed"),
        "USED": _text("used"),
        "HELD": _text("held"),
        "LEFT": _text("left"),
        "RESETS": _time("resetsAt"),
        "WHERE": _text("where"),
    },
}
