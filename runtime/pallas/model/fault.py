"""The one error type that crosses a boundary."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final


class FaultType(StrEnum):
    """What kind of thing went wrong (SPEC 7.3)."""

    CONFIG = "CONFIG"
    AUTH = "AUTH"
    UPSTREAM = "UPSTREAM"
    TIMEOUT = "TIMEOUT"
    TRANSPORT = "TRANSPORT"
    PROTOCOL = "PROTOCOL"
    INTERNAL = "INTERNAL"


_CODES: Final = {
    FaultType.CONFIG: -32004,
    FaultType.AUTH: -32003,
    FaultType.UPSTREAM: -32002,
    FaultType.TIMEOUT: -32001,
    FaultType.TRANSPORT: -32000,
    FaultType.PROTOCOL: -32000,
    FaultType.INTERNAL: -32603,
}
_RETRYABLE: Final = frozenset({FaultType.TIMEOUT, FaultType.TRANSPORT})


class Fault(Exception):
    """A failure as a caller may see it: short, without secrets, and saying how to mend it.

    ``code`` and ``retryable`` follow from ``type`` (SPEC 7.3) unless given: an UPSTREAM fault
    that stands for a provider's 429 or 5xx is retryable, others are not. ``data`` holds plain
    JSON values. Tracebacks stay in the log, at their origin. ``of_agent`` says that the agent's own work
    came to this; else something refused the work, or ended it.
    """

    of_agent = False

    def __init__(
        self,
        type: FaultType,  # noqa: A002 - the word of SPEC 7.3
        message: str,
        *,
        retryable: bool | None = None,
        code: int | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.type = type
        self.message = message
        self.code = _CODES[type] if code is None else code
        self.retryable = type in _RETRYABLE if retryable is None else retryable
        self.data: Mapping[str, Any] = dict(data or {})

    def __repr__(self) -> str:
        return f"Fault({self.type.value}, {self.message!r})"

    def to_body(self) -> dict[str, Any]:
        """The JSON body of SPEC 7.3: ``{error, code, data{type, retryable, ...}}``."""
        return {
            "error": self.message,
            "code": self.code,
            "data": {"type": self.type.value, "retryable": self.retryable, **self.data},
        }
