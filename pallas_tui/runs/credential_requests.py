"""The credential of each request between callers, agents and downstreams, built from events; no screen."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from pallas.model import (
    AgentSnapshot,
    AuthHop,
    Event,
    QuestionAnswered,
    QuestionAsked,
    RunEvent,
    RunFinished,
    RunStarted,
    ToolEvent,
)

from ..agents.fleet_tree import links_of
from ..frame import FleetFrame
from .credential_line import CredentialLine, question_line
from .run_requests import claims_of, is_connection, kind_of, short

MAX_REQUESTS: Final = 5_000
"""Requests that are kept; the runs that began first are dropped first."""
MAX_KINDS: Final = 500
"""Different requests that are kept of one run."""
MAX_RUNS: Final = 2_000
_REFUSED: Final = frozenset({401, 403, 407})
_ASKING: Final = "tools/call"


@dataclass(slots=True)
class _CountedRequest:
    event: AuthHop
    times: int = 1


@dataclass(slots=True, eq=False)
class _Run:
    """One run; ``asked_by`` is the run that called it, through ``asked_as`` if known."""

    id: str
    agent: str
    at: float
    caller: str = ""
    principal: str = ""
    known: bool = False
    outcome: str = "running"
    asked_by: "_Run | None" = None
    asked_as: str = ""
    seconds: float | None = None
    requests: dict[tuple[object, ...], _CountedRequest] = field(default_factory=dict)
    open_calls: dict[str, float] = field(default_factory=dict)
    took: dict[tuple[str, str], float] = field(default_factory=dict)
    spans: set[str] = field(default_factory=set)
    children: list["_Run"] = field(default_factory=list)
    questions: dict[str, tuple[QuestionAsked, QuestionAnswered | None]] = field(default_factory=dict)
    left_out: int = 0

    @property
    def asked_by_whom(self) -> str:
        return self.asked_by.agent if self.asked_by is not None else self.caller or "a client"

    @property
    def root(self) -> "_Run":
        run = self
        while run.asked_by is not None:
            run = run.asked_by
        return run


class CredentialRequests:
    """The requests of the last runs. ``version`` grows with every change except the passing of time.

    ``lost`` counts events that were dropped before they could be read, ``left_out`` requests beyond the
    bounds.
    """

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._spans: dict[str, tuple[_Run, str]] = {}
        self._made: dict[str, list[CredentialLine]] = {}
        self._usual: dict[tuple[str, str], set[str]] = {}
        self._targets: dict[tuple[str, str], str] = {}
        self._agents: tuple[AgentSnapshot, ...] = ()
        self._requests = 0
        self.version = 0
        self.lost = 0
        self.left_out = 0
        self._take: dict[type[Event], Callable[[Any], None]] = {
            RunStarted: self._started,
            ToolEvent: self._called,
            AuthHop: self._requested,
            QuestionAsked: self._asked,
            QuestionAnswered: self._answered,
            RunFinished: self._finished,
        }

    @property
    def requests(self) -> int:
        """How many requests are kept, including those that began a run."""
        return self._requests

    def absorb(self, frame: FleetFrame) -> bool:
        """Take in a frame; return whether anything changed."""
        before = self.version
        self._know_targets(frame.snapshot.agents)
        for event in frame.events:
            if (take := self._take.get(type(event))) is not None:
                take(event)
        if frame.dropped:
            self.lost += frame.dropped
            self.version += 1
        self._trim()
        return self.version != before

    def _know_targets(self, agents: tuple[AgentSnapshot, ...]) -> None:
        """Where the downstreams are, except agents of the fleet: those check the audience themselves."""
        if agents is self._agents:
            return
        self._agents = agents
        links = ((agent.name, link) for agent in agents for link in links_of(agent, agents))
        targets = {(name, link.name): link.downstream.target for name, link in links if link.delegate is None}
        if targets != self._targets:
            self._targets = targets
            self._made.clear()
            self.version += 1

    def lines(self, words: Iterable[str] = (), *, findings_only: bool = False) -> list[CredentialLine]:
        """Return the table: runs in order of their start, below each its requests and the runs it called."""
        words = tuple(words)
        lines: list[CredentialLine] = []
        for run in self._runs.values():
            if run.asked_by is not None:
                continue
            if (made := self._made.get(run.id)) is None:
                made = self._made[run.id] = _Group(run, self._usual, self._targets).lines()
            lines += made
        if findings_only:
            lines = [line for line in lines if line.findings]
        return [line for line in lines if line.matches(words)] if words else lines

    def _run_of(self, event: RunEvent, started: float | None = None) -> _Run:
        run = self._runs.get(event.run_id)
        if run is None:
            run = _Run(event.run_id, event.agent, event.at if started is None else started)
            self._runs[run.id] = run
            self._requests += 1
        self._changed(run)
        return run

    def _changed(self, run: _Run) -> None:
        self._made.pop(run.root.id, None)
        self.version += 1

    def _started(self, event: RunStarted) -> None:
        run = self._run_of(event)
        run.known, run.caller, run.principal = True, event.caller, event.principal
        if event.span_id:
            self._know_span(run, event.span_id, "")
        asker, server = self._spans.get(event.parent_span, (None, ""))
        if asker is not None and run.asked_by is None and asker.root is not run:
            run.asked_by, run.asked_as = asker, server
            asker.children.append(run)
            self._made.pop(run.id, None)
            self._changed(run)

    def _called(self, event: ToolEvent) -> None:
        # Its time, and what links the run of another agent to it: a call has no line of its own.
        run = self._run_of(event)
        if event.phase == "started":
            if event.span_id:
                self._know_span(run, event.span_id, event.server)
            if len(run.open_calls) < MAX_KINDS:
                run.open_calls[event.call_id] = event.at
        elif (began := run.open_calls.pop(event.call_id, None)) is not None and len(run.took) < MAX_KINDS:
            call = event.server, event.tool
            run.took[call] = run.took.get(call, 0.0) + max(0.0, event.at - began)

    def _know_span(self, run: _Run, span: str, server: str) -> None:
        if len(run.spans) < MAX_KINDS:
            run.spans.add(span)
            self._spans[span] = (run, server)

    def _requested(self, event: AuthHop) -> None:
        run = self._run_of(event)
        kind = kind_of(event)
        if (request := run.requests.get(kind)) is not None:
            request.times += 1
        elif len(run.requests) >= MAX_KINDS:
            run.left_out += 1
            self.left_out += 1
        else:
            run.requests[kind] = _CountedRequest(event)
            self._requests += 1
        sources = self._usual.setdefault((event.agent, event.downstream), set())
        if event.source != "none" and event.source not in sources:
            sources.add(event.source)
            self._made.clear()  # a finding may disappear

    def _asked(self, event: QuestionAsked) -> None:
        run = self._run_of(event)
        if not event.relayed and len(run.questions) < MAX_KINDS:
            run.questions.setdefault(event.question, (event, None))

    def _answered(self, event: QuestionAnswered) -> None:
        run = self._run_of(event)
        if (known := run.questions.get(event.question)) is not None:
            run.questions[event.question] = known[0], event

    def _finished(self, event: RunFinished) -> None:
        run = self._run_of(event, event.at - event.seconds)
        run.outcome, run.seconds = event.outcome, event.seconds
        run.open_calls.clear()

    def _trim(self) -> None:
        while self._runs and (self._requests > MAX_REQUESTS or len(self._runs) > MAX_RUNS):
            self._drop(next(iter(self._runs.values())))
            self.version += 1

    def _drop(self, run: _Run) -> None:
        self._made.pop(run.root.id, None)
        del self._runs[run.id]
        self._requests -= 1 + len(run.requests)
        for span in run.spans:
            self._spans.pop(span, None)
        if run.asked_by is not None:
            run.asked_by.children.remove(run)
        for child in run.children:  # from now on they stand alone
            child.asked_by = None


class _Group:
    """A run with all runs below it, as lines."""

    def __init__(
        self, root: _Run, usual: dict[tuple[str, str], set[str]], targets: dict[tuple[str, str], str]
    ) -> None:
        self._root, self._usual, self._targets = root, usual, targets

    def lines(self) -> list[CredentialLine]:
        return self._of(self._root, (), 0, None)

    def _of(
        self, run: _Run, above: tuple[str, ...], depth: int, asked: AuthHop | None
    ) -> list[CredentialLine]:
        runs = (run.id, *above)
        lines = [self._inbound(run, runs, depth, asked)]
        lines += [
            question_line(place, *each, runs=runs, depth=depth + 1, caller=run.asked_by_whom)
            for place, each in enumerate(run.questions.values(), 1)
        ]
        waiting = list(run.children)
        for place, requests in _folded(run.requests.values()):
            event = requests[0].event
            lines.append(self._outbound(run, runs, depth + 1, place, requests))
            if event.method == _ASKING:
                for child in [child for child in waiting if child.asked_as == event.downstream]:
                    waiting.remove(child)
                    lines += self._of(child, runs, depth + 2, event)
        for child in waiting:  # their request is reported with the answer
            lines += self._of(child, runs, depth + 1, None)
        return lines

    def _inbound(self, run: _Run, runs: tuple[str, ...], depth: int, asked: AuthHop | None) -> CredentialLine:
        # Facts from its own requests with the same credential apply to it too.
        same = next(
            (
                request.event
                for request in run.requests.values()
                if request.event.fingerprint == run.principal
            ),
            asked,
        )
        if same is not None and same.fingerprint != run.principal:
            same = None
        sender = run.asked_by_whom
        expires_at = same.expires_at if same is not None and run.principal else None
        findings = []
        if asked is not None and run.known and asked.fingerprint != run.principal:
            was = f"key {short(asked.fingerprint)}" if asked.fingerprint else "no key"
            came = f"key {short(run.principal)}" if run.principal else "none"
            findings.append(f"sent with {was}, arrived with {came}")
        if expires_at is not None and expires_at < run.at:
            findings.append("the key had expired")
        return CredentialLine(
            key=(run.id, 0),
            depth=depth,
            at=run.at,
            runs=runs,
            sender=sender,
            to=run.agent,
            source="caller" if run.principal else "none",
            fingerprint=run.principal,
            audience=same.audience if same is not None and run.principal else (),
            expires_at=expires_at,
            claims=claims_of(same) if same is not None and run.principal else (),
            method="send_message",
            seconds=run.seconds,
            outcome=run.outcome,
            findings=tuple(findings),
        )

    def _outbound(
        self, run: _Run, runs: tuple[str, ...], depth: int, place: int, requests: list[_CountedRequest]
    ) -> CredentialLine:
        event = requests[0].event
        is_folded = len(requests) > 1
        findings = dict.fromkeys(each for one in requests for each in self._findings(run, one.event))
        return CredentialLine(
            key=(run.id, place),
            depth=depth,
            at=event.at,
            runs=runs,
            sender=run.agent,
            to=event.downstream,
            source=event.source,
            fingerprint=event.fingerprint,
            audience=event.audience,
            expires_at=event.expires_at,
            claims=claims_of(event),
            variable=event.variable,
            method="connection" if is_folded else event.method,
            tool=event.tool,
            seconds=run.took.get((event.downstream, event.tool)),
            parts=tuple(map(_part, requests)) if is_folded else (),
            status=min((one.event.status for one in requests if one.event.status), default=None),
            times=sum(one.times for one in requests),
            findings=tuple(findings),
            caller=run.asked_by_whom,
        )

    def _findings(self, run: _Run, event: AuthHop) -> Iterable[str]:
        usual = self._usual.get((event.agent, event.downstream), set())
        if event.source == "none":
            if "configured" in usual:
                yield "no key, others of this agent went with a configured one"
            elif "forwarded" in usual and (run.principal or not run.known):
                yield "no key, others of this agent went with their caller's"
        elif event.expires_at is not None and event.expires_at < event.at:
            yield "the key had expired"
        if event.source == "forwarded" and run.known and event.fingerprint != run.principal:
            own = short(run.principal) if run.principal else "none"
            yield f"not the caller's key: {short(event.fingerprint)} was sent, the caller has {own}"
        audience = ", ".join(event.audience)
        if event.status in _REFUSED:
            held = f"; the key is for {audience}" if audience else ""
            yield f"refused with {event.status}{' without a key' if event.source == 'none' else held}"
        target = self._targets.get((event.agent, event.downstream), "")
        if not fits(event.audience, target):
            yield f"the key is for {audience}, but went to {target}"


def fits(audience: tuple[str, ...], target: str) -> bool:
    """Whether a server at the URL ``target`` may accept tokens with this audience (RFC 8707).

    Only URLs can be compared: a server at the same origin, at the audience's path or below it. An audience
    that is a name may be anything's.
    """
    place = _place(target)
    found = [_place(each) for each in audience]
    if place is None or not found or None in found:
        return True
    return any(
        each is not None and each[:3] == place[:3] and f"{place[3]}/".startswith(f"{each[3]}/")
        for each in found
    )


def _place(url: str) -> tuple[str, str, int | None, str] | None:
    """Scheme, host, port and path; None for what is no URL of the web."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, port, parts.path.rstrip("/")


def _folded(requests: Iterable[_CountedRequest]) -> Iterator[tuple[int, list[_CountedRequest]]]:
    """Requests by line, with its place: those that only make and keep a connection share one."""
    lines: dict[object, tuple[int, list[_CountedRequest]]] = {}
    for place, request in enumerate(requests, 1):
        event = request.event
        folds = is_connection(event.method) and event.status not in _REFUSED and (event.status or 500) < 500
        line = (event.downstream, event.source, event.fingerprint) if folds else place
        lines.setdefault(line, (place, []))[1].append(request)
    yield from lines.values()


def _part(request: _CountedRequest) -> str:
    """``tools/list 200 x2``."""
    again = f" x{request.times}" if request.times > 1 else ""
    return f"{request.event.method or 'stream'} {request.event.status}{again}"
