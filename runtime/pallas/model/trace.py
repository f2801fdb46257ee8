"""Where in a trace something stands, as W3C Trace Context has it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span of a trace: ``trace_id`` has 32 hex digits, ``span_id`` 16, ``flags`` two.

    ``state`` and ``baggage`` are what came with it, passed on as they are; empty without them.
    """

    trace_id: str
    span_id: str
    flags: str = "01"
    state: str = ""
    baggage: str = ""

    @property
    def traceparent(self) -> str:
        """The span as the value of ``traceparent``."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"
