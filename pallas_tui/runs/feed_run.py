"""One call of an agent in the feed, built from its events. Nothing in here imports the screen."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from pallas.model import (
    NO_COST,
    AuthHop,
    BackendChosen,
    Compacted,
    Cost,
    MessagePassed,
    ModelRetry,
    QuestionAnswered,
    QuestionAsked,
    Rerouted,
    Routed,
    RunContinued,
    RunFinished,
    RunStarted,
    ServerMissing,
    StepStarted,
    TodoChanged,
    ToolEvent,
)
from pallas.safe_text import one_line

from ..chat.chat_entry import QUIET_AFTER
from ..chat.token_prices import tokens
from ..records.question_text import answer_word, person, subject_of
from ..text import count
from .run_requests import DownstreamRequests

EARLIER: Final = "earlier"
"""The word on the line of a run from before the fleet was started."""
MAX_NESTING: Final = 20
"""How deep runs nest at most; a deeper run stands on its own."""

State = Literal["running", "ok", "error", "cancelled", "unknown"]
"""``unknown``: it is over, but the event that reported how it ended was lost."""


@dataclass(slots=True, eq=False)
class RunStep:
    """A step of an agent's loop (no ``call_id``) or a tool call. ``depth`` 0 is the run's own step.

    With a ``notice`` it is a call or a request to a downstream that failed, and the notice says why;
    ``times`` counts requests like it.

    ``ended`` is None while it runs, and stays None when no event reported the end; ``started`` is None when
    the start was lost. ``span`` is the span that the call sent along, and ``runs`` are the runs of other
    agents that it started. ``actor`` is the agent of the step where that is an agent further down.
    ``question`` is the id of the question to a person that this is.
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
    question: str = ""
    times: int = 1
    runs: "list[FeedRun] | None" = field(default=None, repr=False)

    def seconds(self, now: float) -> float | None:
        """Return how long it took, or takes so far; None when that is not known."""
        if self.started is None:
            return None
        if self.ended is not None:
            return max(0.0, self.ended - self.started)
        return max(0.0, now - self.started) if self.state == "running" else None


