"""Ways to send a message: both versions of MCP, the REST API, and the bridge with and without sessions."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import httpx2

from ..caller import HANDSHAKE, MODERN, Caller
from ..rest_stream import Stream
from .project import AGENT

KINDS: Final = ("mcp", "handshake", "rest", "bridge", "mcp", "handshake", "rest", "session")
CALL_SECONDS: Final = 90.0
"""Seconds after which a caller gives a call up, and after which it stops looking at the thread."""
UNKNOWN_SECONDS: Final = 8.0
"""Seconds after which a caller believes that a run which no replica knows was not taken."""
_PAUSE: Final = 0.3
_SESSION_TRIES: Final = 30
_NO_SESSION: Final = "Session not found"


class FailedCall(Exception):
    """A call came back without an answer; ``kind`` says how, for the account, ``data`` is that of a Fault."""

    def __init__(self, kind: str, text: str = "", data: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text, self.data = kind, text, data or {}


@dataclass(frozen=True, slots=True)
class Addresses:
    """The two frontends."""

    requests: str
    connections: str


class Surface(ABC):
    """One way to send a message, on connections of its own.

    ``told`` gets what failed on the way to an answer.
    """

    told: Callable[[FailedCall], None] = print

    @abstractmethod
    async def send(self, text: str, thread: str) -> str:
        """The answer. Raises FailedCall."""

    @abstractmethod
    async def close(self) -> None:
        """End the connection."""


class McpSurface(Surface):
    """An agent's MCP endpoint, in either version."""

    def __init__(self, address: str, era: str) -> None:
        self._address, self._era = f"{address}/agents/{AGENT}/mcp", era
        self._caller: Caller | None = None
        self.sessions_lost = 0

    async def send(self, text: str, thread: str) -> str:
        for _ in range(_SESSION_TRIES):
            try:
                async with _as_failed():
                    caller = await self._connected()
                    result = await caller.result("send_message", {"message": text, "conversation_id": thread})
            except FailedCall as failed:
                await self.close()
                if self._era == HANDSHAKE and failed.kind == "HTTP 404":
                    self.sessions_lost += 1
                    continue
                raise
            return _answer_in(result)
        raise FailedCall("no session could be used")

    async def close(self) -> None:
        caller, self._caller = self._caller, None
        if caller is not None:
            with suppress(Exception):
                await caller.__aexit__()

    async def _connected(self) -> Caller:
        if self._caller is None:
            caller = Caller(self._address, self._era)
            await caller.__aenter__()
            self._caller = caller
            await caller.open_session()
        return self._caller


class BridgeSurface(Surface):
    """The bridge, with a delegation into the thread."""

    def __init__(self, address: str) -> None:
        self._address = f"{address}/mcp"
        self._caller: Caller | None = None

    async def send(self, text: str, thread: str) -> str:
        asked = {"prompt": text, "agentId": AGENT, "metadata": {"threadId": thread}}
        return _answer_in(await self._ask("tasks_delegate", asked))

    async def _ask(self, tool: str, asked: dict[str, Any]) -> dict[str, Any]:
        try:
            async with _as_failed():
                if self._caller is None:
                    caller = Caller(self._address, MODERN)
                    await caller.__aenter__()
                    self._caller = caller
                return await self._caller.result(tool, asked)
        except FailedCall:
            await self.close()
            raise

    async def close(self) -> None:
        caller, self._caller = self._caller, None
        if caller is not None:
            with suppress(Exception):
                await caller.__aexit__()


