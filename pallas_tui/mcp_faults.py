"""What went wrong between the workbench and an agent, in words that help.

Used only after MCP was loaded, so its imports inside the functions cost nothing.
"""

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pallas.model import Fault, FaultType
from pallas.model.fault import leaves_of
from pallas.safe_text import one_line, sanitize

if TYPE_CHECKING:
    from mcp import MCPError

WANTS_CREDENTIAL: Final = "asks for a credential"
"""In the words of every Fault of an endpoint that was asked without one."""
TEXT_LIMIT: Final = 20_000
"""Characters of an agent's error text that are kept."""


def explain(error: BaseException, url: str, timeout: float) -> Fault:
    """Return the Fault for an error raised while calling ``url``; ``timeout`` is the deadline in seconds."""
    from httpx2 import ConnectError, TimeoutException, TransportError
    from mcp import MCPError

    leaves = list(leaves_of(error))

    def first[Kind: BaseException](*kinds: type[Kind]) -> Kind | None:
        return next((leaf for leaf in leaves if isinstance(leaf, kinds)), None)

    if fault := first(Fault):
        return fault
    if first(ConnectError, ConnectionError):
        return Fault(
            FaultType.TRANSPORT,
            f"Nothing answers at {url}. The agent may still be starting, or have stopped: the Agents pane "
            "says which, or Instances for one elsewhere. Then send again.",
        )
    if first(TimeoutException, TimeoutError):
        return _late(url, timeout)
    if first(TransportError):
        return _broken(url)
    if refused := first(MCPError):
        return _of_mcp(refused, url, timeout)
    cause = leaves[0]
    return Fault(
        FaultType.INTERNAL,
        f"Talking to {url} failed ({type(cause).__name__}): {one_line(str(cause), 500)}. Send again; the "
        "log may say more.",
    )


def asks_for_credential(url: str, status: int, *, sent: bool = False) -> Fault:
    """The Fault AUTH for an endpoint that answers with 401 or 403; ``sent`` says that a bearer went along."""
    if sent:
        return Fault(
            FaultType.AUTH,
            f"{url} refuses the bearer of this conversation (HTTP {status}): it may be expired, or meant for "
            "another server. /set bearer takes another one.",
        )
    return Fault(
        FaultType.AUTH,
        f"{url} {WANTS_CREDENTIAL} (HTTP {status}), and none was sent. In a conversation, alt+p or "
        "/set bearer chooses one.",
    )


def is_closed(error: BaseException) -> bool:
    """Whether the error only says that the connection is gone, not why."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED


def is_session_gone(error: BaseException) -> bool:
    """Whether a handshake-era server does not know our session any more, as after its restart."""
    from mcp import MCPError

    if not isinstance(error, MCPError):
        return False
    message = error.message.lower()
    return message.startswith("session") and ("terminated" in message or "not found" in message)


def fault_from(text: str) -> Fault:
    """The Fault in an error result: the JSON body of a Fault, or plain text."""
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        body = json.loads(text)
        data = body.get("data") or {}
        return Fault(
            FaultType(data.get("type", FaultType.INTERNAL)),
            sanitize(str(body["error"]), TEXT_LIMIT),
            code=int(body["code"]),
            retryable=bool(data.get("retryable", False)),
            data={key: value for key, value in data.items() if key not in ("type", "retryable")},
        )
    plain = sanitize(text.strip(), TEXT_LIMIT)
    return Fault(FaultType.UPSTREAM, plain or "The agent answered with an error without a message.")


def _of_mcp(error: "MCPError", url: str, timeout: float) -> Fault:
    from mcp_types import REQUEST_TIMEOUT

    message = sanitize(error.message, 2_000)
    data = error.error.data
    if isinstance(data, dict) and data.get("type") in set(FaultType):
        return Fault(FaultType(data["type"]), message, retryable=bool(data.get("retryable", False)))
    if error.code == REQUEST_TIMEOUT:
        return _late(url, timeout)
    if is_closed(error):
        return _broken(url)
    return Fault(
        FaultType.PROTOCOL,
        f"{url} refused the message: {message}. Is it an agent's MCP endpoint? Its log may say more.",
    )


def _late(url: str, timeout: float) -> Fault:
    return Fault(
        FaultType.TIMEOUT,
        f"No answer from {url} within {timeout:g} s. The log says what the agent was doing; send again.",
    )


def _broken(url: str) -> Fault:
    return Fault(
        FaultType.TRANSPORT, f"The connection to {url} broke off before the answer was complete. Send again."
    )
