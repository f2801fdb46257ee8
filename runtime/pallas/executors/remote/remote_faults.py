"""Faults for failures on the way to the other side, or reported by it."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from math import isfinite
from typing import Any, Final, NamedTuple

from pallas.model import Fault, FaultType
from pallas.model.fault import leaves_of
from pallas.model.redaction import redact_head
from pallas.model.refusals import OTHERS, REASON
from pallas.safe_text import one_line, sanitize

from .remote_credentials import Noted

# The limit in characters of the other side's text that is passed on.
_MAX_WORDS: Final = 4_000
# The keys of a Fault's data that are passed on, in addition to its type and whether to try again.
_KEPT: Final = ("providerId", "upstreamCode", "stage", "retry_after", "correlationId", "limit", "size")
# Larger numbers are not meaningful, and not every JSON parser accepts them.
_MAX_CODE: Final = 2**31
_MAX_NUMBER: Final = 2**53
_REDIRECTED: Final = re.compile(r"(?:^Redirect| redirects) to (\S+?),? ")
_GONE: Final = ("not found", "unknown", "expired", "does not exist", "no such")
_THINGS: Final = ("conversation", "thread", "session", "context")


class Forgotten(Exception):
    """The other side does not know the conversation any more: the history has to be sent again."""


class Whom(NamedTuple):
    """The other side as a Fault names it: the agent, its URL without secrets, the limit of a connect in
    seconds."""

    name: str
    url: str
    forward: bool
    connect: float

    @property
    def data(self) -> dict[str, Any]:
        """Return the data of each Fault."""
        return {"providerId": self.name}


def explain(error: BaseException, noted: Noted, whom: Whom) -> Fault:
    """Return the Fault for any error of a call. Raises Forgotten if the session is gone."""
    from httpx2 import ConnectError, TimeoutException, TransportError
    from mcp import MCPError
    from pydantic import ValidationError

    leaves = list(leaves_of(error))

    def first[Kind: BaseException](*kinds: type[Kind]) -> Kind | None:
        return next((leaf for leaf in leaves if isinstance(leaf, kinds)), None)

    if fault := first(Fault):
        return fault
    if first(TimeoutException, TimeoutError):
        return Fault(
            FaultType.TIMEOUT,
            f"{whom.name}: no answer from {whom.url} in time ({whom.connect:g} s to connect)",
            data=whom.data,
        )
    if first(ConnectError, ConnectionError):
        return Fault(
            FaultType.TRANSPORT,
            f"{whom.name}: nothing answers at {whom.url}; start it, or correct url",
            data=whom.data,
        )
    if first(TransportError):
        return _broken(whom)
    if refused := first(MCPError):
        return _of_mcp(refused, noted, whom)
    if first(ValidationError):
        return Fault(
            FaultType.PROTOCOL,
            f"{whom.name}: {whom.url} answered with something that is not the result of a tool; if "
            f"it asks for "
            "input, that cannot be passed on",
            data=whom.data,
        )
    return Fault(
        FaultType.INTERNAL,
        f"{whom.name}: asking {whom.url} failed; the log has the details",
        data=whom.data,
        cause=type(leaves[0]).__name__,
    )


def of_status(noted: Noted, whom: Whom) -> Fault | None:
    """Return the Fault for an HTTP status that is clear by itself (DR-22); None for others."""
    status = noted.status
    data: dict[str, Any] = {**whom.data, "upstreamCode": status}
    if noted.retry_after is not None:
        data["retry_after"] = noted.retry_after
    if status in (401, 403):
        return Fault(FaultType.AUTH, f"{whom.name}: {whom.url} {_refused(noted, whom)}", data=data)
    if status == 429:
        text = f"{whom.name}: {whom.url} refused the request: rate limit (HTTP 429); try again later"
    elif status >= 500:
        text = f"{whom.name}: {whom.url} failed (HTTP {status}); try again later"
    else:
        return None
    return Fault(FaultType.UPSTREAM, text, retryable=True, data=data)


def reported(text: str, whom: Whom) -> Fault:
    """Return the Fault in an error result: that of another Pallas unchanged, anything else as its text."""
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        body = json.loads(text)
        data: Mapping[str, Any] = body["data"]
        code = int(body["code"])
        return Fault(
            FaultType(data["type"]),
            f"{whom.name}: {_words(str(body['error']))}",
            code=code if abs(code) < _MAX_CODE else None,
            retryable=data.get("retryable") is True,
            data={**whom.data, **_plain(data)},
        )
    return Fault(
        FaultType.UPSTREAM,
        f"{whom.name}: {_words(text) or 'it answered with an error without a message'}",
        data=whom.data,
    )


def is_forgotten(text: str) -> bool:
    """Return whether an error result says that the conversation does not exist."""
    with suppress(ValueError, TypeError, AttributeError, RecursionError):
        body = json.loads(text)
        if body.get("data", {}).get(REASON) == "not_found":
            return True
        text = str(body.get("error", text))
    line = text[:_MAX_WORDS].lower()
    return any(word in line for word in _GONE) and any(word in line for word in _THINGS)


def goes_on(text: str) -> bool:
    """Return whether an error result says that another fleet of the other side goes on with the run."""
    with suppress(ValueError, TypeError, AttributeError, RecursionError):
        return json.loads(text)["data"].get(REASON) in OTHERS
    return False


def _of_mcp(error: Any, noted: Noted, whom: Whom) -> Fault:
    from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

    if fault := of_status(noted, whom):
        return fault
    message = str(error.message)
    line = message.lower()
    if line.startswith("session") and ("terminated" in line or "not found" in line):
        raise Forgotten
    data = error.error.data
    if isinstance(data, dict) and data.get("type") in tuple(FaultType):  # it may be anything
        return Fault(
            FaultType(data["type"]),
            f"{whom.name}: {_words(message)}",
            retryable=data.get("retryable") is True,
            data={**whom.data, **_plain(data)},
        )
    if error.code == REQUEST_TIMEOUT:
        return Fault(FaultType.TIMEOUT, f"{whom.name}: no answer from {whom.url} in time", data=whom.data)
    if redirected := _REDIRECTED.search(message):
        where = _words(redirected[1])
        return Fault(
            FaultType.CONFIG,
            f"{whom.name}: {whom.url} redirects to {where}, which is not followed; if that is the right "
            "server, set it as url",
            data=whom.data,
        )
    if error.code == CONNECTION_CLOSED:
        return _broken(whom)
    if noted.status == 404:
        return Fault(
            FaultType.UPSTREAM,
            f"{whom.name}: there is nothing at {whom.url} (HTTP 404); correct url, or start what is there",
            data={**whom.data, "upstreamCode": 404},
        )
    status = f", HTTP {noted.status}" if noted.status >= 400 else ""
    return Fault(
        FaultType.PROTOCOL,
        f"{whom.name}: {whom.url} refused the message: {_words(message)} (error {error.code}{status}); is it "
        "an MCP endpoint?",
        data=whom.data,
    )


def _refused(noted: Noted, whom: Whom) -> str:
    if noted.source == "forwarded":
        return f"refused the caller's bearer (HTTP {noted.status}); call with one that it accepts"
    if noted.source == "configured":
        return f"refused the configured credential (HTTP {noted.status}); correct headers.Authorization"
    if whom.forward:
        return f"asks for a credential (HTTP {noted.status}); call with a bearer, which is passed on to it"
    return (
        f"asks for a credential (HTTP {noted.status}); give headers.Authorization, or forward_inbound_auth: "
        "true where it takes the caller's own"
    )


def _broken(whom: Whom) -> Fault:
    return Fault(
        FaultType.TRANSPORT,
        f"{whom.name}: the connection to {whom.url} broke off before the answer was complete; send it again",
        data=whom.data,
    )


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known keys of a Fault's data whose values are plain."""
    safe_fields: dict[str, Any] = {}
    for key in _KEPT:
        value = data.get(key)
        if isinstance(value, str):
            safe_fields[key] = one_line(redact_head(value, 2_000), 200)
        elif _is_number(value):
            safe_fields[key] = value
    if data.get("type") == FaultType.PROTOCOL and data.get("system") == "validation":
        # The message does not fit the class of a typed handler there: its sender may correct it.
        safe_fields["system"] = "validation"
        if isinstance(field := data.get("field"), str):
            safe_fields["field"] = one_line(redact_head(field, 2_000), 100)
    return safe_fields


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER


def _words(text: str) -> str:
    """Return foreign text, sanitised, with secrets masked."""
    return sanitize(redact_head(text, 2 * _MAX_WORDS).strip(), _MAX_WORDS)
