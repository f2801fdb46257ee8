"""Trace context: the caller's span, the span of each run, and the keys sent to downstreams.

The keys are those of W3C Trace Context and Baggage, in ``_meta`` as in the MCP specification since
2026-07-28, or as HTTP headers. Malformed values are ignored, as those standards say.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pallas.model import TraceContext
from pallas.model.ids import random_hex

if TYPE_CHECKING:
    from pallas.limits.meter import ModelMeter
    from pallas.telemetry.step_record import RunSteps
    from pallas.telemetry.wire_record import RunWire

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
BAGGAGE: Final = "baggage"

MAX_STATE: Final = 512
"""Most characters of ``tracestate`` that are passed on; a longer one is left out."""
MAX_BAGGAGE: Final = 8_192
"""Most characters of ``baggage`` that are passed on; a longer one is left out."""

_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16
# Both lists are printable ASCII according to the standard.
_LIST: Final = re.compile(r"[\x20-\x7e\t]*")


def parse(parent: object, state: object = None, baggage: object = None) -> TraceContext | None:
    """The span from the values of the three keys; None if ``traceparent`` is invalid.

    An invalid or too long ``tracestate`` or ``baggage`` is left out.
    """
    if not isinstance(parent, str) or len(parent) > 200:
        return None
    match = _PARENT.fullmatch(parent.strip())
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    # Version 00 ends after the flags; a later one may have more, and ff is invalid.
    if version == "ff" or (version == "00" and more) or trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    return TraceContext(trace_id, span_id, flags, _list(state, MAX_STATE), _list(baggage, MAX_BAGGAGE))


def incoming(meta: Mapping[str, Any] | None, headers: Mapping[str, str] | None) -> TraceContext | None:
    """The sender's span: from its ``_meta``, else from its HTTP headers, else None."""
    for carrier in (meta, headers):
        if carrier and (parent := carrier.get(TRACEPARENT)) is not None:
            found = parse(parent, carrier.get(TRACESTATE), carrier.get(BAGGAGE))
            if found is not None:
                return found
    return None


def child_of(parent: TraceContext | None) -> TraceContext:
    """A new span below ``parent``; without a parent the first of a new trace."""
    if parent is None:
        return TraceContext(random_hex(16), new_span())
    return replace(parent, span_id=new_span())


def new_span() -> str:
    """A new span id."""
    return random_hex(8)


class RunTrace:
    """A run as seen by code that works for it, bound to the context that it runs in.

    ``wire`` records the run's traffic, ``steps`` its steps; None if that is not recorded. ``meter`` is asked
    before its questions to models; None if nothing limits it.
    """

    __slots__ = ("agent", "context", "live", "meter", "run_id", "steps", "wire")

    def __init__(
        self,
        run_id: str,
        agent: str,
        context: TraceContext,
        wire: "RunWire | None" = None,
        steps: "RunSteps | None" = None,
        meter: "ModelMeter | None" = None,
    ) -> None:
        self.run_id = run_id
        self.agent = agent
        self.context = context
        self.wire = wire
        self.steps = steps
        self.meter = meter
        self.live = True


_run: ContextVar[RunTrace | None] = ContextVar("pallas_run", default=None)
_call: ContextVar[str] = ContextVar("pallas_call", default="")
_agent: ContextVar[str] = ContextVar("pallas_agent", default="")


def current_run() -> RunTrace | None:
    """The run that this code works for; None outside of one and after its end.

    Tasks that outlive the run which started them (a connection) stay in its context: it is over for them.
    """
    run = _run.get()
    return run if run is not None and run.live else None


def current_agent() -> str:
    """The agent that this code works for, in a run or outside of one; empty if it is none."""
    return _agent.get()


@contextmanager
def working_as(agent: str) -> Iterator[None]:
    """Bind this block, and the tasks started in it, to an agent."""
    token = _agent.set(agent)
    try:
        yield
    finally:
        _agent.reset(token)


def bind_agent(agent: str) -> None:
    """Bind this context to an agent for good."""
    _agent.set(agent)


def outside_of_runs() -> Context:
    """An empty context, but for the agent that this code works for."""
    context = Context()
    context.run(_agent.set, current_agent())
    return context


def run_of(context: Context) -> RunTrace | None:
    """The run that the code in ``context`` works for; None as for ``current_run``."""
    run = context.get(_run)
    return run if run is not None and run.live else None


@contextmanager
def running(run: RunTrace) -> Iterator[None]:
    """Bind this block, and the tasks started in it, to ``run``."""
    token, call = _run.set(run), _call.set("")
    try:
        with working_as(run.agent):
            yield
    finally:
        run.live = False
        if run.wire is not None:
            run.wire.live = False
        if run.steps is not None:
            run.steps.end()
        _call.reset(call)
        _run.reset(token)


@contextmanager
def working_for(run: RunTrace | None) -> Iterator[None]:
    """Bind this block to a run that another task runs."""
    token = _run.set(run)
    try:
        yield
    finally:
        _run.reset(token)


def begin_call() -> str:
    """Begin a call to a downstream in this context; returns its span id, empty outside of a run."""
    if current_run() is None:
        return ""
    span = new_span()
    _call.set(span)
    return span


def current_call() -> str:
    """The span of the last call in this context, empty if there was none."""
    return _call.get()


def outgoing() -> dict[str, str]:
    """The keys for the ``_meta`` of a request that is sent now; none outside of a run."""
    run = current_run()
    if run is None:
        return {}
    own = run.context
    span = _call.get() or own.span_id
    keys = {TRACEPARENT: f"00-{own.trace_id}-{span}-{own.flags}"}
    if own.state:
        keys[TRACESTATE] = own.state
    if own.baggage:
        keys[BAGGAGE] = own.baggage
    return keys


def _list(value: object, limit: int) -> str:
    if not isinstance(value, str) or len(value) > limit or not _LIST.fullmatch(value):
        return ""
    return value.strip()
