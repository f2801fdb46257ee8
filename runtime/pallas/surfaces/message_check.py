"""Checks the JSON-RPC message of an MCP request before the SDK reads it.

The SDK takes a request whose id is no MCP id for a notification, and answers 202 and nothing more. It lists
what its models miss for other mistakes, and compares media types as they are spelled.
"""

from typing import Any, Final, NamedTuple

import msgspec
from mcp_types import INVALID_PARAMS, INVALID_REQUEST
from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.bounds.sizes import MAX_BODY
from pallas.surfaces.whole_answer import answer_json

from .request_replay import read_body

REQUEST_ID: Final = "pallas.mcp_request_id"
"""The key of a request's id in its scope; None where the message is no request."""
_MEDIA_TYPES: Final = frozenset({b"content-type", b"accept"})
_BATCH: Final = "a batch is not part of MCP; send each message in a request of its own"
_NO_OBJECT: Final = "the body is not a JSON-RPC message; send one JSON object"
_VERSION: Final = 'a message needs "jsonrpc": "2.0"'
_ID: Final = 'the "id" of a request must be a string or an integer; a notification has none'
_METHOD: Final = '"method" must be a string'
_KIND: Final = 'a message needs "method", or "result" or "error" if it answers a request'
_PARAMS: Final = '"params" must be an object with the parameters by name'


class _Envelope(msgspec.Struct):
    """The parts of a message; their values are read only as far as the checks need."""

    jsonrpc: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    method: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_DECODER: Final = msgspec.json.Decoder(_Envelope)


class MessageCheck:
    """ASGI middleware: 400 with a JSON-RPC error for a POST whose body is JSON but no MCP message.

    The code is -32600, or -32602 for parameters that are no object. The application gets media types in
    lower case.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its ``REQUEST_ID``, or refuse it."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != "/mcp":
            await self._app(scope, receive, send)
            return
        found, receive = await _checked(receive)
        if found.mistake is None:
            await self._app({**_in_lower_case(scope), REQUEST_ID: found.request_id}, receive, send)
        else:
            await _refuse(found, scope, send)


class CheckedMessage(NamedTuple):
    """What is known of a message before it is read."""

    request_id: int | str | None = None
    mistake: tuple[int, str] | None = None
    """A JSON-RPC code and a text."""


def check_message(body: bytes) -> CheckedMessage:
    """Return the id and the mistake of a message; neither for a body that is not JSON."""
    try:
        return _check(_DECODER.decode(body))
    except msgspec.ValidationError:
        is_batch = body.lstrip()[:1] == b"["
        return CheckedMessage(None, (INVALID_REQUEST, _BATCH if is_batch else _NO_OBJECT))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return CheckedMessage()  # the SDK says where it is not JSON


def _check(message: _Envelope) -> CheckedMessage:
    request_id = _value(message.id)
    is_request_id = type(request_id) in (int, str)
    known = request_id if is_request_id else None
    if _value(message.jsonrpc) != "2.0":
        return CheckedMessage(known, (INVALID_REQUEST, _VERSION))
    if message.method is msgspec.UNSET:
        is_answer = message.result is not msgspec.UNSET or message.error is not msgspec.UNSET
        return CheckedMessage(None) if is_answer else CheckedMessage(known, (INVALID_REQUEST, _KIND))
    if message.id is not msgspec.UNSET and not is_request_id:
        return CheckedMessage(None, (INVALID_REQUEST, _ID))
    if type(_value(message.method)) is not str:
        return CheckedMessage(known, (INVALID_REQUEST, _METHOD))
    if message.params is not msgspec.UNSET and bytes(message.params)[:1] not in (b"{", b"n"):
        return CheckedMessage(known, (INVALID_PARAMS, _PARAMS))
    return CheckedMessage(known)


async def _checked(receive: Receive) -> tuple[CheckedMessage, Receive]:
    """Check a request's body, and return it to be read again."""
    body = await read_body(receive, MAX_BODY)
    return check_message(body.data) if body.is_whole else CheckedMessage(), body.replayed(receive)


def _value(raw: msgspec.Raw | msgspec.UnsetType) -> Any:
    """Return a text or number; None for anything else."""
    if isinstance(raw, msgspec.UnsetType) or bytes(raw)[:1] in (b"{", b"["):
        return None
    return msgspec.json.decode(raw)


def _in_lower_case(scope: Scope) -> Scope:
    """Return the scope with media types as the SDK compares them."""
    headers = scope["headers"]
    if all(name not in _MEDIA_TYPES or value == value.lower() for name, value in headers):
        return scope
    lowered = [(name, value.lower() if name in _MEDIA_TYPES else value) for name, value in headers]
    return {**scope, "headers": lowered}


async def _refuse(found: CheckedMessage, scope: Scope, send: Send) -> None:
    assert found.mistake is not None
    code, text = found.mistake
    error = {"jsonrpc": "2.0", "id": found.request_id, "error": {"code": code, "message": text}}
    await answer_json(scope, send, 400, error)
