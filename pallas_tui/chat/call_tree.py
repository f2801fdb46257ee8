"""The tool calls and sub-agents of one run as a tree, built from its progress messages (PI-25).

Messages carry no ids and no parents. The caller is an agent at work that has that server, as far as that is
known; else one whose step is calling tools. Of several, and where there is none, it is the agent that
reported its step last. Of several open calls of one name the oldest is the one that ends.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from pallas.model import Step
from pallas.safe_text import one_line

from .run_progress import LoopStep, Progress, TextPiece, ToolProgress

MAX_CALLS: Final = 500
"""Calls of one run that are kept; further calls are only counted."""
MAX_LABEL: Final = 160
MAX_TEXT: Final = 20_000
"""Characters of a sub-agent's text that are kept."""

State = Literal["running", "ok", "error", "cancelled", "unknown"]
"""``unknown``: it never reported how it ended."""


@dataclass(slots=True, eq=False)
class Node:
    """A call of a tool (``kind`` ``call``), or an agent below the one that was asked (``agent``).

    ``started`` and ``ended`` are seconds on the stopwatch of the conversation; ``started`` is None if no
    message reported the start. ``steps`` are those of the agent, ``text`` is what it wrote; ``calling`` says
    whether its last step calls tools. ``arguments`` and ``result`` are those of a call in a durable thread.
    ``error`` says why a call failed, empty where that is not known. ``record`` is the call as its run
    recorded it, with its number and its duration, None where that is not known.
    """

    kind: Literal["call", "agent"]
    label: str
    started: float | None
    parent: "Node | None" = None
    state: State = "running"
    ended: float | None = None
    steps: int = 0
    calling: bool = False
    text: str = ""
    arguments: str = ""
    result: str = ""
    error: str = ""
    record: Step | None = None
    children: list["Node"] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Its number, if it has one, and its label."""
        return self.label if self.record is None else f"{self.record.number}. {self.label}"

    def seconds(self, now: float) -> float | None:
        """Return how long it took, or takes so far; None when that is not known."""
        if self.record is not None:
            return self.record.seconds
        if self.started is None or (self.ended is None and self.state != "running"):
            return None
        return max(0.0, (now if self.ended is None else self.ended) - self.started)

    def walk(self) -> Iterator["Node"]:
        """Iterate over everything below it, in order of appearance."""
        for child in self.children:
            yield child
            yield from child.walk()

    @property
    def calls(self) -> int:
        """How many calls are below it."""
        return sum(node.kind == "call" for node in self.walk())

    @property
    def words(self) -> str:
        """The text of the agents directly below it."""
        return "\n\n".join(node.text for node in (self, *self.children) if node.text).strip()


class Tree:
    """The calls of a run of ``agent`` so far; ``version`` grows with each change.

    ``agent`` is its name in the chat. The server may use another name for itself, so the first actor that
    makes a step while no call is open is taken for it. ``callers`` returns the names of the agents that call
    a server; none where that is not known.
    """

    def __init__(self, agent: str, callers: Callable[[str], Collection[str]] = lambda server: ()) -> None:
        self._callers = callers
        self._name = agent.partition("@")[0]
        self.root = Node("agent", "", None)
        self.version = 0
        self.left_out = 0
        self.failed = 0
        self.is_recorded = False
        self._count = 0
        self._open: list[Node] = []
        self._errors: list[tuple[str, str]] = []
        self._speaker = self.root
        self._main = ""

    def __bool__(self) -> bool:
        return bool(self.root.children)

    @property
    def calls(self) -> int:
        """How many calls all agents made, including those left out."""
        return self._count

    @property
    def agents(self) -> int:
        """How many agents are below the one that was asked."""
        return len({node.label for node in self.root.walk() if node.kind == "agent"})

    def hear(self, progress: Progress, at: float) -> None:
        """Take in one message that came at ``at`` seconds."""
        match progress:
            case LoopStep(actor, _, kind):
                self._step(one_line(actor, MAX_LABEL), kind == "tool", at)
            case ToolProgress(label, "started"):
                self._begin(one_line(label, MAX_LABEL), at)
            case ToolProgress(label, phase):
                self._end(one_line(label, MAX_LABEL), "ok" if phase == "completed" else "error", at)
            case TextPiece(actor, text) if (agent := self._agent(one_line(actor, MAX_LABEL))) is not None:
                agent.text = (agent.text + text)[:MAX_TEXT]
                self.version += 1

    def take(self, calls: Iterable[Node]) -> None:
        """Hold these calls of the agent itself, as its run recorded them, in place of what was heard."""
        self.root.children = list(calls)
        for node in self.root.children:
            node.parent = self.root
        below = list(self.root.walk())
        self._count = sum(node.kind == "call" for node in below)
        self.failed = sum(node.state == "error" for node in below)
        self.is_recorded, self.left_out = True, 0
        self.version += 1

    def add_stored(self, label: str, state: State, arguments: str, result: str) -> None:
        """Add a call of the agent itself from a durable thread: it is over, and its duration is not known."""
        self._count += 1
        self.failed += state == "error"
        if len(self.root.children) >= MAX_CALLS:
            self.left_out += 1
            return
        node = Node("call", one_line(label, MAX_LABEL), None, self.root, state)
        node.arguments, node.result = arguments, result
        self.root.children.append(node)

    def explain(self, label: str, error: str) -> None:
        """Say why the oldest failed call of that name failed, or the next one that ends."""
        if self.is_recorded:
            return
        failed = (each for each in self.root.children if each.label == label and each.state == "error")
        node = next((each for each in failed if not each.error), None)
        if node is not None:
            node.error = error
            self.version += 1
        elif len(self._errors) < MAX_CALLS:
            self._errors.append((label, error))

    def close(self, state: State = "unknown") -> None:
        """End the run; ``state`` is that of the calls which never reported their end."""
        for node in (*self._open, *self.root.walk()):
            if node.state == "running":
                node.state = state
        self._open.clear()
        self.version += 1

    def _step(self, actor: str, calling: bool, at: float) -> None:
        self.version += 1
        if not self._main and (actor == self._name or not self._open):
            self._main = actor
        if actor in (self._main, self._name):
            for each in self.root.children:  # agents of its own, asked without a call
                if each.kind == "agent" and each.state == "running":
                    each.state, each.ended = "ok", at
                    self._end_below(each, at)
            self._speaker = self.root
            self.root.steps += 1
            self.root.calling = calling
            return
        agent = self._agent(actor)
        if agent is None:
            if len(self._nodes()) >= MAX_CALLS:
                return
            owner = self._owner(actor)
            agent = Node("agent", one_line(actor, MAX_LABEL), at, owner)
            owner.children.append(agent)
        agent.steps += 1
        agent.calling = calling
        self._speaker = agent

    def _begin(self, label: str, at: float) -> None:
        self.version += 1
        self._count += 1
        if len(self._nodes()) >= MAX_CALLS:
            self.left_out += 1
            return
        caller = self._caller(label)
        node = Node("call", label, at, caller)
        caller.children.append(node)
        self._open.append(node)

    def _end(self, label: str, state: State, at: float) -> None:
        self.version += 1
        self.failed += state == "error"
        node = next((each for each in self._open if each.label == label), None)
        if node is None:
            if self.left_out:  # a call that is only counted
                return
            self._count += 1
            if len(self._nodes()) >= MAX_CALLS:
                self.left_out += 1
                return
            caller = self._caller(label)
            node = Node("call", label, None, caller)
            caller.children.append(node)
        else:
            self._open.remove(node)
        node.state, node.ended = state, at
        known = next((each for each in self._errors if each[0] == label), None)
        if state == "error" and known is not None and node.parent is self.root:
            self._errors.remove(known)
            node.error = known[1]
        self._end_below(node, at)
        if self._speaker in node.walk():
            self._speaker = node.parent or self.root

    def _end_below(self, node: Node, at: float) -> None:
        """End all calls and agents below a call or an agent that ended."""
        for each in node.walk():
            if each.state == "running":
                each.state = "ok" if each.kind == "agent" else "unknown"
                each.ended = at if each.kind == "agent" else None
                if each in self._open:
                    self._open.remove(each)

    def _caller(self, label: str) -> Node:
        """Return the caller of a call: agents work in parallel, and their messages interleave."""
        names = self._callers(label.partition("/")[0])
        at_work = [self.root, *(n for n in self._nodes() if n.kind == "agent" and n.state == "running")]
        fit = [n for n in at_work if ({n.label} if n.label else {self._main, self._name}) & set(names)]
        fit = fit or [n for n in at_work if n.calling]
        return self._speaker if self._speaker in fit or not fit else fit[-1]

    def _agent(self, actor: str) -> Node | None:
        """Return the agent of that name that is at work."""
        found = [n for n in self._nodes() if n.kind == "agent" and n.state == "running" and n.label == actor]
        return found[-1] if found else None

    def _owner(self, actor: str) -> Node:
        """Return the open call of an agent: one with its name in it, else the newest without an agent."""
        free = [node for node in reversed(self._open) if not any(c.kind == "agent" for c in node.children)]
        named = next((node for node in free if actor in _names(node.label)), None)
        return named or next(iter(free), self._speaker)

    def _nodes(self) -> list[Node]:
        return list(self.root.walk())


def _names(label: str) -> set[str]:
    """Return the agents a label may name: ``research/ask``, ``agents/research``, ``x/research__ask``."""
    server, _, tool = label.partition("/")
    return {server, tool, tool.partition("__")[0], tool.removeprefix("agent__")}
