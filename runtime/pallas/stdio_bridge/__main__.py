"""``python -m pallas.stdio_bridge URL COMMAND...``: serve the command's MCP server at a local URL."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import Implementation

from pallas import __version__
from pallas.fleet.parent_death import leashed
from pallas.mcp_client import mcp_seam, stdio_seam
from pallas.safe_text import one_line
from pallas.surfaces.host_guard import LOCAL_NAMES, HostOriginGuard
from pallas.surfaces.listener import Listener, bind

from .proxy import proxy_of

USAGE: Final = 64


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or until the command ends; returns 0, or 1 with a line on stderr."""
    if len(arguments) < 2:
        _say("usage: python -m pallas.stdio_bridge URL COMMAND...")
        return USAGE
    url, *command = arguments
    try:
        return asyncio.run(_serve(url, command))
    except Exception as error:
        _say(f"{command[0]}: {one_line(str(_first(error)), 300)}")
    return 1


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


async def _serve(url: str, command: list[str]) -> int:
    asked, ended = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    parts = urlsplit(url)
    sock = bind(parts.hostname or "127.0.0.1", parts.port or 80, url)
    program, *rest = leashed(tuple(command))
    parameters = StdioServerParameters(command=program, args=rest, env=dict(os.environ))
    mcp_seam.install()
    stdio_seam.install()
    guarded = stdio_seam.guarded(command[0], stdio_client(parameters, errlog=sys.stderr))
    transport = _heard(guarded, ended)
    async with Client(transport, client_info=Implementation(name="pallas", version=__version__)) as client:
        app = proxy_of(client).streamable_http_app(streamable_http_path=parts.path or "/")
        listener = Listener(HostOriginGuard(app, LOCAL_NAMES), sock)
        await listener.start()
        try:
            waiting = [asyncio.create_task(event.wait()) for event in (asked, ended)]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await listener.stop()
    if asked.is_set():
        return 0
    _say(f"{command[0]}: the stdio server ended")
    return 1


@asynccontextmanager
async def _heard(transport: Any, ended: asyncio.Event) -> AsyncIterator[Any]:
    """Wrap the transport to notice its end, which the client reports only at the next request."""
    async with transport as (read, write), anyio.create_task_group() as group:
        send, receive = anyio.create_memory_object_stream[Any](0)

        async def pump() -> None:
            async with send:
                async for message in read:
                    await send.send(message)
            ended.set()

        group.start_soon(pump)
        yield receive, write
        group.cancel_scope.cancel()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
