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
    Step,
    StepState,
    TodoChanged,
    ToolEvent,
)
from pallas.safe_text import one_line

from ..records.question_text import answer_word, person, subject_of
from ..text import count
from .event_text import backend_text, compacted_text, refused_text, retry_text, routed_text, todo_text
from .run_requests import DownstreamRequests
from .step_text import name_of, title_of, went_wrong

QUIET_AFTER: Final = 10.0
"""Seconds without text after which a run that writes is shown as quiet."""
EARLIER: Final = "earlier"
"""The word on the line of a run from before the fleet was started."""
MAX_NESTING: Final = 20
"""How deep runs nest at most; a deeper run stands on its own."""

State = Literal["running", "ok", "error", "cancelled", "unknown"]
"""``unknown``: it is over, but the event that reported how it ended was lost."""


_STATES: Final[dict[StepState, State]] = {
    "done": "ok",
    "failed": "error",
    "cancelled": "cancelled",
    "unknown": "unknown",
}


@dataclass(slots=True, eq=False)
class RunStep:
    """A line of a run: a recorded step, a call that is not recorded here, or a note.

    ``record`` is the step as the run recorded it: its number and its duration are the only ones that are
    shown. It is ``below`` the step that caused it. With a ``notice`` it is a step or a request that failed,
    and the notice says why; ``times`` counts requests like it.

    ``ended`` is None while it runs, and stays None when no event reported the end; ``started`` is None when
    the start was lost. ``span`` is the span that the call sent along, and ``runs`` are the runs of other
    agents that it started. ``is_relayed``: an agent that was called reported it. ``question`` is the id of
    the question to a person that this is.
    """

    at: float
    label: str
    state: State = "running"
    started: float | None = None
    ended: float | None = None
    call_id: str = ""
    notice: str = ""
    span: str = ""
    question: str = ""
    times: int = 1
    is_relayed: bool = False
    record: Step | None = None
    below: "RunStep | None" = field(default=None, repr=False)
    runs: "list[FeedRun] | None" = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """What is asked: a model, a tool, an agent; or what a note says."""
        return self.label if self.record is None else name_of(self.record)

    @property
    def title(self) -> str:
        """Its number and its name."""
        return self.label if self.record is None else title_of(self.record)

    @property
    def asks_model(self) -> bool:
        """Whether it is a question to a model."""
        return self.record is not None and self.record.kind == "model"

    def seconds(self, now: float) -> float | None:
        """Return how long it took, or takes so far; None when that is not known."""
        if self.record is not None and self.record.seconds is not None:
            return self.record.seconds
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
    _calls: dict[str, RunStep] = field(default_factory=dict, repr=False)
    _recorded: dict[int, RunStep] = field(default_factory=dict, repr=False)
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
        own, whole = self.cost.text, self.whole_cost.text
        return own if whole == own else f"{own or '$0'}, {whole} with the runs below it"

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
        self._note(event.at, compacted_text(event))

    def routed(self, event: Routed | Rerouted) -> None:
        """Note that another agent or provider answers: a router chose it, or a provider failed."""
        self._note(event.at, routed_text(event))

    def quiet(self, step: RunStep, now: float) -> str:
        """Say how long the model of this step has written nothing, once that is long; else empty."""
        asks = step.state == "running" and step.asks_model and step.below is None
        seconds = now - max(self.heard, step.at)
        return f"no text for {seconds:.0f} s" if asks and seconds >= QUIET_AFTER else ""

    def retry(self, event: ModelRetry) -> None:
        """Note that a model call failed and is made again."""
        self.heard = event.at + event.wait
        asked = (each for each in reversed(self.steps) if each.asks_model and each.state == "running")
        self._note(event.at, retry_text(event), "error").below = next(asked, None)

    def continued(self, event: RunContinued) -> None:
        """Note that it goes on where another fleet left it, with what becomes of calls without an answer."""
        calls = f": {'; '.join(event.calls)}" if event.calls else ""
        self._note(event.at, f"continued, attempt {event.attempt}{calls}")

    def missed(self, event: ServerMissing) -> None:
        """Note that it runs without the tools of a server."""
        self._note(event.at, f"without {event.server}", "error", event.why)

    def asked(self, event: QuestionAsked) -> bool:
        """Begin a line for a question to a person, and for the wait for its answer."""
        known = f"question {event.question}"
        if event.relayed or known in self._open:  # asked before a restart, and found again
            return False
        step = RunStep(event.at, f"asks: {subject_of(event)}", started=event.at, question=event.question)
        step.notice, step.below = "waits", self._calls.get(event.call_id)
        self._open[known] = step
        self.steps.append(step)
        return True

    def answered(self, event: QuestionAnswered) -> bool:
        """End it, with the answer."""
        step = self._open.pop(f"question {event.question}", None)
        if event.relayed and step is None:
            return False
        ending = step or RunStep(event.at, "question", question=event.question)
        ending.state = "ok" if event.action == "accept" else "error"
        ending.ended, ending.notice = event.at, answer_word(event)
        if event.by and not event.reason:
            ending.label = f"{ending.label}, {ending.notice} by {person(event.by)}"
        if step is None:  # its beginning was lost
            self.steps.append(ending)
        return step is None

    def passed(self, event: MessagePassed) -> bool:
        """Take in a message between handlers.

        Only one that did not arrive gets a line, for the others are calls.
        """
        if text := refused_text(event):
            self._note(event.at, text, "error", event.code or event.outcome)
        return bool(text)

    def waited(self, event: TodoChanged) -> bool:
        """Note that a handler waits for something, or is reminded of it."""
        if event.status != "closed":
            self._note(event.at, todo_text(event))
        return event.status != "closed"

    def chose(self, event: BackendChosen) -> bool:
        """Begin or end the line of a backend that is asked a handler's question to a model.

        The question itself is a step; several backends may be asked it, one after the other.
        """
        key = f"model {event.actor} {event.backend} {event.attempt}"
        line = self._open.pop(key, None)
        is_new = line is None
        if line is None:
            line = self._note(event.at, backend_text(event), "running")
            line.started = event.at - event.seconds
        if not event.outcome:
            self._open[key] = line
            return is_new
        line.ended, line.state = event.at, "ok" if event.outcome == "ok" else "error"
        line.notice = "" if event.outcome == "ok" else event.outcome
        return is_new

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
        self._note(event.at, text)
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

    def take(self, record: Step) -> RunStep | None:
        """Take in a step as it is recorded now; return its line when that is new."""
        step = self._recorded.get(record.number) or self._calls.get(record.call_id)
        is_new = step is None
        if step is None:
            step = RunStep(record.started_at, name_of(record))
            self.steps.append(step)
        step.record, step.at, step.started = record, record.started_at, record.started_at
        step.span, step.is_relayed = record.span_id or step.span, False
        step.below = self._recorded.get(record.parent) if record.parent < record.number else None
        if step.state in ("running", "unknown") or record.state == "cancelled":
            step.state = _STATES.get(record.state, "running" if self.running else "unknown")
        if record.fault and not step.notice:
            step.notice = record.fault
        self._recorded[record.number] = step
        if record.call_id:
            self._calls[record.call_id] = step
        return step if is_new else None

    def tool(self, event: ToolEvent) -> RunStep | None:
        """Begin or end a call; return its line when that is new."""
        step = self._calls.get(event.call_id)
        is_new = step is None
        if step is None:
            step = self._calls[event.call_id] = RunStep(event.at, "", call_id=event.call_id)
            step.is_relayed = event.nested
            step.below = self._calls.get(event.call_id.rpartition(".")[0]) if event.nested else None
            self.steps.append(step)
        if is_new or event.phase == "started":  # an answer names its own payload
            step.label, step.call_id = f"{event.server}/{event.tool}", event.call_id
        step.span = step.span or event.span_id
        if event.phase != "started":
            self._open.pop(event.call_id, None)
            step.state = "ok" if event.phase == "completed" else "error"
            step.ended, step.notice = event.at, event.error
        else:
            self._open[event.call_id] = step
            step.started = event.at if step.record is None else step.started
        return step if is_new else None

    def request(self, event: AuthHop) -> None:
        """Take in a request to a downstream. Only a failed one gets a line, and equal ones share it."""
        request = self.requests.add(event)
        if request is None or not request.notice:
            return
        if (step := self._noticed.get(request.likeness)) is None:
            step = self._note(event.at, request.label, "error", request.notice)
            self._noticed[request.likeness] = step
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
        dropped = {id(step) for step in gone}
        for step in self.steps:
            step.below = None if id(step.below) in dropped else step.below
        self._calls = {key: step for key, step in self._calls.items() if id(step) not in dropped}
        self._recorded = {key: step for key, step in self._recorded.items() if id(step) not in dropped}
        return gone

    @property
    def first_step(self) -> Step | None:
        """The first of its recorded steps that is known."""
        return self._recorded[min(self._recorded)].record if self._recorded else None

    def recorded_at(self, step: RunStep | None) -> Step | None:
        """Return the recorded step that a line is about: itself, the one above it, or the one before it.

        Without a line the last one that failed, else the last.
        """
        known = [each.record for each in self._recorded.values() if each.record is not None]
        above = step
        while above is not None:
            if above.record is not None:
                return above.record
            above = above.below
        if step is None:
            known = [each for each in known if went_wrong(each)] or known
        else:
            known = [each for each in known if each.started_at <= step.at] or known[:1]
        return max(known, key=lambda each: each.number, default=None)

    def _note(self, at: float, text: str, state: State = "ok", notice: str = "") -> RunStep:
        note = RunStep(at, text, state, notice=notice)
        self.steps.append(note)
        return note

    def _close(self, at: float | None, state: State) -> None:
        for step in self.steps:
            if step.state == "running":
                step.state, step.ended = state, at
                step.notice = "" if step.question else step.notice
        self._open.clear()
        self.cancelling = False
