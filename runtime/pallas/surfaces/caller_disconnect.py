"""A caller that goes away: in the middle of a call, or with its whole session."""

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
    """What ``work`` gives; it is cancelled when the connection that asked for it is cut.

    The handshake era's transport lets a request whose client vanished run on: nobody could fetch what
    comes of it. The newer one sees to it by itself. Raises Fault (TRANSPORT) then, which nobody reads.
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
        # The body was read long ago: all that can still come is the end.
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()


def when_session_ends(context: FastMCPRequestContext | None, forget: Callable[[], None]) -> None:
    """Call ``forget`` when this handshake-era session ends: by DELETE, by idleness, with the server.

    Only the first ``forget`` of a session counts.
    """
    connection: Any = getattr(context.session, "_connection", None) if context is not None else None
    if connection is None or connection.state.get(_MARK):
        return
    connection.state[_MARK] = True

    async def end() -> None:
        forget()

    connection.exit_stack.push_async_callback(end)
