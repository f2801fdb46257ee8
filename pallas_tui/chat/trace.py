"""The W3C trace context of one message, by which its run is found among the fleet's."""

import secrets
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Trace:
    """``trace_id`` has 32 hex digits, ``span_id`` 16; both made new unless given."""

    trace_id: str = field(default_factory=lambda: secrets.token_hex(16))
    span_id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def parent(self) -> str:
        """The ``traceparent`` that goes along with the call."""
        return f"00-{self.trace_id}-{self.span_id}-01"
