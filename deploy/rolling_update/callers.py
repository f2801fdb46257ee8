"""Callers of both MCP protocol versions and of the REST API, through HAProxy alone.

Each sends a message, waits for its answer, and goes on in its conversation. After an error that
docs/deployment.md permits, it sends the message again, with the same idempotency key. Any other error is a
violation.
"""

import asyncio
import json
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final
from uuid import uuid4

import httpx2

from benchmarks.caller import HANDSHAKE, MODERN
from benchmarks.rest_stream import Stream

from .deployment import AGENT

ANSWER_SECONDS: Final = 60.0
"""Seconds within which an answer must come, for each time that a message is sent."""
TRIES: Final = 20
TURNS: Final = 6
"""Turns of a caller's own conversation before it begins another one."""
_INFO: Final = {"name": "rehearsal", "version": "1"}
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": _INFO,
}
_KEY: Final = "local.pallas/idempotency"


class SendAgain(Exception):
    """The message may be sent again after ``seconds``."""

    def __init__(self, kind: str, seconds: float = 0.0) -> None:
        super().__init__(kind)
        self.kind, self.seconds = kind, seconds


class Violation(Exception):
    """A caller got what it must not get."""


@dataclass(slots=True)
class Sent:
    """One message. Times are those of a monotonic clock; ``over`` is when its answer came."""

    token: str
    thread: str
    """The id or handle of its conversation, empty for a message without one."""
    at: float
    over: float = float("inf")


@dataclass(slots=True)
class Account:
    """What callers sent and saw. ``retried`` counts what was sent again, by surface and reason."""

    sent: list[Sent] = field(default_factory=list)
    retried: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


class Surface(ABC):
    """One way to send a message, on connections of its own."""

    name: str

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def new_thread(self) -> str:
        """The name of a new conversation."""
        return str(uuid4())

    @abstractmethod
    async def send(self, sent: Sent) -> str:
        """The answer. Raises SendAgain or Violation."""