@dataclass(slots=True, eq=False)
class FeedRun:
    """One call of an agent. ``seconds`` is set when it is over; ``left_out`` counts steps no longer kept.

    ``warning`` says that a guard stopped its loop, ``requests`` are its requests to downstreams. ``parent``
    is the run that called it in the step ``parent_step``, None where no known run did. ``version`` changes
    with the run, ``tree_version`` also with any run below it. ``surface`` is how its message came in,
    ``identity`` the verified caller, ``thread`` the beginning of its durable thread's id; ``partial`` the
    text it had written when it was cut short. ``replica`` is the id of the other replica that has it, empty
    for the fleet's own. It goes on from step ``forked_at`` of the run ``forked_from``, if that is not empty.
    ``heard`` is the time of the last text of its model. What happened in it up to ``recalled_until`` is known
    from the ledger; ``is_before`` says that the fleet which had it is gone.
    """

    id: str
    agent: str
    started: float
    is_begin_known: bool = False
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
    forked_from: str = ""
    forked_at: int = 0
    replica: str = ""
    state: State = "running"
    seconds: float | None = None
    fault: str = ""
    warning: str = ""
    tokens: tuple[int | None, int | None] = (None, None)
    cost: Cost = NO_COST
    cancelling: bool = False
    left_out: int = 0
    heard: float = 0.0
    recalled_until: float = 0.0
    is_before: bool = False
    burst: int = 0
    version: int = 0
    tree_version: int = 0
    steps: list[RunStep] = field(default_factory=list)
    requests: DownstreamRequests = field(default_factory=DownstreamRequests)
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
        """The topmost run above it, or itself."""
        run = self
        while run.parent is not None:
            run = run.parent
        return run

    @property
    def whole_cost(self) -> Cost:
        """What it and the runs below it cost that are over."""
        return Cost.sum(run.cost for run in self.family())

    @property
    def cost_text(self) -> str:
        """What it cost, and with the runs below it; empty before it is over, or where nothing is known."""
        whole = self.whole_cost
        if whole == self.cost:
            return self.cost.text
        return f"{self.cost.text or '$0'}, {whole.text} with the runs below it"

    @property
    def nesting(self) -> int:
        """How many runs are above it."""
        return sum(1 for _ in self.ancestors())

    @property
    def height(self) -> int:
        """How many levels of runs are below it."""
        return max((1 + child.height for child in self.children()), default=0)

    @property
    def asked_by(self) -> str:
        """The caller's own name, with the surface where that is not MCP."""
        surface = self.surface if self.surface != "mcp" else ""
        return " ".join(part for part in (surface, self.caller) if part)

    @property
    def origin(self) -> str:
        """The run and the step from which it goes on, empty if it began by itself."""
        return f"{self.forked_from} at step {self.forked_at}" if self.forked_from else ""

    @property
    def ending(self) -> str:
        """Why it failed, and the beginning of its text by then."""
        written = one_line(self.partial, 120)
        beside = (self.cause, f"had written: {written}" if written else "")
        return " ".join([*filter(None, [self.fault]), *(f"({each})" for each in beside if each)])

    def compact(self, event: Compacted) -> None:
        """Note that its conversation came near the model's window."""
        self._add(RunStep(event.at, compacted_text(event), 0, "ok"))

    def routed(self, event: Routed | Rerouted) -> None:
        """Note that another agent or provider answers: a router chose it, or a provider failed."""
        self._add(RunStep(event.at, routed_text(event), 0, "ok"))

    def quiet(self, step: RunStep, now: float) -> str:
        """Say how long the model of this step has written nothing, once that is long; else empty."""
        asks = step.state == "running" and not step.actor and step.label.endswith("(llm)")
        seconds = now - max(self.heard, step.at)
        return f"no text for {seconds:.0f} s" if asks and seconds >= QUIET_AFTER else ""

    def retry(self, event: ModelRetry) -> None:
        """Note that a model call failed and is made again."""
        self.heard = event.at + event.wait
        self._add(RunStep(event.at, retry_text(event), 1, "error", ended=event.at))

    def continued(self, event: RunContinued) -> None:
        """Note that it goes on where another fleet left it, with what becomes of calls without an answer."""
        calls = f": {'; '.join(event.calls)}" if event.calls else ""
        self._add(RunStep(event.at, f"continued, attempt {event.attempt}{calls}", 0, "ok"))

    def missed(self, event: ServerMissing) -> None:
        """Note that it runs without the tools of a server."""
        text = f"without {event.server}"
        self._add(RunStep(event.at, text, 0, "error", notice=event.why))

    def asked(self, event: QuestionAsked) -> bool:
        """Begin a line for a question to a person, and for the wait for its answer."""
        known = f"question {event.question}"
        if event.relayed or known in self._open:  # asked before a restart, and found again
            return False
        text = question_text(event)
        step = RunStep(event.at, text, 1, started=event.at, question=event.question, notice="waits")
        self._open[known] = step
        self._add(step)
        return True

    def answered(self, event: QuestionAnswered) -> bool:
        """End it, with the answer."""
        step = self._open.pop(f"question {event.question}", None)
        if event.relayed and step is None:
            return False
        ending = step or RunStep(event.at, "question", 1, question=event.question)
        ending.state = "ok" if event.action == "accept" else "error"
        ending.ended, ending.notice = event.at, answer_word(event)
        if event.by and not event.reason:
            ending.label = f"{ending.label}, {ending.notice} by {person(event.by)}"
        if step is None:  # its beginning was lost
            self._add(ending)
        return step is None

    def passed(self, event: MessagePassed) -> bool:
        """Take in a message between handlers.

        Only one that did not arrive gets a line, for the others are calls.
        """
        if text := refused_text(event):
            self._add(RunStep(event.at, text, 1, "error", notice=event.code or event.outcome))
        return bool(text)

    def waited(self, event: TodoChanged) -> bool:
        """Note that a handler waits for something, or is reminded of it."""
        if event.status != "closed":
            self._add(RunStep(event.at, todo_text(event), 1, "ok"))
        return event.status != "closed"

    def chose(self, event: BackendChosen) -> bool:
        """Take in a backend's choice or answer for a handler's model."""
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
        """Iterate over the runs above it, from the nearest on."""
        run = self.parent
        while run is not None:
            yield run
            run = run.parent

    def children(self) -> Iterator["FeedRun"]:
        """Iterate over the runs that its calls started, in the order of the calls."""
        for step in self.steps:
            yield from step.runs or ()

    def family(self) -> Iterator["FeedRun"]:
        """Iterate over it and all below it."""
        yield self
        for child in self.children():
            yield from child.family()

    def elapsed(self, now: float) -> float | None:
        """Return the seconds it took, or takes so far; None when the event with its end was lost."""
        if self.seconds is not None:
            return self.seconds
        return max(0.0, now - self.started) if self.running else None

    def revive(self) -> None:
        """Let it run on, as a fleet does with a run that another one left."""
        self.state, self.seconds, self.fault, self.cause = "running", None, "", ""

    def moves(self, event: RunStarted) -> bool:
        """Note that another fleet has it now; whether that is so."""
        if not self.is_begin_known or event.replica == self.replica:
            return False
        text = f"continues at replica {event.replica}" if event.replica else "continues at this fleet"
        self._add(RunStep(event.at, text, 0, "ok"))
        return True

    def begin(self, event: RunStarted) -> None:
        """Take in the facts of its start, as far as they are told."""
        self.is_begin_known, self.replica = True, event.replica
        if event.replica and self.trace_id:  # another replica tells less than the fleet's own events did
            return
        self.preview, self.images, self.conversation = event.preview, event.images, event.conversation
        self.principal, self.identity, self.caller = event.principal, event.identity, event.caller
        self.surface, self.thread = event.surface, event.thread
        self.trace_id, self.span_id, self.parent_span = event.trace_id, event.span_id, event.parent_span
        self.forked_from, self.forked_at = event.forked_from, event.forked_at

    def step(self, event: StepStarted) -> None:
        """Begin the next step of a loop: the one before is over."""
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
        """Begin or end a call; return its step when that is new."""
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
        ending.ended, ending.notice = event.at, event.error
        if not event.nested:
            self._end_children(event)
        return new

    def request(self, event: AuthHop) -> None:
        """Take in a request to a downstream. Only a failed one gets a line, and equal ones share it."""
        request = self.requests.add(event)
        if request is None or not request.notice:
            return
        if (step := self._noticed.get(request.likeness)) is None:
            depth = 1 if self.agent in self._loops else 0  # a connection is made before the first step
            step = RunStep(event.at, request.label, depth, "error", notice=request.notice)
            self._noticed[request.likeness] = step
            self._add(step)
        else:
            step.times += 1
            step.label = f"{request.label} ({count(step.times, 'time')})"

    def finish(self, event: RunFinished) -> None:
        """End it, and everything in it: what was still open ended as the run did."""
        self.state, self.seconds, self.fault = event.outcome, event.seconds, event.fault
        self.cause = event.cause
        self.replica = event.replica or self.replica
        self.partial = event.partial
        self.tokens = event.tokens_in, event.tokens_out
        self.cost = Cost.of(event)
        self._close(event.at, event.outcome)

    def lose(self) -> None:
        """End it without a known outcome."""
        self.state = "unknown"
        self._close(None, "unknown")

    def drop_oldest(self, number: int) -> list[RunStep]:
        """Drop the first ``number`` steps and return them."""
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
        """End a sub-agent's last step: it reports when a step begins, and the last ends with its call."""
        others = any(step.depth == 1 for step in self._open.values())
        for actor in [actor for actor in self._loops if actor != self.agent]:
            if actor == event.server or not others:
                self._end_loop(actor, event.at)

    def _close(self, at: float | None, state: State) -> None:
        for actor in list(self._loops):
            self._end_loop(actor, at, state)
        for step in self._open.values():
            step.state, step.ended = state, at
            step.notice = "" if step.question else step.notice
        self._open.clear()
        self.cancelling = False