class SessionSurface(BridgeSurface):
    """The bridge, with a session for each thread, which is prompted at any replica until a prompt fails.

    ``lost`` are sessions that were opened, and that a replica did not know.
    """

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._session = self._thread = ""
        self.prompts = 0
        self.lost: list[str] = []

    async def send(self, text: str, thread: str) -> str:
        if thread != self._thread or not self._session:
            await self._open(thread)
        # The prompt before may still be under way in the replica that goes on with it.
        asked = {"sessionId": self._session, "prompt": text, "queue": True}
        self.prompts += 1
        result = await self._ask("sessions_prompt", asked)
        try:
            return _answer_in(result)
        except FailedCall as failed:
            if failed.text.startswith(_NO_SESSION):
                self.lost.append(self._session)
            if not failed.data.get("sessionValid", True):
                self._session = ""
            raise

    async def _open(self, thread: str) -> None:
        if self._session:
            await self._ask("sessions_close", {"sessionId": self._session})
            self._session = ""
        asked = {"agentId": AGENT, "metadata": {"threadId": thread}}
        body = _body_of(await self._ask("sessions_create", asked))
        self._session, self._thread = str(body["sessionId"]), thread


class RestSurface(Surface):
    """The REST API, with a stream that is read on at any replica. Half of the messages have a key."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self.streams: list[Stream] = []

    async def send(self, text: str, thread: str) -> str:
        stream, until = Stream(), monotonic() + CALL_SECONDS
        self.streams.append(stream)
        key = text if len(self.streams) % 2 else ""
        while True:
            began = monotonic()
            try:
                return await self._read(stream, {"message": text, "threadId": thread}, key)
            except FailedCall as failed:
                is_unknown = failed.kind == "HTTP 404" and began > until - CALL_SECONDS + UNKNOWN_SECONDS
                if not stream.run or stream.has_failed or is_unknown or began > until:
                    raise
                self.told(failed)
            await asyncio.sleep(_PAUSE)

    async def _read(self, stream: Stream, body: dict[str, Any], key: str) -> str:
        async with _as_failed(), self._http.stream(**stream.request("", AGENT, body, {}, key)) as answer:
            if answer.status_code != 200:
                raise FailedCall(f"HTTP {answer.status_code}", (await answer.aread()).decode())
            await stream.follow(answer)
        if stream.fault is not None:
            raise _fault(stream.fault, "error")
        if not stream.is_whole:
            raise FailedCall("the stream ended without its last chunk")
        return stream.text

    async def close(self) -> None:
        """Nothing: all callers share the client."""


@asynccontextmanager
async def _as_failed() -> AsyncIterator[None]:
    """Everything that a broken connection raises, as FailedCall."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            yield
    except TimeoutError:
        raise FailedCall(f"nothing came within {CALL_SECONDS:g} s") from None
    except RuntimeError as error:
        text = str(error)
        kind = text.partition(":")[0] if text.startswith("HTTP ") else "a JSON-RPC error"
        raise FailedCall(kind, text) from None
    except json.JSONDecodeError as error:
        raise FailedCall("no JSON", str(error)) from None
    except (OSError, EOFError, httpx2.HTTPError) as error:
        raise FailedCall("the connection broke", f"{type(error).__name__}: {error}") from None


def _answer_in(result: dict[str, Any]) -> str:
    body = _body_of(result)
    return str(body.get("text", result["content"][0]["text"]))


def _body_of(result: dict[str, Any]) -> dict[str, Any]:
    """The JSON object of a result, empty if it is none. Raises FailedCall for an error."""
    text = str(result["content"][0]["text"])
    try:
        body = json.loads(text)
    except json.JSONDecodeError:
        body = {}
    if result.get("isError"):
        raise _fault(body, "error without a body") if body else FailedCall("error without a body", text)
    return body if isinstance(body, dict) else {}


def _fault(body: dict[str, Any], otherwise: str) -> FailedCall:
    data = body.get("data") or {}
    kind = f"{data.get('type', otherwise)} {data.get('reason', '')}".strip()
    return FailedCall(kind, str(body.get("error", body)), data)


def surface_of(kind: str, addresses: Addresses, http: httpx2.AsyncClient) -> Surface:
    """A new surface of that kind, one of ``KINDS``."""
    match kind:
        case "mcp":
            return McpSurface(addresses.requests, MODERN)
        case "handshake":
            return McpSurface(addresses.connections, HANDSHAKE)
        case "rest":
            return RestSurface(http)
        case "session":
            return SessionSurface(addresses.requests)
        case _:
            return BridgeSurface(addresses.requests)
