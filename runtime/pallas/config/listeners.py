"""``listeners:`` of an ``organism.yaml``: each is a typed handler (SPEC 5.1). Nothing is imported."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from .agents import Draft, name_hint, name_problem
from .kinds import HandlerConfig, TypedConfig
from .models import AgentConfig
from .notes import nearest
from .read_typed import (
    DEFAULT_TIMEOUT,
    MAX_TIMEOUT,
    read_files,
    read_object,
    read_peers,
    read_prompt,
    split_object,
)
from .section import Section
from .tree import Items, Leaf

LISTENER_KEYS: Final = (
    "name", "payload_class", "handler", "description", "agent", "peers", "broadcast", "prompt", "cpu_bound",
    "timeout", "files",
)  # fmt: skip
_ITS_CODE: Final = "the handler's code says it, in its call of complete()"
_ITS_PEERS: Final = "whom it may call is said by peers:"
NOT_USED: Final[Mapping[str, str]] = {
    "model": _ITS_CODE,
    "temperature": _ITS_CODE,
    "max_tokens": _ITS_CODE,
    "allowed_tools": _ITS_PEERS,
    "blocked_tools": _ITS_PEERS,
    "gateway": "agents of another fleet are `kind: remote` in agents.yaml",
    "verbose": "the log has levels of its own, by agent",
    "confirm_actions": "nothing asks before a handler is called",
    "metadata": "a handler is told what the handler contract says, and no more",
}
"""Keys that such files have and that change nothing here, each with why."""
# Says no more than that it is no agent, which is known.
TOOL: Final = "tool"
FOREIGN: Final = ("xml_pipeline", "agentserver")
"""The package that organisms are written for, and the name that it had before."""
CONSOLE: Final = "console"
"""The listener that asks a person for lines; it gets its first prompt from the fleet (SPEC HC-26)."""
CONSOLE_TIMEOUT: Final = 7 * 86_400.0
"""Seconds that it waits for a line unless it says otherwise: a person may take long."""
MAX_LISTENERS: Final = 1_000
MAX_DESCRIPTION: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Read:
    section: Section
    name: str
    tag: str
    """``name.class`` in lower case, empty where one of them is missing."""
    broadcast: bool
    draft: Draft


def has_console(agents: Mapping[str, AgentConfig]) -> bool:
    """Whether an organism.yaml declares a listener ``console``."""
    config = agents.get(CONSOLE)
    return config is not None and config.typed is not None and config.typed.listener


def read_listeners(top: Section, root: Path) -> dict[str, Draft]:
    """Every listener as an agent, by its name; those that share a name are numbered from the second on.

    ``prices``, ``prices.2`` and ``prices.3`` are in the group ``prices``. Every mistake is noted.
    """
    node = top.table.get("listeners")
    if isinstance(node, Leaf) and node.value is None:
        node = None
    if not isinstance(node, Items):
        if node is not None:
            top.texts("listeners", "`- name: greeter` and so on, a list")
        return {}
    if len(node.items) > MAX_LISTENERS:
        top.error("listeners", f"has {len(node.items)} entries", f"allowed: at most {MAX_LISTENERS}")
    sections = (
        top.section_of(item, f"listeners[{number}]", item.where)
        for number, item in enumerate(node.items[:MAX_LISTENERS])
    )
    read = [found for each in sections if each is not None and (found := _listener(each, root)) is not None]
    drafts = _named(read)
    silent = [
        name
        for name, draft in drafts.items()
        if not draft.peers and draft.config.typed is not None and not draft.config.typed.forwards_freely
    ]
    if silent:
        top.warn(
            "listeners",
            f"{', '.join(silent)}: without peers they can answer their caller, and send to nobody else",
            "name under peers: whom each of them sends to",
        )
    return drafts


def _listener(section: Section, root: Path) -> _Read | None:
    """One entry; None where it has no name that could stand for it."""
    _look_at_keys(section)
    name = section.text("name", check=_name_refusal) if section.need("name", "greeter") else None
    payload = read_object(section, "payload_class", root, "my.code.Greeting", foreign=FOREIGN)
    handler = _handler(section, root)
    description = section.text("description", most=MAX_DESCRIPTION)
    if "description" not in section:
        section.error(
            "description",
            "is missing",
            "required: what it is for; others are told this when they may call it",
        )
    broadcast = section.flag("broadcast") or False
    timeout = section.number("timeout", 0.1, MAX_TIMEOUT)
    peers = read_peers(section)
    cpu_bound = section.flag("cpu_bound") or False
    agent = section.flag("agent") or False
    default_timeout = CONSOLE_TIMEOUT if name == CONSOLE else DEFAULT_TIMEOUT
    typed = TypedConfig(
        payload=payload or "",
        agent=agent,
        timeout=default_timeout if timeout is None else timeout,
        broadcast=broadcast,
        group=(name or "") if broadcast else "",
        prompt=read_prompt(section),
        files=read_files(section, root, isolated=cpu_bound),
        listener=True,
        forwards_freely=not agent and "peers" not in section,
    )
    if name is None:
        return None
    config = AgentConfig(
        name=name,
        port=0,
        title=name.title(),
        description=description or name,
        kind="handler",
        handler=HandlerConfig(handler or "", typed=typed),
        isolation="process" if cpu_bound else "none",
        peers=tuple(peer for peer, _ in peers),
        where=section.where,
    )
    kind = split_object(payload)[1] if payload else ""
    draft = Draft(config, (), None, peers=peers, path=section.path)
    return _Read(section, name, f"{name}.{kind}".lower() if kind else "", broadcast, draft)


def _look_at_keys(section: Section) -> None:
    known = (*LISTENER_KEYS, TOOL, *NOT_USED)
    for key, entry in section.table.entries.items():
        if key not in known:
            near = nearest(key, LISTENER_KEYS)
            hint = f"did you mean {near}" if near else f"allowed: {', '.join(LISTENER_KEYS)}"
            section.error(key, "unknown key", hint)
        elif key in NOT_USED and not (isinstance(entry.node, Leaf) and entry.node.value in (None, False)):
            section.warn(key, "is not used", NOT_USED[key])


def _handler(section: Section, root: Path) -> str | None:
    if "handler" in section:
        return read_object(section, "handler", root, "my.code.handle_greeting", foreign=FOREIGN)
    section.error(
        "handler",
        "is missing",
        "required, for example `handler: my.code.handle_greeting`; what is a prompt and a model alone is an "
        "agent of agents.yaml, kind llm",
    )
    return None


def _named(read: list[_Read]) -> dict[str, Draft]:
    """All of them by name. A name is given once, but for broadcast listeners of one root tag."""
    found: dict[str, Draft] = {}
    first: dict[str, _Read] = {}
    taken = {each.name for each in read}
    for each in read:
        before = first.setdefault(each.name, each)
        if before is each:
            found[each.name] = each.draft
            continue
        other = f"{before.section.path} ({before.section.place('name')})"
        if not each.tag or each.tag != before.tag:
            each.section.error("name", f"{each.name} is the name of {other} too", "give each its own name")
        elif not (each.broadcast and before.broadcast):
            each.section.error(
                "name",
                f"has the root tag {each.tag}, as has {other}",
                "allowed: a root tag (name.class) of its own, or `broadcast: true` at all that share it",
            )
        else:
            name = _free(each.name, taken)
            taken.add(name)
            config = replace(each.draft.config, name=name, title=name.title())
            found[name] = replace(each.draft, config=config)
    return found


def _free(name: str, taken: set[str]) -> str:
    number = 2
    while f"{name}.{number}" in taken:
        number += 1
    return f"{name}.{number}"


def _name_refusal(text: str) -> str | None:
    problem = name_problem(text)
    return f"{text} {problem}; {name_hint(text)}" if problem else None
