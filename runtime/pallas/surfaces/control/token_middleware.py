"""Middleware of the control API: checks the token, and logs every change."""

import logging
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.model import Fault, FaultType, TokenScope, codec
from pallas.model.operations import READ_ONLY
from pallas.safe_text import handle_start, one_line
from pallas.surfaces.whole_answer import answer

from .control_tokens import (
    FULL_VARIABLE,
    READ_VARIABLE,
    TEXTS_VARIABLE,
    Attempts,
    ControlTokens,
    TokenHolder,
)

log = logging.getLogger(__name__)

CALLER: Final = "pallas.caller"
"""The key of the ASGI scope that holds the ``TokenHolder``."""
_LOOKS: Final = frozenset({"GET", "HEAD"})
_HANDLES_BELOW: Final = frozenset({"threads", "tasks"})
_HINT: Final = (
    f"the control API needs a token, that of {FULL_VARIABLE} or {READ_VARIABLE} where the fleet was started, "
    "or, on the same machine and as the same user, the one that the fleet keeps for you: "
    "`pallas dev --attach` finds it"
)
NO_TEXTS: Final = (
    f"read-only: this token shows no messages; use that of {TEXTS_VARIABLE}, or of "
    f"{FULL_VARIABLE}, with which the fleet was started"
)


class TokenMiddleware:
    """ASGI middleware: 401 without a valid token, 403 for a change with one that may only look, 429 after
    too many wrong ones.

    The token is sent as ``Authorization: Bearer``, never in the URL. It is removed from the request here.
    """

    def __init__(self, app: ASGIApp, tokens: ControlTokens, attempts: Attempts | None = None) -> None:
        self._app = app
        self._tokens = tokens
        self._attempts = attempts or Attempts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        address = str((scope.get("client") or ("unknown", 0))[0])
        if (seconds := self._attempts.wait(address)) > 0:
            fault = Fault(FaultType.AUTH, "too many wrong tokens from this address; wait, then try again")
            await refuse(send, scope, 429, fault, {"retry-after": str(int(seconds) + 1)})
            return
        presented = _bearer(scope)
        caller = self._tokens.caller_of(presented, address) if presented else None
        if caller is None:
            if presented:
                self._attempts.failed(address)
                log.warning("control: a wrong token from %s", address, extra={"audit": "refused"})
            fault = Fault(
                FaultType.AUTH, "this is not a token of this fleet; " + _HINT if presented else _HINT
            )
            challenge = 'Bearer realm="pallas"' + (', error="invalid_token"' if presented else "")
            await refuse(send, scope, 401, fault, {"www-authenticate": challenge})
            return
        if scope["method"] not in _LOOKS and caller.scope is not TokenScope.FULL:
            audit(caller, scope, "refused", f"{scope['method']} {path_shown(scope['path'])}")
            await refuse(send, scope, 403, Fault(FaultType.AUTH, READ_ONLY))
            return
        headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"authorization"]
        await self._app({**scope, "headers": headers, CALLER: caller}, receive, send)


def audit(caller: TokenHolder, scope: Scope, outcome: str, what: str, **more: str) -> None:
    """Log who asked for a change, from where, and whether it was accepted."""
    address = str((scope.get("client") or ("unknown", 0))[0])
    log.log(
        logging.INFO if outcome == "accepted" else logging.WARNING,
        "control: %s: %s by %s from %s",
        outcome,
        what,
        caller.fingerprint,
        address,
        extra={"audit": outcome, "principal": caller.fingerprint, **more},
    )


def path_shown(path: str) -> str:
    """A path for the log: of the handle of a thread or a task only the beginning."""
    parts = path.split("/")
    for index, part in enumerate(parts[:-1]):
        if part in _HANDLES_BELOW:
            parts[index + 1] = handle_start(parts[index + 1])
    return one_line("/".join(parts), 200)


async def refuse(
    send: Send, scope: Scope, status: int, fault: Fault, headers: dict[str, str] | None = None
) -> None:
    """Answer with a Fault. Its text repeats nothing that the caller sent."""
    body = codec.dumps(fault.to_body())
    await answer(scope, send, status, body, {"cache-control": "no-store", **(headers or {})})


def _bearer(scope: Scope) -> str:
    """The token of the request; empty unless there is exactly one bearer."""
    values = Headers(scope=scope).getlist("authorization")
    if len(values) != 1:
        return ""
    scheme, _, token = values[0].partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
