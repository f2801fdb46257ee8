"""Runs of other worker processes: a request about one is passed on to the process that has it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import httpx2
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from pallas.surfaces.connection_shares import ConnectionShares

PASSED_ON: Final = "pallas-passed-on"
"""A header of a request that came from another process: it is not passed on again."""
_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 10.0
"""Seconds in which another process begins to answer, or it is taken for one that does not have the run."""
_NOT_PASSED: Final = frozenset(
    {"connection", "content-length", "keep-alive", "te", "transfer-encoding", "upgrade"}
)


async def answer_elsewhere(request: Request, shares: ConnectionShares) -> Response | None:
    """Return the answer of the process that has the run; None if no other process has it.

    The caller is known here; the other process authenticates it again.
    """
    url = request.url
    headers = [(name, value) for name, value in request.headers.items() if name not in _NOT_PASSED]
    headers.append((PASSED_ON, "1"))
    for port in shares.other_ports().values():
        place = str(url.replace(hostname="127.0.0.1", port=port))
        client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=_CONNECT_S), trust_env=False, verify=False
        )
        try:
            with suppress(httpx2.HTTPError, TimeoutError):
                async with asyncio.timeout(_ANSWER_S):
                    answer = await client.send(
                        client.build_request(request.method, place, headers=headers), stream=True
                    )
                if answer.status_code != 404:
                    kept = {name: value for name, value in answer.headers.items() if name not in _NOT_PASSED}
                    return StreamingResponse(_body(client, answer), answer.status_code, kept)
                await answer.aclose()
        except asyncio.CancelledError:
            await client.aclose()
            raise
        await client.aclose()
    return None


async def _body(client: httpx2.AsyncClient, answer: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the bytes as they come; the end of the reader ends the request to the other process."""
    try:
        async for piece in answer.aiter_raw():
            yield piece
    finally:
        await answer.aclose()
        await client.aclose()
