"""One request of a probe, and the first message of its response."""

import asyncio
import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import httpx2

from pallas.bounds.bodies import ACCEPTED, TooLarge, bound

_MAX_BODY: Final = 1 << 20
_MAX_REDIRECTS: Final = 3
_CLEAN_UP: Final = 0.5
_VERSION: Final = re.compile(r"\d{4}-\d\d-\d\d")


class NotMcp(Exception):
    """The response is not one of an MCP server. The text says why."""


@dataclass(slots=True)
class ProbeSession:
    """A session that a server opened for a probe. It must be ended in any case."""

    url: str
    id: str
    headers: Mapping[str, str]
    version: str = ""

    async def end(self, client: httpx2.AsyncClient) -> None:
        """Send the DELETE, within half a second. The response is ignored."""
        headers = httpx2.Headers(self.headers)
        headers["Mcp-Session-Id"] = self.id
        if _VERSION.fullmatch(self.version):
            headers["MCP-Protocol-Version"] = self.version
        with contextlib.suppress(httpx2.HTTPError, httpx2.InvalidURL, ValueError, OSError, TimeoutError):
            async with (
                asyncio.timeout(_CLEAN_UP),
                client.stream("DELETE", self.url, headers=headers, follow_redirects=False),
            ):
                pass


@dataclass(frozen=True, slots=True)
class ProbeResponse:
    """Status and first JSON-RPC message of a response, and the session if the server opened one."""

    status: int
    message: Mapping[str, Any]
    session: ProbeSession | None = None

    @property
    def accepted(self) -> bool:
        """Whether the status is a success."""
        return 200 <= self.status < 300

    @property
    def result(self) -> Mapping[str, Any]:
        """The result; empty unless the request succeeded and has one."""
        result = self.message.get("result")
        return result if self.accepted and isinstance(result, Mapping) else {}

    @property
    def error_code(self) -> int | None:
        """The JSON-RPC error code; None for an OAuth ``error``, which is a text."""
        error = self.message.get("error")
        code = error.get("code") if isinstance(error, Mapping) else None
        return code if isinstance(code, int) else None


async def ask(
    client: httpx2.AsyncClient,
    url: str,
    body: Mapping[str, Any],
    headers: Mapping[str, str],
    opened: list[ProbeSession],
) -> ProbeResponse:
    """POST ``body`` and read the first message of the response, at most 1 MiB.

    A session is added to ``opened`` as soon as its id is known, before the body is read. At most three
    redirects that keep the method are followed, within the origin, so that credentials go nowhere else.
    Raises NotMcp and httpx2's errors; the caller sets the deadline.
    """
    sent = httpx2.Headers(headers)
    sent.update(
        {
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": ACCEPTED,
            "Content-Type": "application/json",
        }
    )
    for _ in range(_MAX_REDIRECTS + 1):
        async with client.stream("POST", url, json=dict(body), headers=sent, follow_redirects=False) as got:
            if got.status_code in (307, 308) and "location" in got.headers:
                url = _within_origin(url, got.headers["location"])
                continue
            if 300 <= got.status_code < 400:
                raise NotMcp(f"HTTP {got.status_code}: it redirects")
            session = None
            if 200 <= got.status_code < 300 and (id_ := got.headers.get("mcp-session-id")):
                session = ProbeSession(url, id_, headers)
                opened.append(session)
            return ProbeResponse(got.status_code, await _first_message(got), session)
    raise NotMcp("its redirects form a circle")


def _within_origin(url: str, location: str) -> str:
    target = urljoin(url, location)
    if _origin(target) != _origin(url):
        raise NotMcp("it redirects to another origin, which is not followed")
    return target


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


async def _first_message(response: httpx2.Response) -> Mapping[str, Any]:
    """The response to our request, ``{}`` if it cannot be understood."""
    bound(response, body_limit=_MAX_BODY)
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind == "text/event-stream":
            async for event in httpx2.EventSource(response, max_event_size=_MAX_BODY):
                # An empty event primes the stream; a notification may come before the answer.
                message = json.loads(event.data) if event.data.strip() else None
                if isinstance(message, dict) and ("result" in message or "error" in message):
                    return message
            return {}
        message = json.loads(await response.aread())
    except (ValueError, RecursionError, httpx2.SSEError, TooLarge):
        return {}
    return message if isinstance(message, dict) else {}
