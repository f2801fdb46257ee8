"""Continues the trace at downstreams: the requests of a run carry the span of the call that sends them.

The keys are in the ``_meta`` of a request, including each retry. A server that does not know them ignores
them, as the protocol says of ``_meta``.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final
from weakref import WeakSet

from mcp import MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST
from opentelemetry import context as otel
from opentelemetry import trace as spans

from pallas.telemetry.trace_context import BAGGAGE, TRACEPARENT, TRACESTATE, outgoing

from .text_seam import sent_meta

log = logging.getLogger(__name__)

# Connections to servers that refuse unknown metadata, against the protocol.
_refusing: Final[WeakSet[Any]] = WeakSet()
_KEYS: Final = re.compile(rf"\b_?meta\b|{TRACEPARENT}|{TRACESTATE}|\b{BAGGAGE}\b", re.IGNORECASE)

_call_keys: Final[ContextVar[Mapping[str, Any]]] = ContextVar("call_keys", default=MappingProxyType({}))
CALL_META: Final = ("local.pallas/runId", "local.pallas/callId", "local.pallas/attempt")
"""The keys that name a call of a durable run: a server may refuse an attempt below one that it has seen."""


async def traced[T](connection: Any, call: Callable[[dict[str, Any] | None], Awaitable[T]]) -> T:
    """Make a call with the ``_meta`` that it gets: the keys of the run's trace, and of ``sending_meta``.

    A server that refuses such keys is called once more without those of the trace, and from then on.
    """
    own = sent_meta()
    trace = outgoing() if connection not in _refusing else None
    if not trace:
        return await call(own or None)
    keys = {**trace, **_call_keys.get()}
    try:
        with _carrying(keys):
            return await call({**own, **keys})
    except MCPError as error:
        if not _refused(error):
            raise
    # It refused the metadata, so nothing was done.
    _refusing.add(connection)
    log.warning("a downstream refuses unknown keys in _meta; it is called without them from now on")
    return await call(own or None)


def _refused(error: MCPError) -> bool:
    """Return whether a request was refused for its metadata, before it had any effect."""
    return error.code in (INVALID_PARAMS, INVALID_REQUEST) and _KEYS.search(error.message) is not None


@contextmanager
def naming_call(run_id: str, call_id: str, attempt: int) -> Iterator[None]:
    """Name the call that is made in this block, in its ``_meta``."""
    token = _call_keys.set(dict(zip(CALL_META, (run_id, call_id, attempt), strict=True)))
    try:
        yield
    finally:
        _call_keys.reset(token)


def named_call() -> str:
    """Return the id of the call that is made in this context; empty outside of a durable turn."""
    return str(_call_keys.get().get(CALL_META[1], ""))


@contextmanager
def _carrying(keys: Mapping[str, Any]) -> Iterator[None]:
    """Make the span of the keys that of requests made in this block: the SDK writes its own keys too."""
    ambient = None
    if not spans.get_current_span().is_recording():
        _, trace_id, span_id, flags = keys[TRACEPARENT].split("-")
        own = spans.SpanContext(int(trace_id, 16), int(span_id, 16), False, spans.TraceFlags(int(flags, 16)))
        ambient = otel.attach(spans.set_span_in_context(spans.NonRecordingSpan(own)))
    try:
        yield
    finally:
        if ambient is not None:
            otel.detach(ambient)
