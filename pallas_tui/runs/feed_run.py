"""One call of an agent as the feed shows it, made of its events; nothing of the screen in here."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from pallas.model import (
    AuthHop,
    BackendChosen,
    Compacted,
    MessagePassed,
    Rerouted,
    Routed,
    RunFinished,
    RunStarted,
    ServerMissing,
    StepStarted,
    TodoChanged,
    ToolEvent,
)
from pallas.model.safe_text import one_line

from ..chat.token_prices import tokens
from ..text import count
from .run_requests import Hops


def refused_text(event: MessagePassed) -> str:
    """Why a message did not arrive; empty for one that did."""
    if event.outcome == "delivered":
        return ""
    why = ": ".join(part for part in (event.code, event.detail) if part)
    return f"{event.sender} to {event.to or 'nobody'} {event.outcome}" + (f": {why}" if why else "")


def todo_text(event: TodoChanged) -> str:
    """What a handler waits for, or that it came."""
    what = event.wait_for + (f" of {event.from_agent}" if event.from_agent else "")
    told = f": {event.description}" if event.description else ""
    if event.status == "raised":
        return f"{event.actor} is reminded: {what} came{told}"
    return f"{event.actor} waits for {what}{told}"


def backend_text(event: BackendChosen) -> str:
    """Which backend answers a handler's question to a model, and why that one."""
    attempt = f" (attempt {event.attempt})" if event.attempt > 1 else ""
    return f"{event.actor}: {event.model} of {event.backend}, {event.why}{attempt}"


def tokens_text(event: BackendChosen) -> str:
    """What it took of tokens, empty where that is not known."""
    known = [each for each in (event.tokens_in, event.tokens_out) if each is not None]
    return count(sum(known), "token") if known else ""


MAX_NESTING: Final = 20
"""How many runs stand within one another at most; what is further in stands on its own."""

State = Literal["running", "ok", "error", "cancelled", "unknown"]
"""``unknown``: it is over, but the event that told how it ended was lost."""


def compacted_text(event: Compacted) -> str:
    """What became of a conversation that was too long, in one line."""
    older = count(event.messages, "older message")
    return f"{older} told by a summary now: about {tokens(event.before)} tokens were {tokens(event.after)}"


def routed_text(event: Routed | Rerouted) -> str:
    """Who answers, and why, in one line."""
    if isinstance(event, Routed):
        return f"routed to {event.to} by {event.by}: {event.why}"
    return f"rerouted from {event.asked} to {event.to}: {event.why}"


@dataclass(slots=True, eq=False)
class RunStep:
    """A step of an agent's loop (no ``call_id``) or a tool call. ``depth`` 0 is the run's own step.

    With a ``notice`` it is a request to a downstream that went wrong, and that is what went wrong; ``times``
    counts those like it.

    ``ended`` is None while it runs, and stays None when no one told; ``started`` is None when the start
    was lost. ``span`` is what the call sent along, and ``runs`` are those of other agents that came of it.
    ``actor`` is whose step it is where that is an agent further down.
    """

    at: float
    label: str
    depth: int
    state: State = "running"
    started: float | None = None
    ended: float | None = None
    call_id: str = ""
    notice: str = ""
    span: str = ""
    actor: str = ""
    times: int = 1
    runs: "list[FeedRun] | None" = field(default=None, repr=False)

    def seconds(self, now: float) -> float | None:
        """How long it took, or takes so far; None when that is not known."""
        if self.started is None:
            return None
        if self.ended is not None:
            return max(0.0, self.ended - self.started)
        return max(0.0, now - self.started) if self.state == "running" else None


