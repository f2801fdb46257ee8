"""A fleet in which models ask handlers, handlers models, and models each other."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pallas.fleet.fleet import Fleet
from pallas.model import Event, RunEvent, RunFinished, RunStarted, ToolEvent

from .offline import offline_project
from .project_modules import module_at

HANDLERS = '''
"""Handlers that models ask, and one that asks a model."""

import asyncio
from dataclasses import dataclass, field

from fast_agent.mcp.auth.context import request_bearer_token

from pallas.contract import HandlerResponse, SystemError, Text

HELD = []


@dataclass
class Note:
    """What to remember of it."""

    text: str
    loud: bool = False


@dataclass
class Add:
    """Two numbers to be added."""

    a: int
    b: int = 0
    note: Note | None = None
    more: list[Note] = field(default_factory=list)


@dataclass
class Sum:
    total: int
    says: str = ""


@dataclass
class Task:
    about: str


@dataclass
class Report:
    text: str


async def add(payload: Add, metadata) -> HandlerResponse:
    if payload.a == 13:
        raise ValueError("secret reason")
    says = "+".join([*([payload.note.text] if payload.note else []), *(each.text for each in payload.more)])
    return HandlerResponse.respond(Sum(payload.a + payload.b, says or metadata.from_id))


async def clerk(payload, metadata) -> HandlerResponse:
    if isinstance(payload, Task):
        return HandlerResponse(Text("write about " + payload.about), to="writer")
    if isinstance(payload, SystemError):
        return HandlerResponse.respond(Report("refused: " + payload.code))
    return HandlerResponse.respond(Report(f"clerk has: {payload.text}"))


async def hold(payload: Task, metadata) -> HandlerResponse:
    HELD.append(["begun", payload.about])
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        HELD.append(["cancelled", payload.about])
        raise


async def teller(payload: Task, metadata) -> HandlerResponse:
    return HandlerResponse.respond(Report(f"bearer {request_bearer_token.get(None)} from {metadata.from_id}"))
'''
SCRIPT = r"""
rules:
  - when: {last: user, system: You are desk, regex: '^add (?P<a>\d+) (?P<b>\d+)$'}
    call: [{tool: adder, arguments: {a: "{{ match.a | number }}", b: "{{ match.b | number }}"}}]
  - when: {last: user, system: You are desk, text: add with notes}
    call:
      - tool: adder
        arguments: {a: 1, b: 2, note: {text: one, loud: true}, more: [{text: two}, {text: three}]}
  - when: {last: user, system: You are desk, text: add badly}
    call: [{tool: adder, arguments: {a: many}}]
  - when: {last: tool, system: You are desk, user: add badly, text: Correct the arguments}
    call: [{tool: adder, arguments: {a: 40, b: 2}}]
  - when: {last: user, system: You are desk, text: slowly}
    delay: 2
    call: [{tool: office_clerk, arguments: {about: "{{ last }}"}}]
  - when: {last: user, system: You are desk, text: have it written}
    call: [{tool: office_clerk, arguments: {about: "{{ last }}"}}]
  - when: {last: user, system: You are desk, text: ask the writer}
    call: [{tool: writer, arguments: {message: "write about {{ last }}"}}]
  - when: {last: user, system: You are desk, text: hold}
    call: [{tool: office_clerk, arguments: {about: "{{ last }}"}}]
  - when: {last: user, system: You are desk, text: again and again}
    call: [{tool: adder, arguments: {a: 1, b: 1}}]
  - when: {last: tool, system: You are desk, user: again and again}
    call: [{tool: adder, arguments: {a: 1, b: 1}}]
  - when: {last: user, system: You are desk, text: both at once}
    call:
      - {tool: adder, arguments: {a: 1, b: 1}}
      - {tool: writer, arguments: {message: "write about both"}}
  - when: {last: user, system: You are desk, text: bearer}
    call: [{tool: teller, arguments: {about: it}}]
  - when: {last: user, system: You are desk, text: round and round}
    call: [{tool: writer, arguments: {message: "round and round"}}]
  - when: {last: user, system: You are writer, text: round and round}
    call: [{tool: desk, arguments: {message: "round and round"}}]
  - when: {last: user, system: You are writer, text: hold}
    call: [{tool: holder, arguments: {about: "{{ last }}"}}]
  - when: {last: user, system: You are writer, regex: '(?P<n>\d+)'}
    call: [{tool: adder, arguments: {a: "{{ match.n | number }}"}}]
  - when: {last: user, system: You are writer}
    call: [{tool: adder, arguments: {a: 7}}]
  - when: {last: tool}
    say: "{{ result }}"
  - when: {last: user}
    say: "just {{ last }}"
"""
ENTRIES: dict[str, dict[str, Any]] = {
    "adder": {"handler": "hands:add", "payload": "hands:Add", "description": "Adds two numbers."},
    "office.clerk": {
        "handler": "hands:clerk",
        "payload": "hands:Task",
        "description": "Has things written.",
        "agent": True,
        "peers": ["writer"],
    },
    "holder": {"handler": "hands:hold", "payload": "hands:Task", "description": "Holds what it gets."},
    "teller": {"handler": "hands:teller", "payload": "hands:Task", "description": "Tells."},
}
DESK_PEERS = ["adder", "office.clerk", "writer", "teller"]


def peered_project(root: Path, *, isolation: str = "none", **more: Any) -> Path:
    """A project with two models, ``desk`` and ``writer``, and the handlers above."""
    agents: dict[str, str | None] = {"desk": None, "writer": None, **dict.fromkeys(ENTRIES)}
    keys: dict[str, dict[str, Any]] = {
        "desk": {"peers": DESK_PEERS, "isolation": isolation, "max_instances": 24},
        "writer": {"peers": ["adder", "holder", "desk"], "description": "Writes.", "max_instances": 24},
        **{name: {"kind": "handler", "module": None, **entry} for name, entry in ENTRIES.items()},
    }
    for name, entry in more.pop("keys", {}).items():
        agents.setdefault(name, None)
        keys[name] = {**keys.get(name, {}), **entry}
    files = {"hands.py": HANDLERS, **more.pop("files", {})}
    return offline_project(root, agents, more.pop("script", SCRIPT), keys=keys, files=files, **more)


def held(fleet: Fleet) -> list[list[str]]:
    """What the handler ``holder`` of this process was given, and whether it was cancelled."""
    found: list[list[str]] = module_at(fleet.project.root, "hands").HELD
    return found


class Tree:
    """The runs of one trace, and which call each hangs below."""

    def __init__(self, events: Iterable[Event], trace_id: str) -> None:
        told = list(events)
        self.started = [each for each in told if isinstance(each, RunStarted) and each.trace_id == trace_id]
        runs = {event.run_id for event in self.started}
        of_them = [each for each in told if isinstance(each, RunEvent) and each.run_id in runs]
        self.calls = [each for each in of_them if isinstance(each, ToolEvent)]
        self.finished = [each for each in of_them if isinstance(each, RunFinished)]

    def above(self, run: RunStarted) -> tuple[str, str]:
        """The agent whose call this run hangs below, and what that call is told as; empty for the first."""
        for call in self.calls:
            if run.parent_span and call.phase == "started" and call.span_id == run.parent_span:
                return call.agent, f"{call.server}/{call.tool}"
        return "", ""

    @property
    def shape(self) -> list[tuple[str, str, str]]:
        """Each run: its agent, and as ``above``."""
        return [(run.agent, *self.above(run)) for run in self.started]
