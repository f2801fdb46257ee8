"""Connections that each stay with one worker process, which tells its pid over the control API."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

import httpx2

from pallas.surfaces.control.token_file import find_tokens

from .live import ERAS
from .raw_client import INITIALIZE, handshake_headers, meta


class Pinned:
    """One kept-alive connection to the one port of a fleet, and so one of its worker processes.

    ``session`` is sent in calls of the handshake era; ``open_session`` gets one.
    """

    def __init__(self, port: int, token: str = "", bearer: str = "") -> None:
        limits = httpx2.Limits(max_connections=1, keepalive_expiry=600)
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        self.http = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=60, trust_env=False, headers=headers
        )
        self._token = token
        self.session = ""
        self.pid = 0

    async def __aenter__(self) -> Self:
        await self.http.__aenter__()
        if self._token:
            headers = {"Authorization": f"Bearer {self._token}"}
            answer = await self.http.get("/api/v1/fleet/snapshot", headers=headers)
            self.pid = answer.raise_for_status().json()["owner"]["pid"]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def post(
        self, agent: str, body: dict[str, Any], headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        """One MCP request to that agent."""
        return await self.http.post(
            f"/agents/{agent}/mcp", json=body, headers={**handshake_headers(self.session), **(headers or {})}
        )

    async def open_session(self, agent: str) -> str:
        """Open a session of the handshake era on this connection; returns its id."""
        self.session = ""
        answer = await self.post(agent, INITIALIZE)
        self.session = answer.raise_for_status().headers["mcp-session-id"]
        await self.post(agent, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self.session

    async def ask(
        self, agent: str, era: str, message: str, *, headers: dict[str, str] | None = None, **arguments: str
    ) -> httpx2.Response:
        """``send_message`` in that era, in this connection's session in the handshake era."""
        params: dict[str, Any] = {"name": "send_message", "arguments": {"message": message, **arguments}}
        headers = dict(headers or {})
        if era == ERAS[0]:
            headers |= {"mcp-protocol-version": era, "mcp-method": "tools/call", "mcp-name": "send_message"}
            params["_meta"] = meta(era)
        elif not self.session:
            await self.open_session(agent)
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return await self.http.post(
            f"/agents/{agent}/mcp",
            json=body,
            headers={**handshake_headers(self.session if era != ERAS[0] else ""), **headers},
        )

    async def say(
        self, agent: str, era: str, message: str, *, headers: dict[str, str] | None = None, **arguments: str
    ) -> str:
        """The text of the answer to ``ask``."""
        answer = await self.ask(agent, era, message, headers=headers, **arguments)
        assert answer.status_code == 200, (answer.status_code, answer.text)
        return "".join(block["text"] for block in result_in(answer)["content"])


def result_in(answer: httpx2.Response) -> dict[str, Any]:
    """The result in a JSON answer or in the last event of a stream."""
    texts = [
        line.removeprefix("data:") for line in answer.text.splitlines() if line.startswith(("data:", "{"))
    ]
    result: dict[str, Any] = json.loads(texts[-1])["result"]
    return result


@asynccontextmanager
async def one_to_each(port: int, pids: Iterable[int] = (), bearer: str = "") -> AsyncIterator[list[Pinned]]:
    """A connection to each of two workers; with ``pids`` to these. New ones are opened until that is so."""
    token = find_tokens(port)[0].token
    wanted = set(pids)
    async with AsyncExitStack() as stack:
        found: dict[int, Pinned] = {}
        for _ in range(100):
            each = await stack.enter_async_context(Pinned(port, token, bearer))
            if not wanted or each.pid in wanted:
                found.setdefault(each.pid, each)
            if len(found) == (len(wanted) or 2):
                break
        assert len(found) == (len(wanted) or 2), found
        yield list(found.values())
