"""One connection to the other side, in a task of its own. One run at a time uses it."""

import asyncio
import ssl
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from pallas.access.bearer_lease import LeaseSlot, connecting
from pallas.mcp_client.server_questions import NO_RUN, ServerQuestions, declined
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

from .remote_credentials import RemoteAuth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from httpx2 import Request, Response
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT

    from pallas.downstreams.transports import Http
    from pallas.executors.faults.fault_injection import FaultInjection, Send

CLOSE_TIMEOUT: Final = 2.0
WRITE_TIMEOUT: Final = 30.0

# The owner task of a broken connection ends right after the failed call.
_CAUSE_TIMEOUT: Final = 0.5
_MAX_PAGES: Final = 20
_MAX_ROUNDS: Final = 100
_AGAIN_S: Final = 0.25


class ConnectionKey(NamedTuple):
    """The owner of a connection.

    This is the caller's credential if it is forwarded, and the conversation if the connection itself holds
    one. ``once``: the connection is not reused.
    """

    credential: str = ""
    lease: str = ""
    once: bool = False


class RemoteConnection:
    """An MCP client of ``url`` and the task that owns it.

    ``era`` is ``auto``, ``legacy`` or a version of the newer protocol. ``sent_messages`` is how many messages
    of its conversation the session behind it knows; 0 if it knows none.
    """

    client: "Client"

    def __init__(
        self,
        url: str,
        key: ConnectionKey,
        *,
        era: str,
        auth: RemoteAuth,
        headers: "Mapping[str, str]",
        verify: ssl.SSLContext | bool,
        read_timeout: float,
    ) -> None:
        self.key = key
        self.slot = LeaseSlot()
        self.sent_messages = 0
        self.auth = auth
        self._url, self._era, self._headers = url, era, headers
        self._verify, self._read_timeout = verify, read_timeout
        self._questions: ServerQuestions | None = None  # of the run that calls
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def lost(self) -> bool:
        """Whether it was open and is no longer."""
        return self._task is not None and self._task.done()

    @property
    def used(self) -> bool:
        """Whether it was opened before now."""
        return self._task is not None

    @property
    def version(self) -> str:
        """The negotiated version of the protocol."""
        return str(self.client.protocol_version or "")

    async def open(self, timeout_s: float) -> None:
        """Connect, once, in ``timeout_s`` seconds. Raises the SDK's errors, and TimeoutError."""
        if self._task is not None:
            return
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with connecting(self.slot):
            self._task = asyncio.create_task(self._own(ready), name=f"remote {self._url}")
        try:
            await asyncio.wait({self._task, ready}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
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

    async def tools(self, timeout_s: float) -> list[Any]:
        """Return all tools, page by page. Raises as ``open`` does."""
        found: list[Any] = []
        cursor = None
        async with asyncio.timeout(timeout_s):
            for _ in range(_MAX_PAGES):
                page = await self.client.list_tools(cursor=cursor)
                found += page.tools
                cursor = page.next_cursor
                if not cursor:
                    break
        return found

    async def call(
        self, tool: str, arguments: dict[str, Any], meta: dict[str, Any], hear: "ProgressFnT"
    ) -> Any:
        """Return the result of a tool; cancelling this cancels the call there.

        What the other side asks meanwhile, the person behind the run answers. Raises Fault (UPSTREAM) if it
        asks without end, or for something else.
        """
        from mcp_types import CallToolRequest, CallToolRequestParams, InputRequiredResult

        questions = self._questions = ServerQuestions(self.auth.name)
        given: Any = meta
        params = CallToolRequestParams(name=tool, arguments=arguments, _meta=given)
        try:
            for _ in range(_MAX_ROUNDS):
                # Not the client's own `call_tool`: that lists the tools again, to check the result.
                result: Any = await self.client.session.send_request(
                    CallToolRequest(params=params), _result_type(), progress_callback=hear
                )
                if not isinstance(result, InputRequiredResult):
                    return result
                answers = await _answers(questions, self.auth.name, result.input_requests or {})
                answered = {"input_responses": answers, "request_state": result.request_state}
                params = params.model_copy(update=answered)
        finally:
            questions.end()
            self._questions = None
        text = f"{self.auth.name}: it asks repeatedly ({_MAX_ROUNDS} times) before it answers"
        raise Fault(FaultType.UPSTREAM, text)

    async def cause_of(self, error: Exception) -> BaseException:
        """Return why the owner ended, if that made a call fail."""
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        if self._task is None or not isinstance(error, MCPError) or error.code != CONNECTION_CLOSED:
            return error
        await asyncio.wait({self._task}, timeout=_CAUSE_TIMEOUT)
        if not self._task.done() or self._task.cancelled():
            return error
        return self._task.exception() or error

    async def close(self) -> None:
        """Close it, its session too; within 4 s."""
        self._stop.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=CLOSE_TIMEOUT)
        await self._end()

    async def _own(self, ready: asyncio.Future[None]) -> None:
        from pallas.downstreams.opening import Callbacks, Heard, Opener, Settings
        from pallas.downstreams.transports import Link
        from pallas.downstreams.usable_results import usable_result
        from pallas.mcp_client import mcp_seam

        mcp_seam.install()

        async def nothing(message: Any) -> None: ...

        opener = Opener(
            self.auth.name,
            self._transport(),
            # Each connection after the first one has the version that was found then.
            Settings(mode=self._era, discovers=False),
            Callbacks(elicitation=self._elicited),
            Heard(usable_result, nothing, lambda client: None),
            Link(one_line(self.auth.name, 80)),
            {},
        )
        async with opener.entered() as client:
            self.client = client
            if not ready.done():
                ready.set_result(None)
            await self._stop.wait()

    def _transport(self) -> "Http":
        import httpx2

        from pallas.downstreams.transports import Http
        from pallas.executors.faults.faulty_transport import make_faulty

        return Http(
            self._url,
            {**self._headers, "Accept-Encoding": "identity"},
            self.auth,
            httpx2.Timeout(WRITE_TIMEOUT, read=self._read_timeout),
            lambda client: make_faulty(client, self._inject),
            self._verify,
            # A proxy of the environment is not meant for local addresses.
            trust_env=not is_loopback(self._url),
        )

    async def _elicited(self, context: Any, params: Any) -> Any:
        """Answer a question that comes as a request, in the versions with a handshake."""
        if self._questions is None:
            return declined(self.auth.name, self.auth.name, NO_RUN)
        return await self._questions.answer(self.auth.name, params)

    async def _inject(
        self, injection: "FaultInjection", tool: str, request: "Request", send: "Send"
    ) -> "Response":
        return await injection.send_to_agent(self.auth.name, request, send)

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(Exception, asyncio.CancelledError):
                await asyncio.wait({self._task}, timeout=CLOSE_TIMEOUT)
            if self._task.done() and not self._task.cancelled():
                self._task.exception()  # the exception is retrieved: asyncio reports nothing at exit


async def _answers(questions: ServerQuestions, server: str, asked: "Mapping[str, Any]") -> "dict[str, Any]":
    """Return the answers to what a result asks for, by its keys. Raises Fault for anything but a form."""
    from mcp_types import ElicitRequest

    for each in asked.values():
        if not isinstance(each, ElicitRequest):
            text = f"{server}: it asks for {one_line(each.method, 60)}, which is not passed on"
            raise Fault(FaultType.UPSTREAM, text)
    if not asked:  # it has no question, and wants to be called again
        await asyncio.sleep(_AGAIN_S)
    given = await asyncio.gather(*(questions.answer(server, each.params) for each in asked.values()))
    return dict(zip(asked, given, strict=True))


@cache
def _result_type() -> Any:
    from mcp_types import CallToolResult, InputRequiredResult
    from pydantic import TypeAdapter

    return TypeAdapter(CallToolResult | InputRequiredResult)


def is_loopback(url: str) -> bool:
    """Return whether a URL is on this machine."""
    from ipaddress import ip_address

    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
