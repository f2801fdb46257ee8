"""A span of a trace, as in W3C Trace Context."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span of a trace."""

    trace_id: str  # 32 hex digits
    span_id: str  # 16 hex digits
    flags: str = "01"  # two hex digits
    state: str = ""  # as received, passed on unchanged, like ``baggage``
    baggage: str = ""

    @property
    def traceparent(self) -> str:
        """The value of the ``traceparent`` header."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"
