"""JSON-RPC messages as lines, and the errors among them."""

import json
from collections.abc import Mapping
from typing import Any, Final

from pallas.model.safe_text import one_line
from pallas.telemetry.log import redact_text

METHOD_NOT_FOUND: Final = -32601


class Refused(Exception):
    """The worker answered with a JSON-RPC error; ``message`` is sanitised."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def line_of(message: Mapping[str, Any]) -> bytes:
    """A message as it is sent."""
    # Lone surrogates, which no encoder takes, stay escaped.
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"


def refused_of(error: Any) -> Refused:
    """What an answer's ``error`` says, whatever it is."""
    if not isinstance(error, dict):
        return Refused(0, one_line(redact_text(str(error)), 300))
    code = error.get("code")
    message = error.get("message")
    text = one_line(redact_text(message), 300) if isinstance(message, str) else ""
    return Refused(code if type(code) is int else 0, text or "an error without a message", error.get("data"))
