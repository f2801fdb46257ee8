"""``listeners:`` of an ``organism.yaml``: each is a typed handler. Nothing is imported."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from .agents import Draft, name_hint, name_problem
from .field_types import Maybe, MissingHint, TextRule
from .file_model import FileModel
from .kinds import HandlerConfig, TypedConfig
from .models import AgentConfig
from .notes import nearest
from .section import Section
from .tree import Leaf
from .typed_handlers import (
    DEFAULT_TIMEOUT,
    Files,
    Peers,
    Prompt,
    Timeout,
    class_problem,
    files_of,
    object_named,
    object_problem,
    once_each,
    prompt_of,
    split_object,
)

_ITS_CODE: Final = "the handler's code sets it, in its call of complete()"
_ITS_PEERS: Final = "peers: names the agents that it may call"
NOT_USED: Final[Mapping[str, str]] = {
    "model": _ITS_CODE,
    "temperature": _ITS_CODE,
    "max_tokens": _ITS_CODE,
    "allowed_tools": _ITS_PEERS,
    "blocked_tools": _ITS_PEERS,
    "gateway": "agents of another fleet are `kind: remote` in agents.yaml",
    "verbose": "the log has its own levels, by agent",
    "confirm_actions": "no person is asked before a handler is called",
    "metadata": "a handler gets only what the handler contract lists",
}
"""Keys that such files have and that change nothing here, each with why."""
# Says no more than that it is no agent, which is known.
TOOL: Final = "tool"
FOREIGN: Final = ("xml_pipeline", "agentserver")
"""The package that organisms are written for, and the name that it had before."""
CONSOLE: Final = "console"
"""The listener that asks a person for lines; it gets its first prompt from the fleet (HC-26)."""
CONSOLE_TIMEOUT: Final = 7 * 86_400.0
"""Seconds that it waits for a line unless it says otherwise: a person may take long."""
MAX_DESCRIPTION: Final = 1_000


def _name_refusal(text: str) -> str | None:
    problem = name_problem(text)
    return f"{text} {problem}; {name_hint(text)}" if problem else None


class ListenerEntry(FileModel):
    """A typed handler, as xml-pipeline writes it down."""

    name: Annotated[str, TextRule(_name_refusal), Field(examples=["greeter"])]
    """The agent's name."""
    payload_class: Annotated[str, TextRule(class_problem), Field(examples=["my.code.Greeting"])]
    """The dataclass that it takes: ``module.Class``."""
    handler: Annotated[
        str,
        TextRule(object_problem),
        MissingHint(
            "required, for example `handler: my.code.handle_greeting`; an agent that is only a prompt and a "
            "model is one of kind llm in agents.yaml"
        ),
    ]
    """The function that answers: ``module.name``."""
    description: Annotated[
        str,
        TextRule(most=MAX_DESCRIPTION),
        MissingHint("required: what it is for; agents that may call it get this"),
    ]
    """A description of its purpose."""
    agent: bool = False
    """Its metadata has its own name."""
    peers: Peers = None
    """Agents that it may send messages to, beside its caller."""
    broadcast: bool = False
    """Other handlers may share its name as a target; a message to that name goes to all of them."""
    prompt: Prompt = None
    """A text before each of its questions to a model; its code cannot read it."""
    cpu_bound: bool = False
    """It runs in a process of its own."""
    timeout: Maybe[Timeout] = None
    """Seconds for one message."""
    files: Files = None
    """Files and folders of the project that it may open beside its code; needs ``cpu_bound: true``."""
    tool: Any = None
    """Not used: it is no agent unless it says ``agent: true``."""
    model: Any = None
    """Not used."""
    temperature: Any = None
    """Not used."""
    max_tokens: Any = None
    """Not used."""
    allowed_tools: Any = None
    """Not used."""
    blocked_tools: Any = None
    """Not used."""
    gateway: Any = None
    """Not used."""
    verbose: Any = None
    """Not used."""
    confirm_actions: Any = None
    """Not used."""
    metadata: Any = None
    """Not used."""

    @classmethod
    def unknown_key(cls, key: str, section: Section) -> tuple[str, ...] | None:
        """As in ``FileModel``, without the keys that change nothing."""
        known = [name for name in cls.model_fields if name != TOOL and name not in NOT_USED]
        near = nearest(key, known)
        return "unknown key", f"did you mean {near}" if near else f"allowed: {', '.join(known)}"


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


def listeners_of(top: Section, entries: Sequence[ListenerEntry], root: Path) -> dict[str, Draft]:
    """Every listener as an agent, by its name; those that share a name are numbered from the second on.

    ``prices``, ``prices.2`` and ``prices.3`` are in the group ``prices``. Every mistake is noted.
    """
    read = [found for entry in entries if (found := _listener(entry, root)) is not None]
    drafts = _named(read)
    silent = [
        name
        for name, draft in drafts.items()
        if not draft.peers and draft.config.typed is not None and not draft.config.typed.forwards_freely
    ]
    if silent:
        top.warn(
            "listeners",
            f"{', '.join(silent)}: without peers they can answer their caller, and send to no other agent",
            "name under peers: whom each of them sends to",
        )
    return drafts


def _listener(entry: ListenerEntry, root: Path) -> _Read | None:
    """One entry; None where it has no usable name."""
    section, name = entry.at, entry.name
    _warn_of_unused(section)
    payload = object_named(section, "payload_class", root, entry.payload_class, foreign=FOREIGN)
    handler = object_named(section, "handler", root, entry.handler, foreign=FOREIGN)
    peers = once_each(entry.listed("peers"))
    default_timeout = CONSOLE_TIMEOUT if name == CONSOLE else DEFAULT_TIMEOUT
    typed = TypedConfig(
        payload=payload or "",
        agent=entry.agent,
        timeout=default_timeout if entry.timeout is None else entry.timeout,
        broadcast=entry.broadcast,
        group=(name or "") if entry.broadcast else "",
        prompt=prompt_of(section, entry.prompt),
        files=files_of(section, root, entry.listed("files"), isolated=entry.cpu_bound),
        listener=True,
        forwards_freely=not entry.agent and "peers" not in section,
    )
    if not name:  # None after a mistake
        return None
    config = AgentConfig(
        name=name,
        port=0,
        title=name.title(),
        description=entry.description or name,
        kind="handler",
        handler=HandlerConfig(handler or "", typed=typed),
        isolation="process" if entry.cpu_bound else "none",
        peers=tuple(peer for peer, _ in peers),
        where=section.where,
    )
    kind = split_object(payload)[1] if payload else ""
    draft = Draft(config, (), None, peers=peers, path=section.path)
    return _Read(section, name, f"{name}.{kind}".lower() if kind else "", entry.broadcast, draft)


def _warn_of_unused(section: Section) -> None:
    for key, why in NOT_USED.items():
        entry = section.table.entries.get(key)
        if entry and not (isinstance(entry.node, Leaf) and entry.node.value in (None, False)):
            section.warn(key, "is not used", why)


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
