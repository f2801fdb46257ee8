"""One client's requests to a fleet's ``/mcp``, in both protocol versions; every failure is a Fault."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from pallas import __version__
from pallas.bounds.fleet_answer import read_answer
from pallas.client.client_faults import lost, refusal
from pallas.client.fleet_address import FleetAddress
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

from .bridge_target import BridgeTarget, no_answer
from .jsonrpc_lines import CALL, INITIALIZE, error, failed, headers_of, modern, one_line_of

if TYPE_CHECKING:
    import httpx2

PATH: Final = "/mcp"
START_TIMEOUT: Final = 200.0
"""Seconds that a fleet of our own has to start before a call is given up."""
_ANSWER: Final = 3_600.0
"""Seconds without a byte; fleets send a heartbeat every few seconds during a run."""
_CONNECT: Final = 5.0
_EVENT: Final = 8 * 1024 * 1024
_SESSION: Final = "mcp-session-id"
_AGAIN: Final = 0.1
_MOVES: Final = 2
"""How often one message is sent to another fleet of the project, because the previous one had ended."""

Say = Callable[[bytes], Awaitable[None]]


class BridgeRequests:
    """Sends messages to the fleet and writes its responses. Belongs to one event loop.

    If the fleet no longer knows a session of the older protocol version, it is opened again with the client's
    first messages: fleets restart while clients stay.
    """

    def __init__(self, target: BridgeTarget, say: Say) -> None:
        self._target = target
        self._say = say
        self._http: httpx2.AsyncClient | None = None
        self._session = ""
        self._version = ""
        self._hello: dict[str, Any] | None = None
        self._lock = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections; open requests should be over by then."""
        if self._http is not None:
            await self._http.aclose()

    async def forget(self) -> None:
        """Tell the fleet that the session is over, if there is one; never raises."""
        import httpx2

        if self._session and self._http is not None and self._target.place is not None:
            try:
                url = self._target.place.origin + PATH
                await self._http.delete(url, headers=self._headers({}), timeout=0.3)
            except httpx2.HTTPError:
                pass

    async def request(self, document: dict[str, Any], line: bytes) -> None:
        """Send a request, and write its progress and its answer, or its failure."""
        try:
            place = await self._where(document.get("method") == CALL)
            await self._send(document, line, place)
        except Fault as fault:
            await self._say(failed(document, fault))

    async def notify(self, document: dict[str, Any], line: bytes) -> None:
        """Send a notification; it is lost if no fleet takes it."""
        try:
            place = await self._where(False)
            await self._send(document, line, place)
        except Fault:
            pass

    async def _where(self, works: bool) -> FleetAddress:
        """Return the fleet's address; a tool call waits until the agents have started."""
        event = self._target.started if works else self._target.listening
        try:
            async with asyncio.timeout(START_TIMEOUT):
                await event.wait()
        except TimeoutError:
            raise Fault(FaultType.TIMEOUT, f"the fleet did not start in {START_TIMEOUT:.0f} s") from None
        if self._target.fault is not None:
            raise self._target.fault
        assert self._target.place is not None
        return self._target.place

    async def _send(self, document: dict[str, Any], line: bytes, place: FleetAddress) -> None:
        import httpx2

        http = self._client(place)
        renewed, moves = False, _MOVES
        while True:
            session = self._session
            connected = False
            try:
                async with http.stream(
                    "POST", place.origin + PATH, content=line, headers=self._headers(document)
                ) as answer:
                    gone = answer.status_code == 404 and session and not modern(document)
                    if not (gone and not renewed and document.get("method") != INITIALIZE):
                        connected = True
                        await self._on_message(document, answer, place)
                        return
                renewed = True
                await self._renew(session, place)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as problem:
                if self._target.whose == "own" and not self._target.started.is_set():
                    await asyncio.sleep(_AGAIN)  # It has bound its port, and answers there in a moment.
                elif moves and self._target.lose(place):
                    moves -= 1
                    place = await self._where(document.get("method") == CALL)
                else:
                    raise no_answer(self._target, lost(problem, place.origin)) from problem
            except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.SSEError) as problem:
                fault = lost(problem, place.origin, connected=connected)
                raise Fault(fault.type, fault.message, data=fault.data) from problem

    async def _on_message(
        self, document: dict[str, Any], answer: "httpx2.Response", place: FleetAddress
    ) -> None:
        """Write the response to a message."""
        import httpx2

        asked = "id" in document and "method" in document
        if not asked:
            return
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.status_code == 200 and kind == "text/event-stream":
            async for event in httpx2.EventSource(answer, max_event_size=_EVENT):
                if not event.data:
                    continue
                found = _json(event.data)
                if ended := _ends(found, document):
                    self._note(document, found, answer)  # Before the client goes on with it.
                await self._say(one_line_of(event.data))
                if ended:
                    return
            raise Fault(FaultType.TRANSPORT, f"{place.origin} ended its answer before it was complete")
        if kind == "application/json":
            found = _json(await read_answer(answer))
            if answer.is_success and isinstance(found, dict) and ("result" in found or "error" in found):
                self._note(document, found, answer)
                await self._say(one_line_of(json.dumps(found, ensure_ascii=False)))
                return
            if isinstance(found, dict) and isinstance(found.get("error"), dict):
                await self._say(self._refused(document, found["error"], answer.status_code))
                return
        if answer.status_code == 404:
            text = f"there is no bridge at {place.origin}{PATH}: is it the registry's port of a fleet?"
            raise Fault(FaultType.PROTOCOL, text)
        if not answer.is_success:
            found_fault = await refusal(answer, place.origin)
            raise Fault(found_fault.type, found_fault.message, data=found_fault.data)
        raise Fault(FaultType.PROTOCOL, f"{place.origin} did not answer with MCP")

    def _refused(self, document: dict[str, Any], error_body: dict[str, Any], status: int) -> bytes:
        """Return the line for a protocol error; one that is a Fault of a fleet is reported as such."""
        given = error_body.get("data")
        data: dict[str, Any] = given if isinstance(given, dict) else {}
        message = str(error_body.get("message", ""))
        kind = data.get("type")
        if kind not in set(FaultType):
            return error(document.get("id"), error_body.get("code", -32603), message, given)
        known = {name: value for name, value in data.items() if name not in ("type", "retryable")}
        retryable = data.get("retryable")
        if retryable is None and status in (429, 503):
            retryable = True
        fault = Fault(FaultType(kind), message, retryable=retryable, data=known)
        if status == 401:
            unknown = "the token that was given (--token, PALLAS_TOKEN) is not one that this fleet knows"
            advice = unknown if self._target.token else "give one with PALLAS_TOKEN, or --token"
            fault = Fault(fault.type, f"{message}; {advice}", data=known)
        return failed(document, fault)

    def _note(self, document: dict[str, Any], found: dict[str, Any], answer: "httpx2.Response") -> None:
        """Remember the session that was opened."""
        if document.get("method") == INITIALIZE and isinstance(found.get("result"), dict):
            self._hello = document
            self._session = answer.headers.get(_SESSION, "")
            self._version = str(found["result"].get("protocolVersion", ""))

    async def _renew(self, session: str, place: FleetAddress) -> None:
        """Open the session again, once for all requests that found it gone."""
        async with self._lock:
            if self._session != session or self._hello is None:
                return
            http = self._client(place)
            self._session = self._version = ""
            answer = await http.post(place.origin + PATH, json=self._hello, headers=self._headers({}))
            found = _json(_first_event(answer)) if answer.is_success else None
            if not isinstance(found, dict) or not isinstance(found.get("result"), dict):
                self._session = session  # The next message tries again.
                raise Fault(FaultType.TRANSPORT, f"{place.origin} did not open the session again")
            self._note(self._hello, found, answer)
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await http.post(place.origin + PATH, json=ready, headers=self._headers({}))

    def _headers(self, document: dict[str, Any]) -> dict[str, str]:
        sent = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if new_headers := headers_of(document):
            sent |= new_headers
        elif document.get("method") != INITIALIZE:
            sent |= {_SESSION: self._session} if self._session else {}
            sent |= {"mcp-protocol-version": self._version} if self._version else {}
        if self._target.token:
            sent["authorization"] = f"Bearer {self._target.token}"
        return sent

    def _client(self, place: FleetAddress) -> "httpx2.AsyncClient":
        import httpx2

        if self._http is None:
            try:
                self._http = httpx2.AsyncClient(
                    headers={"user-agent": f"pallas/{__version__}", "accept-encoding": "identity"},
                    trust_env=not place.is_loopback,
                    verify=place.trust(),
                    follow_redirects=False,
                    timeout=httpx2.Timeout(_ANSWER, connect=_CONNECT),
                    limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
                )
            except (httpx2.InvalidURL, OSError) as problem:
                raise lost(problem, place.origin) from problem
        return self._http


def _json(text: bytes | str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _first_event(answer: "httpx2.Response") -> str:
    """Return the message of a response that came as a whole, plain or as a stream of one event."""
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        return answer.text
    lines = [line[5:].strip() for line in answer.text.splitlines() if line.startswith("data:")]
    return next((line for line in lines if line), "")


def _ends(found: Any, document: dict[str, Any]) -> bool:
    """Return whether this message is the answer, the last one of its request."""
    if not isinstance(found, dict) or "method" in found or found.get("id") != document.get("id"):
        return False
    return "result" in found or "error" in found


def shown(problem: BaseException) -> str:
    """Return an error for the log, without any content of a message."""
    return one_line(f"{type(problem).__name__}: {problem}", 200)