@dataclass(slots=True, eq=False)
class FeedRun:
    """One call of an agent. ``seconds`` is set when it is over; ``left_out`` counts steps no longer kept.

    ``warning`` says that a guard stopped its loop, ``hops`` are its requests to downstreams. ``parent`` is
    the run that asked for it by the call ``parent_step``, None where no one known did. ``version`` changes
    with the run, ``tree_version`` also with any run below it. ``surface`` is how its message came in,
    ``identity`` who asked where that was verified, ``thread`` the beginning of its durable thread's id;
    ``partial`` what it had written when it was cut short.
    """

    id: str
    agent: str
    started: float
    preview: str = ""
    images: int = 0
    conversation: str = ""
    principal: str = ""
    identity: str = ""
    caller: str = ""
    surface: str = ""
    thread: str = ""
    partial: str = ""
    cause: str = ""
    trace_id: str = ""
    span_id: str = ""
    parent_span: str = ""
    state: State = "running"
    seconds: float | None = None
    fault: str = ""
    warning: str = ""
    tokens: tuple[int | None, int | None] = (None, None)
    cancelling: bool = False
    left_out: int = 0
    burst: int = 0
    version: int = 0
    tree_version: int = 0
    steps: list[RunStep] = field(default_factory=list)
    hops: Hops = field(default_factory=Hops)
    parent: "FeedRun | None" = field(default=None, repr=False)
    parent_step: RunStep | None = field(default=None, repr=False)
    _open: dict[str, RunStep] = field(default_factory=dict, repr=False)
    _loops: dict[str, RunStep] = field(default_factory=dict, repr=False)
    _noticed: dict[tuple[str, ...], RunStep] = field(default_factory=dict, repr=False)

    @property
    def running(self) -> bool:
        """Whether it is not over."""
        return self.state == "running"

    @property
    def root(self) -> "FeedRun":
        """The run that stands on its own and came first: this one, or what asked for it in the end."""
        run = self
        while run.parent is not None:
            run = run.parent
        return run

    @property
    def nesting(self) -> int:
        """In how many others it stands."""
        return sum(1 for _ in self.ancestors())

    @property
    def height(self) -> int:
        """How many runs stand within one another below it."""
        return max((1 + child.height for child in self.children()), default=0)

    @property
    def asked_by(self) -> str:
        """What the caller calls itself, with the surface where that is not MCP."""
        surface = self.surface if self.surface != "mcp" else ""
        return " ".join(part for part in (surface, self.caller) if part)

    @property
    def ending(self) -> str:
        """Why it came to nothing, and the beginning of what it had written by then."""
        written = one_line(self.partial, 120)
        beside = (self.cause, f"had written: {written}" if written else "")
        return " ".join([*filter(None, [self.fault]), *(f"({each})" for each in beside if each)])

    def compact(self, event: Compacted) -> None:
        """Its conversation came near the model's window."""
        self._add(RunStep(event.at, compacted_text(event), 0, "ok"))

    def routed(self, event: Routed | Rerouted) -> None:
        """Someone else answers than the one that was asked: a router chose, or a provider failed."""
        self._add(RunStep(event.at, routed_text(event), 0, "ok"))

    def missed(self, event: ServerMissing) -> None:
        """It has to do without the tools of a server."""
        text = f"without {event.server}"
        self._add(RunStep(event.at, text, 0, "error", notice=event.why))

    def passed(self, event: MessagePassed) -> bool:
        """A message between handlers: only one that did not arrive gets a line, for the others are calls."""
        if text := refused_text(event):
            self._add(RunStep(event.at, text, 1, "error", notice=event.code or event.outcome))
        return bool(text)

    def waited(self, event: TodoChanged) -> bool:
        """A handler waits for something, or is reminded of it."""
        if event.status != "closed":
            self._add(RunStep(event.at, todo_text(event), 1, "ok"))
        return event.status != "closed"

    def chose(self, event: BackendChosen) -> bool:
        """A backend is asked for a handler's model, or has answered."""
        key = f"model {event.actor} {event.backend} {event.attempt}"
        step = self._open.pop(key, None) if event.outcome else None
        if step is not None:
            step.state, step.ended = "ok" if event.outcome == "ok" else "error", event.at
            step.notice = "" if event.outcome == "ok" else event.outcome
            return False
        state: State = "running" if not event.outcome else "ok" if event.outcome == "ok" else "error"
        step = RunStep(event.at, backend_text(event), 1, state, started=event.at - event.seconds)
        if event.outcome:
            step.ended = event.at
        else:
            self._open[key] = step
        self._add(step)
        return True

    def ancestors(self) -> Iterator["FeedRun"]:
        """What asked for it, from the nearest on."""
        run = self.parent
        while run is not None:
            yield run
            run = run.parent

    def children(self) -> Iterator["FeedRun"]:
        """The runs that its calls asked for, in the order of the calls."""
        for step in self.steps:
            yield from step.runs or ()

    def family(self) -> Iterator["FeedRun"]:
        """It and all below it."""
        yield self
        for child in self.children():
            yield from child.family()

    def elapsed(self, now: float) -> float | None:
        """Seconds it took, or takes so far; None when the event that told was lost."""
        if self.seconds is not None:
            return self.seconds
        return max(0.0, now - self.started) if self.running else None

    def begin(self, event: RunStarted) -> None:
        """What is told of it at its beginning."""
        self.preview, self.images, self.conversation = event.preview, event.images, event.conversation
        self.principal, self.identity, self.caller = event.principal, event.identity, event.caller
        self.surface, self.thread = event.surface, event.thread
        self.trace_id, self.span_id, self.parent_span = event.trace_id, event.span_id, event.parent_span

    def step(self, event: StepStarted) -> None:
        """A loop goes to its next step: the one before is over."""
        self._end_loop(event.actor, event.at)
        child = event.actor != self.agent
        label = f"{event.actor} step {event.step}" if child else f"step {event.step}"
        step = RunStep(
            event.at,
            f"{label} ({event.kind})",
            2 if child else 0,
            started=event.at,
            actor=event.actor if child else "",
        )
        self._loops[event.actor] = step
        self._add(step)

    def tool(self, event: ToolEvent) -> RunStep | None:
        """A call begins or ends; returns its step when that is new."""
        if event.phase == "started":
            step = self._call(event, started=event.at)
            self._open[event.call_id] = step
            self._add(step)
            return step
        ending, new = self._open.pop(event.call_id, None), None
        if ending is None:  # its beginning was lost
            ending = new = self._call(event, started=None)
            self._add(ending)
        ending.state = "ok" if event.phase == "completed" else "error"
        ending.ended = event.at
        if not event.nested:
            self._end_children(event)
        return new

    def hop(self, event: AuthHop) -> None:
        """A request to a downstream: only one that went wrong gets a line, and its like no second one."""
        hop = self.hops.add(event)
        if hop is None or not hop.notice:
            return
        if (step := self._noticed.get(hop.likeness)) is None:
            depth = 1 if self.agent in self._loops else 0  # a connection is made before the first step
            step = RunStep(event.at, hop.label, depth, "error", notice=hop.notice)
            self._noticed[hop.likeness] = step
            self._add(step)
        else:
            step.times += 1
            step.label = f"{hop.label} ({count(step.times, 'time')})"

    def finish(self, event: RunFinished) -> None:
        """It is over, and so is everything in it."""
        self.state, self.seconds, self.fault = event.outcome, event.seconds, event.fault
        self.cause = event.cause
        self.partial = event.partial
        self.tokens = event.tokens_in, event.tokens_out
        self._close(event.at, "ok" if event.outcome == "ok" else "unknown")

    def lose(self) -> None:
        """It is over, and no one knows how."""
        self.state = "unknown"
        self._close(None, "unknown")

    def drop_oldest(self, number: int) -> list[RunStep]:
        """Keep all but the first ``number`` steps; returns those."""
        gone = self.steps[:number]
        del self.steps[:number]
        self.left_out += number
        return gone

    def _call(self, event: ToolEvent, started: float | None) -> RunStep:
        depth = 3 if event.nested else 1
        label = f"{event.server}/{event.tool}"
        return RunStep(event.at, label, depth, started=started, call_id=event.call_id, span=event.span_id)

    def _add(self, step: RunStep) -> None:
        self.steps.append(step)

    def _end_loop(self, actor: str, at: float | None, state: State = "ok") -> None:
        if (step := self._loops.pop(actor, None)) is not None:
            step.state, step.ended = state, at

    def _end_children(self, event: ToolEvent) -> None:
        """A sub-agent says when a step begins; its last one ends with the call that asked for it."""
        others = any(step.depth == 1 for step in self._open.values())
        for actor in [actor for actor in self._loops if actor != self.agent]:
            if actor == event.server or not others:
                self._end_loop(actor, event.at)

    def _close(self, at: float | None, state: State) -> None:
        for actor in list(self._loops):
            self._end_loop(actor, at, state)
        for step in self._open.values():
            step.state, step.ended = state, at
        self._open.clear()
        self.cancelling = False
