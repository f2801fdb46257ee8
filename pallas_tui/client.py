"""One conversation with one agent over MCP, held as any other client would hold it."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from ipaddress import ip_address
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from pallas import __version__
from pallas.model import Fault, FaultType, Image
from pallas.text import one_line, sanitize

from .mcp_faults import explain, fault_from, is_closed, is_session_gone

if TYPE_CHECKING:
    from mcp import Client

Era = Literal["auto", "legacy"]
"""How the protocol is negotiated: the newest first, or the handshake of before 2026."""
OnProgress = Callable[[str], None]

CONNECT_TIMEOUT: Final = 10.0
READ_TIMEOUT: Final = 30 * 60.0
CLOSE_TIMEOUT: Final = 2.0
ANSWER_LIMIT: Final = 1_000_000
"""Characters of an answer that are kept."""
REQUEST_LIMIT: Final = 4 * 1024 * 1024
"""Bytes of one request that an agent's server takes (it answers a bare 413 beyond)."""

# An answer with pictures or a long text in one server-sent event: the default of 1 MiB is too small.
_MAX_SSE_EVENT: Final = 16 * 1024 * 1024
_ENVELOPE: Final = 8 * 1024
# An owner whose connection broke ends right after the call that it fails.
_CAUSE_TIMEOUT: Final = 0.3
_META: Final = "local.pallas/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back. ``fault`` is set when the agent answered with an error; ``text`` is then empty.

    All text is sanitised. ``seconds`` is wall time as the caller felt it. ``steps`` and ``tools`` are
    None where the agent does not tell; ``stop_reason`` is empty then.
    """

    text: str
    seconds: float
    fault: Fault | None = None
    steps: int | None = None
    tools: int | None = None
    stop_reason: str = ""


class AgentClient:
    """Talks to the agent at ``url`` within the conversation ``conversation``.

    The connection is opened by the first ``send``, in a task of its own, and opened again when it was
    lost. ``era`` chooses the protocol. Nothing of MCP is imported before the first ``send``.
    """

    def __init__(
        self,
        url: str,
        conversation: str,
        *,
        era: Era = "auto",
        connect_timeout: float = CONNECT_TIMEOUT,
        read_timeout: float = READ_TIMEOUT,
    ) -> None:
        self.url = url
        self.conversation = conversation
        self.era: Era = era
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._connection: _Connection | None = None
        self._opening = asyncio.Lock()

    async def send(
        self, text: str, images: Sequence[Image] = (), on_progress: OnProgress | None = None
    ) -> Reply:
        """Ask the agent and wait for its answer; cancelling the caller cancels the run on the server.

        ``on_progress`` gets each progress message, sanitised, on this loop. Raises Fault when the agent
        could not be asked: TRANSPORT, TIMEOUT, PROTOCOL, CONFIG for a message that is too big.
        """
        arguments: dict[str, Any] = {
            "message": text,
            "conversation_id": self.conversation,
            "stream_text": True,
        }
        if images:
            arguments["images"] = [{"data": image.data, "mime_type": image.mime_type} for image in images]
        _check_size(text, images)
        started = perf_counter()
        result = await self._call(arguments, on_progress)
        return _reply(result, perf_counter() - started)

    async def close(self) -> None:
        """End the connection; safe to call twice, done within 2 s."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _call(self, arguments: dict[str, Any], on_progress: OnProgress | None) -> Any:
        # The numbers say nothing that the messages do not: nobody parses them.
        async def hear(progress: float, total: float | None, message: str | None) -> None:
            if on_progress is not None and message:
                on_progress(sanitize(message, ANSWER_LIMIT))

        for attempt in (1, 2):
            connection = await self._open()
            try:
                return await connection.client.call_tool(
                    "send_message",
                    arguments,
                    read_timeout_seconds=self._read_timeout,
                    progress_callback=hear,
                )
            except Exception as error:  # whatever the transport raises becomes one Fault
                # The agent was restarted: it refused the call before doing anything, so asking again
                # in a new session is safe.
                if attempt == 1 and is_session_gone(error):
                    await self.close()
                    continue
                cause = await connection.cause_of(error)
                if connection.lost:
                    await self.close()
                raise explain(cause, self.url, self._read_timeout) from error
        raise AssertionError("two attempts, each of which returns or raises")

    async def _open(self) -> "_Connection":
        async with self._opening:
            if self._connection is not None and self._connection.lost:
                await self.close()
            if self._connection is None:
                connection = _Connection(self.url, self.era, self._read_timeout)
                try:
                    await connection.open(self._connect_timeout)
                except Exception as error:
                    raise explain(error, self.url, self._connect_timeout) from error
                self._connection = connection
            return self._connection


