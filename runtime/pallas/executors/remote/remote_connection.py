"""One connection to the other side, in a task of its own. One run at a time uses it."""

import asyncio
import ssl
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from pallas.access.bearer_lease import LeaseSlot, connecting
from pallas.downstreams.client_task import ClientTask, plain_opener
from pallas.mcp_client.server_questions import NO_RUN, ServerQuestions, declined
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

from .remote_credentials import RemoteAuth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from httpx2 import Request, Response
    from mcp.shared.dispatcher import ProgressFnT

    from pallas.downstreams.opening import Opener
    from pallas.downstreams.transports import Http
    from pallas.executors.faults.fault_injection import FaultInjection, Send

WRITE_TIMEOUT: Final = 30.0

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


class RemoteConnection(ClientTask):
    """A connection to ``url``.

    ``era`` is ``auto``, ``legacy`` or a version of the newer protocol. ``sent_messages`` is how many messages
    of its conversation the session behind it knows; 0 if it knows none.
    """

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
        super().__init__(f"remote {url}", self._make_opener)

    @property
    def version(self) -> str:
        """The negotiated version of the protocol."""
        return str(self.client.protocol_version or "")

    async def open(self, seconds: float) -> None:
        """Connect, once, within ``seconds``. Raises the SDK's errors, httpx2's, and TimeoutError."""
        with connecting(self.slot):
            await super().open(seconds)

    async def tools(self, timeout_s: float) -> list[Any]:
        """Return all tools, page by page. Raises as ``open`` does."""
        from pallas.downstreams.offer import all_pages

        async with asyncio.timeout(timeout_s):
            return await all_pages(self.client.list_tools, "tools", [])

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

    async def _make_opener(self) -> "Opener":
        from pallas.downstreams.opening import Callbacks, Settings
        from pallas.mcp_client import mcp_seam

        mcp_seam.install()
        # Each connection after the first one has the version that was found then.
        settings = Settings(mode=self._era, discovers=False)
        return plain_opener(self.auth.name, self._transport(), settings, Callbacks(self._elicited))

    def _transport(self) -> "Http":
        import httpx2

        from pallas.downstreams.transports import Http
        from pallas.executors.faults.faulty_transport import make_faulty

        return Http(
            self._url,
            self._headers,
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
