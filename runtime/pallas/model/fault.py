"""Fault, the one error type that crosses a boundary."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final


class FaultType(StrEnum):
    """The kinds of errors."""

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
# The texts for handlers: the same whatever the cause is, and without names.
_TO_HANDLERS: Final = {
    "routing": "Message could not be delivered. Please verify your target and try again.",
    "validation": "Message does not fit its schema. Please correct it and try again.",
    "timeout": "The target did not answer in time. Please try again later.",
}
_FAILED: Final = "The target could not complete the request."
_RETRYABLE: Final = frozenset({FaultType.TIMEOUT, FaultType.TRANSPORT})


class Fault(Exception):
    """A failure as a caller may see it: short, without secrets, and with a hint how to fix it.

    ``code`` and ``retryable`` follow from ``type`` unless given: an UPSTREAM fault for a
    provider's 429 or 5xx is retryable, others are not. ``data`` holds plain JSON values. ``of_agent`` says
    that the agent's own work failed; without it, something refused or ended the work. ``cause`` is for
    operators: it is in the log and the workbench, and in no body. Tracebacks stay in the log where they
    happened.
    """

    of_agent = False

    def __init__(
        self,
        type: FaultType,  # noqa: A002 - a word of the API
        message: str,
        *,
        retryable: bool | None = None,
        code: int | None = None,
        data: Mapping[str, Any] | None = None,
        cause: str = "",
    ) -> None:
        super().__init__(message)
        self.type = type
        self.message = message
        self.code = _CODES[type] if code is None else code
        self.retryable = type in _RETRYABLE if retryable is None else retryable
        self.data: Mapping[str, Any] = dict(data or {})
        self.cause = cause

    def __repr__(self) -> str:
        return f"Fault({self.type.value}, {self.message!r})"

    def to_body(self) -> dict[str, Any]:
        """The JSON body: ``{error, code, data{type, retryable, ...}}``."""
        return {
            "error": self.message,
            "code": self.code,
            "data": {"type": self.type.value, "retryable": self.retryable, **self.data},
        }

    @property
    def system_code(self) -> str:
        """The code for handlers: ``routing``, ``validation``, else the type in lower case."""
        return str(self.data.get("system") or self.type.value.lower())

    @property
    def system_message(self) -> str:
        """The text for handlers. Only an error in the handler's own payload is reported in detail."""
        if self.system_code == "validation":
            return self.message
        return _TO_HANDLERS.get(self.system_code, _FAILED)

    @property
    def system_retryable(self) -> bool:
        """Whether a handler may try again; always if the message was its own mistake."""
        return self.retryable or self.system_code in ("routing", "validation")


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the single exceptions of nested groups, of which a Fault names one."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves_of(each)
    else:
        yield error