class McpSurface(Surface):
    """An agent's MCP endpoint, in the version without sessions."""

    name = "MCP 2026-07-28"
    _path = f"/agents/{AGENT}/mcp"

    async def send(self, sent: Sent) -> str:
        meta: dict[str, Any] = {**self._meta(), **({_KEY: sent.token} if sent.thread else {})}
        arguments = {"message": sent.token, **({"conversation_id": sent.thread} if sent.thread else {})}
        params = {"name": "send_message", "arguments": arguments, "_meta": meta}
        headers = {"Mcp-Method": "tools/call", "Mcp-Name": "send_message", **await self._headers()}
        result = await self._request("tools/call", params, headers)
        text = str(result["content"][0]["text"])
        if result.get("isError"):
            raise _of_fault(json.loads(text), "an error")
        return str(result["structuredContent"]["text"]) if "structuredContent" in result else text

    def _meta(self) -> dict[str, Any]:
        return _META

    async def _headers(self) -> dict[str, str]:
        return {"MCP-Protocol-Version": MODERN}

    async def _request(self, method: str, params: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        answer = await self._post({"id": 1, "method": method, "params": params}, headers)
        for line in answer.text.splitlines():
            text = line.removeprefix("data:").strip()
            if text.startswith("{"):
                message = json.loads(text)
                if message.get("id") == 1 and "result" in message:
                    return dict(message["result"])
                if "error" in message:
                    raise Violation(f"{method} was answered with {text[:300]}")
        raise Violation(f"{method} had no answer: {answer.text[:300]!r}")

    async def _post(self, message: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
        accept = {"Accept": "application/json, text/event-stream"}
        async with _watched():
            answer = await self._http.post(
                self._path, json={"jsonrpc": "2.0", **message}, headers={**accept, **headers}
            )
        if answer.status_code not in (200, 202):
            raise _of_status(answer.status_code, answer.text, answer.headers)
        return answer


class HandshakeSurface(McpSurface):
    """The same with a handshake, in one session from the first message to the last."""

    name = f"MCP {HANDSHAKE}"

    def __init__(self, http: httpx2.AsyncClient) -> None:
        super().__init__(http)
        self._session = ""

    def _meta(self) -> dict[str, Any]:
        return {}

    async def _headers(self) -> dict[str, str]:
        if not self._session:
            params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": _INFO}
            message = {"id": 0, "method": "initialize", "params": params}
            self._session = (await self._post(message, {})).headers["mcp-session-id"]
            headers = {"MCP-Protocol-Version": HANDSHAKE, "Mcp-Session-Id": self._session}
            await self._post({"method": "notifications/initialized"}, headers)
        return {"MCP-Protocol-Version": HANDSHAKE, "Mcp-Session-Id": self._session}


class RestSurface(Surface):
    """The REST API with a stream. One that ended early is read on, or the message is sent again."""

    _prefix = "/api/v1"

    def __init__(self, http: httpx2.AsyncClient, token: str, *, reads_on: bool = True) -> None:
        super().__init__(http)
        self.name = "REST, reads on" if reads_on else "REST, sends again"
        self._reads_on = reads_on
        self._auth = {"Authorization": f"Bearer {token}"}
        self._stream = Stream()
        self._token = ""

    async def new_thread(self) -> str:
        while True:
            async with _watched():
                answer = await self._http.post(
                    f"{self._prefix}/agents/{AGENT}/threads", json={}, headers=self._auth
                )
            if answer.status_code == 201:
                return str(answer.json()["id"])
            again = _of_status(answer.status_code, answer.text, answer.headers)
            if isinstance(again, Violation):
                raise again
            await asyncio.sleep(again.seconds)

    async def send(self, sent: Sent) -> str:
        if sent.token != self._token or not self._reads_on:
            self._token, self._stream = sent.token, Stream()
        stream = self._stream
        body = {"message": sent.token, "threadId": sent.thread}
        request = stream.request(self._prefix, AGENT, body, self._auth, sent.token)
        async with _watched(), self._http.stream(**request) as answer:
            if answer.status_code != 200:
                raise _of_status(answer.status_code, (await answer.aread()).decode(), answer.headers)
            await stream.follow(answer)
        if stream.problems:
            raise Violation(f"run {stream.run}: {'; '.join(stream.problems)}")
        if stream.fault is not None:
            raise _of_fault(stream.fault, "an error in the stream")
        if not stream.is_whole:
            raise SendAgain("the stream ended before the answer")
        return stream.text

    async def messages(self, thread: str) -> list[dict[str, Any]]:
        """All rows of a conversation, oldest first."""
        rows: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            answer = await self._http.get(
                f"{self._prefix}/threads/{thread}/messages",
                params={"agent": AGENT, "order": "asc", "limit": "200", **cursor},
                headers=self._auth,
            )
            answer.raise_for_status()
            page = answer.json()
            rows += page["items"]
            if page["next"] is None:
                return rows
            cursor = {"cursor": page["next"]}


@asynccontextmanager
async def _watched() -> AsyncIterator[None]:
    """What a broken connection raises, as SendAgain if nothing was sent, else as Violation."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            yield
    except httpx2.ConnectError:
        raise SendAgain("connection refused", 0.5) from None
    except TimeoutError:
        raise Violation(f"nothing came within {ANSWER_SECONDS:g} s") from None
    except httpx2.HTTPError as error:
        raise Violation(f"the connection broke: {type(error).__name__}: {error}") from None


def _of_status(status: int, text: str, headers: httpx2.Headers) -> SendAgain | Violation:
    if status != 503:
        return Violation(f"HTTP {status}: {text[:300]}")
    try:
        seconds = float(headers.get("retry-after", "0.5"))
    except ValueError:
        return Violation(f"Retry-After: {headers['retry-after']!r}")
    return SendAgain("503", seconds)


def _of_fault(body: dict[str, Any], otherwise: str) -> SendAgain | Violation:
    data = body.get("data") or {}
    if data.get("reason") == "handed_over":
        return SendAgain("handed_over")
    if data.get("retryable"):
        return SendAgain(f"Fault {data.get('type')}, retryable", float(data.get("retry_after", 0.5)))
    return Violation(f"{otherwise}: {json.dumps(body)[:300]}")


class CallerTask:
    """One caller until ``over``. ``thread`` is a conversation that it shares, empty for those of its own."""

    def __init__(
        self, name: str, surface: Surface, account: Account, *, thread: str = "", is_alone: bool = False
    ) -> None:
        self._name, self._surface, self._account = name, surface, account
        self._shared, self._is_alone = thread, is_alone
        self._chance = random.Random(name)

    async def run(self, over: asyncio.Event, pause: float) -> None:
        """Send message after message, ``pause`` seconds after the answer on average."""
        thread, number = self._shared, 0
        while not over.is_set():
            if not self._shared and not self._is_alone and number % TURNS == 0:
                thread = await self._surface.new_thread()
            number += 1
            await self._deliver(Sent(f"{self._name}.{number}", thread, monotonic()))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._chance.uniform(0, 2 * pause)):
                    await over.wait()

    async def _deliver(self, sent: Sent) -> None:
        self._account.sent.append(sent)
        for _ in range(TRIES):
            try:
                answer = await self._surface.send(sent)
            except SendAgain as again:
                self._account.retried[f"{self._surface.name}: {again.kind}"] += 1
                await asyncio.sleep(again.seconds)
                continue
            except Violation as violation:
                self._violated(sent, str(violation))
                return
            sent.over = monotonic()
            if answer != f"done {sent.token}":
                self._violated(sent, f"the answer was {answer[:200]!r}")
            return
        self._violated(sent, f"was not answered after {TRIES} tries")

    def _violated(self, sent: Sent, what: str) -> None:
        self._account.violations.append(f"{self._surface.name}, {sent.token} in {sent.thread or '-'}: {what}")
