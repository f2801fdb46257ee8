"""Callers that disconnect: in the middle of a call, or with their whole session."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import anyio
from fastmcp.server.dependencies import FastMCPRequestContext

from pallas.model import Fault, FaultType

from .send_message_call import session_of

_MARK: Final = "local.pallas/session-watched"


async def while_connected[T](context: FastMCPRequestContext | None, work: Awaitable[T]) -> T:
    """Return the result of ``work``, which is cancelled when the caller's connection is cut.

    The handshake era's transport lets the request of a vanished client run on, though no client could fetch
    its result; the newer one cancels it by itself. Raises Fault (TRANSPORT) then, which no client reads.
    """
    request = context.request if context is not None else None
    if request is None or session_of(context) is None:
        return await work
    with anyio.CancelScope() as scope:
        watch = asyncio.create_task(_gone(request.receive, scope))
        try:
            return await work
        finally:
            watch.cancel()
    raise Fault(FaultType.TRANSPORT, "the client went away")


async def _gone(receive: Callable[[], Awaitable[Any]], scope: anyio.CancelScope) -> None:
    with suppress(RuntimeError):  # a request without a connection behind it
        # The body was read long ago: the only message left is the disconnect.
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()


def when_session_ends(context: FastMCPRequestContext | None, forget: Callable[[], None]) -> None:
    """Call ``forget`` when this handshake-era session ends: by DELETE, after its idle timeout, or with the
    server.

    Only the first ``forget`` of a session counts.
    """
    connection: Any = getattr(context.session, "_connection", None) if context is not None else None
    if connection is None or connection.state.get(_MARK):
        return
    connection.state[_MARK] = True

    async def end() -> None:
        forget()

    connection.exit_stack.push_async_callback(end)