def refused_text(event: MessagePassed) -> str:
    """Say why a message did not arrive; empty for one that did."""
    if event.outcome == "delivered":
        return ""
    why = ": ".join(part for part in (event.code, event.detail) if part)
    return f"{event.sender} to {event.to or 'no one'} {event.outcome}" + (f": {why}" if why else "")


def question_text(event: QuestionAsked) -> str:
    """Say what a person is asked, in one line."""
    return f"asks: {subject_of(event)}"


def todo_text(event: TodoChanged) -> str:
    """Say what a handler waits for, or that it came."""
    what = event.wait_for + (f" of {event.from_agent}" if event.from_agent else "")
    reason = f": {event.description}" if event.description else ""
    if event.status == "raised":
        return f"{event.actor} is reminded: {what} came{reason}"
    return f"{event.actor} waits for {what}{reason}"


def backend_text(event: BackendChosen) -> str:
    """Say which backend answers a handler's question to a model, and why that one."""
    attempt = f" (attempt {event.attempt})" if event.attempt > 1 else ""
    return f"{event.actor}: {event.model} of {event.backend}, {event.why}{attempt}"


def compacted_text(event: Compacted) -> str:
    """Describe in one line how a conversation that was too long was compacted."""
    older = count(event.messages, "older message")
    return f"{older} in a summary now: about {tokens(event.before)} tokens were {tokens(event.after)}"


def retry_text(event: ModelRetry) -> str:
    """Say which retry of a model call follows, and why."""
    after = f" after {count(event.characters, 'character')}" if event.characters else ""
    return f"retry {event.retry} of {event.retries} in {event.wait:.0f} s: {event.reason}{after}"


def routed_text(event: Routed | Rerouted) -> str:
    """Say which agent answers, and why, in one line."""
    if isinstance(event, Routed):
        return f"routed to {event.to} by {event.by}: {event.why}"
    return f"rerouted from {event.asked} to {event.to}: {event.why}"
