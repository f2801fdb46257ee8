"""The calls that need no token: only what a health check needs, judged by the request's body.

The body is read whole and written again from what was parsed, so that no later reader can parse it
differently.
"""

import asyncio
import json
from collections.abc import Collection
from typing import Any, Final, NoReturn

from mcp.shared.inbound import decode_header_value
from starlette.types import Message, Receive, Scope

from ..body_limit import drain_body

MAX_BODY: Final = 64 * 1024
READ_TIMEOUT: Final = 10.0
HEALTH: Final = frozenset({"server/discover", "initialize", "notifications/initialized", "ping"})
"""Methods of a health check, in both eras, in addition to the call of ``get_health`` itself."""
LISTING: Final = HEALTH | {"tools/list"}
_TOOL: Final = "get_health"


class _AmbiguousJson(ValueError):
    """JSON that two parsers might read differently."""


class Incoming:
    """The body of one request, as far as it was read."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_complete = False

    async def read(self) -> bytes | None:
        """Return the whole body; None if it is too large, too slow or broken off."""
        body = bytearray()
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                while not self._is_complete and len(body) <= MAX_BODY:
                    body += await self._more()
        except TimeoutError:
            self._is_complete = True  # a client that slow may miss the answer
            return None
        return bytes(body) if len(body) <= MAX_BODY else None

    async def drain(self) -> None:
        """Read and discard the rest: a client that still sends does not read the answer."""
        if not self._is_complete:
            await drain_body(self._receive)

    async def _more(self) -> bytes:
        message = await self._receive()
        self._is_complete = message["type"] != "http.request" or not message.get("more_body", False)
        return bytes(message.get("body", b""))

    def replay(self, body: bytes) -> Receive:
        """Return a ``receive`` that yields ``body`` in place of what was read, then what the connection
        yields."""
        left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> Message:
            return left.pop() if left else await self._receive()

        return replayed


async def read_public(
    scope: Scope, receive: Receive, incoming: Incoming, methods: Collection[str] = HEALTH
) -> tuple[Scope, Receive] | None:
    """Return the request to pass on if it is one of ``methods`` or a call of ``get_health``; else None.

    If it is None, the body is consumed: the request can only be refused.
    """
    if scope["method"] == "DELETE":
        # This ends a session, which only its owner may do.
        return (scope, receive) if len(_values(scope, b"mcp-session-id")) == 1 else None
    if scope["method"] != "POST":
        return None
    body = await incoming.read()
    call = _understood(body) if body is not None else None
    if call is None or not _is_one_of(call, methods) or not _headers_agree(scope, call):
        return None
    raw = json.dumps(call).encode()
    body_headers = (b"content-length", b"transfer-encoding")
    headers = [(name, value) for name, value in scope["headers"] if name.lower() not in body_headers]
    headers.append((b"content-length", str(len(raw)).encode()))
    return {**scope, "headers": headers}, incoming.replay(raw)


def _understood(body: bytes) -> dict[str, Any] | None:
    try:
        # Decode first: given bytes, json would also guess UTF-16 and UTF-32.
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_float=_float,
        )
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    arguments = dict(pairs)
    if len(arguments) != len(pairs):
        raise _AmbiguousJson("a key twice")
    return arguments


def _refuse_constant(constant: str) -> NoReturn:
    raise _AmbiguousJson(constant)


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _AmbiguousJson(text)
    return value


def _is_one_of(call: dict[str, Any], methods: Collection[str]) -> bool:
    method, params = call.get("method"), call.get("params")
    if not isinstance(method, str) or not isinstance(params, dict | None):
        return False
    if method == "tools/call":
        return params is not None and params.get("name") == _TOOL
    return method in methods


def _headers_agree(scope: Scope, call: dict[str, Any]) -> bool:
    """Return whether the headers that name the call, if any, name this one."""
    named = call["params"].get("name") if call["method"] == "tools/call" else None
    for header, expected in ((b"mcp-method", call["method"]), (b"mcp-name", named)):
        values = _values(scope, header)
        if len(values) > 1 or (
            values and expected is not None and decode_header_value(values[0]) != expected
        ):
            return False
    return True


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]
