"""The trace goes on at downstreams: what a run sends them carries the span of the call that sends it.

fast-agent takes a request's ``_meta`` from a context variable that it sets for model calls only; the keys
stand in it while a request is made, each attempt of a call that is tried again included. A server that does
not know them passes over them, as the protocol says of ``_meta``.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from fast_agent.llm import fastagent_llm
from fast_agent.mcp.mcp_aggregator import MCPAggregator
from opentelemetry import context as otel
from opentelemetry import trace as spans

from pallas.trace import TRACEPARENT, outgoing

from . import hooks
from .hooks import Hook

# What fast-agent sends metadata with.
_CARRYING: Final = frozenset({"call_tool", "read_resource", "get_prompt"})


def install() -> None:
    """Install the hook, once however often this is called. Raises Fault (CONFIG)."""
    hooks.install(HOOK)


def _carry(original: Callable[..., Any]) -> Callable[..., Any]:
    async def execute_session_method(
        self: Any, client: Any, *, method_name: str, method_args: Any, progress_callback: Any
    ) -> Any:
        call = functools.partial(
            original,
            self,
            client,
            method_name=method_name,
            method_args=method_args,
            progress_callback=progress_callback,
        )
        keys = outgoing() if method_name in _CARRYING else None
        if not keys:
            return await call()
        with _carrying(keys):
            return await call()

    return execute_session_method


@contextmanager
def _carrying(keys: dict[str, str]) -> Iterator[None]:
    """Requests made in this block carry the keys."""
    variable: Any = fastagent_llm._mcp_metadata_var
    token = variable.set({**(variable.get() or {}), **keys})
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
        variable.reset(token)


HOOK: Final = Hook(
    "outgoing-trace",
    MCPAggregator,
    "_execute_session_method",
    ("self", "client", "method_name", "method_args", "progress_callback"),
    _carry,
)