class _Connection:
    """An open MCP client and the task that owns it."""

    client: "Client"

    def __init__(self, url: str, era: Era, read_timeout: float) -> None:
        self._url, self._era, self._read_timeout = url, era, read_timeout
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def lost(self) -> bool:
        """Whether the owner has ended, by itself or because it was told to."""
        return self._task is None or self._task.done()

    async def open(self, timeout: float) -> None:
        # Importing the client takes the better part of a second: never on the loop that draws.
        await asyncio.to_thread(_import_client)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._own(ready), name=f"mcp {self._url}")
        try:
            await asyncio.wait({self._task, ready}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                return
            if self._task.done():
                self._task.result()
            raise TimeoutError
        except BaseException:
            await self._end()
            raise
        finally:
            ready.cancel()

    async def close(self) -> None:
        self._stop.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=CLOSE_TIMEOUT)
        await self._end()

    async def cause_of(self, error: Exception) -> BaseException:
        """Why the owner ended, if that is what made the call fail."""
        if self._task is None or not is_closed(error):
            return error
        await asyncio.wait({self._task}, timeout=_CAUSE_TIMEOUT)
        if not self._task.done() or self._task.cancelled():
            return error
        return self._task.exception() or error

    async def _own(self, ready: asyncio.Future[None]) -> None:
        import httpx2
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client
        from mcp_types import Implementation

        timeout = httpx2.Timeout(30.0, read=self._read_timeout + 60.0)
        # A proxy of the environment is not meant for the agents of this machine.
        async with (
            httpx2.AsyncClient(timeout=timeout, trust_env=not _is_loopback(self._url)) as http,
            Client(
                streamable_http_client(self._url, http_client=http, max_sse_event_size=_MAX_SSE_EVENT),
                mode=self._era,
                client_info=Implementation(name="pallas-workbench", version=__version__),
            ) as client,
        ):
            self.client = client
            if not ready.done():
                ready.set_result(None)
            await self._stop.wait()

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(Exception, asyncio.CancelledError):
                await asyncio.wait({self._task}, timeout=CLOSE_TIMEOUT)
            if self._task.done() and not self._task.cancelled():
                self._task.exception()  # looked at: nothing to report at exit


def _reply(result: Any, seconds: float) -> Reply:
    texts = [str(block.text) for block in result.content if getattr(block, "type", "") == "text"]
    text = sanitize("\n\n".join(texts), ANSWER_LIMIT)
    if result.is_error:
        return Reply(text="", seconds=seconds, fault=fault_from("\n".join(texts)))
    if not texts and result.structured_content is not None:
        text = sanitize(json.dumps(result.structured_content, indent=2, ensure_ascii=False), ANSWER_LIMIT)
    meta: dict[str, Any] = dict(result.meta or {})
    steps, tools = meta.get(f"{_META}steps"), meta.get(f"{_META}tools")
    return Reply(
        text=text,
        seconds=seconds,
        steps=steps if isinstance(steps, int) else None,
        tools=tools if isinstance(tools, int) else None,
        stop_reason=one_line(str(meta.get(f"{_META}stopReason", "")), 60),
    )


def _check_size(text: str, images: Sequence[Image]) -> None:
    size = len(json.dumps(text)) + sum(len(image.data) + 80 for image in images) + _ENVELOPE
    if size > REQUEST_LIMIT:
        raise Fault(
            FaultType.CONFIG,
            f"The message has {size / 1024 / 1024:.1f} MiB with its images; an agent takes "
            f"{REQUEST_LIMIT // 1024 // 1024} MiB. Send fewer or smaller ones.",
        )


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _import_client() -> None:
    import_module("mcp.client.streamable_http")
