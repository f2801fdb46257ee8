"""Trace context: what a caller sends of it, the span of each run, and what goes to downstreams.

The keys are those of W3C Trace Context and Baggage, in ``_meta`` as the MCP specification has them since
2026-07-28, or as HTTP headers. What is malformed is ignored, as those standards say.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pallas.model import TraceContext

if TYPE_CHECKING:
    from pallas.telemetry.wire_record import RunWire

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
BAGGAGE: Final = "baggage"

MAX_STATE: Final = 512
"""Characters of ``tracestate`` that are passed on; a longer one is left out, the trace goes on without."""
MAX_BAGGAGE: Final = 8_192
"""Characters of ``baggage`` that are passed on; a longer one is left out."""

_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16
# Both lists are printable ASCII; anything else came from someone who does not follow the standard.
_LIST: Final = re.compile(r"[\x20-\x7e\t]*")


def parse(parent: object, state: object = None, baggage: object = None) -> TraceContext | None:
    """What the values of the three keys say; None when ``traceparent`` is not one.

    ``tracestate`` and ``baggage`` that are malformed or too long are left out.
    """
    if not isinstance(parent, str) or len(parent) > 200:
        return None
    match = _PARENT.fullmatch(parent.strip())
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    # The first version ends after the flags; a later one may go on, and ff is none.
    if version == "ff" or (version == "00" and more) or trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    return TraceContext(trace_id, span_id, flags, _list(state, MAX_STATE), _list(baggage, MAX_BAGGAGE))


def incoming(meta: Mapping[str, Any] | None, headers: Mapping[str, str] | None) -> TraceContext | None:
    """The span of whoever sent a request: by its ``_meta``, else by its HTTP headers, else None."""
    for carrier in (meta, headers):
        if carrier and (parent := carrier.get(TRACEPARENT)) is not None:
            found = parse(parent, carrier.get(TRACESTATE), carrier.get(BAGGAGE))
            if found is not None:
                return found
    return None


def child_of(parent: TraceContext | None) -> TraceContext:
    """A new span below ``parent``; without one the first of a new trace."""
    if parent is None:
        return TraceContext(secrets.token_hex(16), new_span())
    return replace(parent, span_id=new_span())


def new_span() -> str:
    """The id of a span that nobody has yet."""
    return secrets.token_hex(8)


class RunTrace:
    """A run as the code that works for it knows it: by the context it runs in, while the run lasts.

    ``call`` is the span of the downstream call that this context makes, empty between calls. ``wire`` keeps
    what the run says over the wire, None where nobody wants that.
    """

    __slots__ = ("agent", "context", "live", "run_id", "wire")

    def __init__(self, run_id: str, agent: str, context: TraceContext, wire: "RunWire | None" = None) -> None:
        self.run_id = run_id
        self.agent = agent
        self.context = context
        self.wire = wire
        self.live = True


_run: ContextVar[RunTrace | None] = ContextVar("pallas_run", default=None)
_call: ContextVar[str] = ContextVar("pallas_call", default="")


def current_run() -> RunTrace | None:
    """The run on whose behalf this code runs; None outside of one and when it is over.

    Tasks that outlive the run which began them (a connection) stay in its context: it is over for them.
    """
    run = _run.get()
    return run if run is not None and run.live else None


def run_of(context: Context) -> RunTrace | None:
    """The run on whose behalf the code in ``context`` runs; None as for ``current_run``."""
    run = context.get(_run)
    return run if run is not None and run.live else None


@contextmanager
def running(run: RunTrace) -> Iterator[None]:
    """What happens in this block, and in the tasks begun in it, is done for ``run``."""
    token, call = _run.set(run), _call.set("")
    try:
        yield
    finally:
        run.live = False
        if run.wire is not None:
            run.wire.live = False
        _call.reset(call)
        _run.reset(token)


def begin_call() -> str:
    """A call to a downstream begins in this context: the id of its span, empty outside of a run."""
    if current_run() is None:
        return ""
    span = new_span()
    _call.set(span)
    return span


def current_call() -> str:
    """The span of the call that began last in this context, empty when none did."""
    return _call.get()


def outgoing() -> dict[str, str]:
    """The keys for the ``_meta`` of a request made now; none outside of a run."""
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
