"""A client of the control API. Answers are bounded in size and time, and every failure is a Fault."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from pallas import __version__
from pallas.bounds.fleet_answer import read_answer
from pallas.model import Fault, FaultType, codec
from pallas.safe_text import one_line, sanitize, without_controls
from pallas.surfaces.control import BASE

from ..trust import trust_in
from .fleet_address import is_loopback_url

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT: Final = 5.0
SILENCE: Final = 30.0
"""Seconds of silence after which a stream is lost; the fleet sends a comment every 10 s."""
MAX_MESSAGE: Final = 16 * 1024 * 1024


class TokenRejected(Exception):
    """The fleet does not know this token (401)."""


class NoControlApi(Exception):
    """The server that answers has no control API; the message says what to do."""


class ResourceGone(Exception):
    """The resource was removed (410)."""


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """One message of the event stream."""

    kind: str
    id: str
    document: Any


class ControlClient:
    """A client of the control API at ``origin`` with one token, or none. Belongs to one event loop.

    Raises Fault TRANSPORT when nothing answers, TIMEOUT when it takes too long, and the Fault of the fleet
    for what that refuses.
    """

    def __init__(self, origin: str, token: str) -> None:
        import httpx2

        self._origin = origin
        # A proxy of the environment is not for fleets on this machine.
        self._http = httpx2.AsyncClient(
            base_url=origin + BASE,
            headers=({"authorization": f"Bearer {token}"} if token else {})
            | {
                "user-agent": f"pallas-workbench/{__version__}",
                # Prevents a small answer that unpacks to a large one.
                "accept-encoding": "identity",
            },
            timeout=httpx2.Timeout(SILENCE, connect=CONNECT_TIMEOUT),
            trust_env=not is_loopback_url(origin),
            verify=trust_in(origin),
            follow_redirects=False,
        )

    async def close(self) -> None:
        """End the connections."""
        await self._http.aclose()

    async def get(self, path: str, *, timeout: float = SILENCE) -> Any:
        """The JSON at ``path``, its texts sanitized."""
        body, _ = await self._send("GET", path, timeout=timeout)
        return _document(body)

    async def request(self, method: str, path: str, document: Any = None, *, timeout: float = SILENCE) -> Any:
        """Send a request; returns the JSON of the answer.

        Its texts are data, as a fleet of this process gives them, without what drives a terminal.
        """
        body, _ = await self._send(method, path, document, timeout=timeout)
        return _document(body, without_controls)

    async def read_bytes(self, path: str) -> tuple[bytes, Mapping[str, str]]:
        """The bytes at ``path`` as they are, and the headers."""
        return await self._send("GET", path, timeout=SILENCE)

    @asynccontextmanager
    async def stream(
        self, last_id: str, heard: Callable[[], None]
    ) -> AsyncIterator[AsyncIterator[StreamMessage]]:
        """The messages after ``last_id``; the iterator ends, or raises, with the connection.

        ``heard`` is called whenever something comes, also a comment.
        """
        import httpx2

        headers = {"accept": "text/event-stream"} | ({"last-event-id": last_id} if last_id else {})
        try:
            async with self._http.stream("GET", "/events", headers=headers) as answer:
                if answer.status_code != 200:
                    await self._refuse(answer)
                audible = cast("httpx2.Response", _AudibleResponse(answer, heard))
                yield _messages(httpx2.EventSource(audible, MAX_MESSAGE))
        except httpx2.HTTPError as error:
            raise self._lost(error) from error

    async def _send(
        self, method: str, path: str, document: Any = None, *, timeout: float
    ) -> tuple[bytes, Mapping[str, str]]:
        import httpx2

        content = codec.dumps(document) if document is not None else None
        headers = {"content-type": "application/json"} if content is not None else {}
        limits = httpx2.Timeout(timeout, connect=CONNECT_TIMEOUT)
        try:
            async with self._http.stream(
                method, path, content=content, headers=headers, timeout=limits
            ) as answer:
                if answer.status_code not in (200, 202):
                    await self._refuse(answer)
                return await read_answer(answer), answer.headers
        except httpx2.HTTPError as error:
            raise self._lost(error) from error

    async def _refuse(self, answer: "httpx2.Response") -> None:
        """Raise the error that the answer stands for."""
        status = answer.status_code
        body = await read_answer(answer)
        if status == 401:
            raise TokenRejected
        if status == 410:
            raise ResourceGone
        try:
            document = codec.loads(body)
        except codec.Undecodable:
            document = None
        ours = isinstance(document, dict) and isinstance(document.get("data"), dict)
        if status == 421:
            raise NoControlApi(
                f"the fleet at {self._origin} does not answer to that host name; use another name or address "
                "of it, or add the name to allowed_hosts: in its agents.yaml"
            )
        if not ours:
            raise NoControlApi(
                f"there is no control API at {self._origin} (HTTP {status}): check that it is the registry's "
                "port of a fleet; one that listens beyond loopback has a control API only when "
                "PALLAS_CONTROL_TOKEN is set where it is started"
            )
        raise codec.fault_of(document, f"the fleet at {self._origin} answered HTTP {status}")

    def _lost(self, error: Exception) -> Fault:
        import httpx2

        what = one_line(str(error), 120) or type(error).__name__
        if isinstance(error, httpx2.TimeoutException):
            return Fault(FaultType.TIMEOUT, f"{self._origin} did not answer in time")
        return Fault(FaultType.TRANSPORT, f"nothing answers at {self._origin} ({what})")


class _AudibleResponse:
    """A response that calls ``heard`` for each piece of its text."""

    def __init__(self, answer: "httpx2.Response", heard: Callable[[], None]) -> None:
        self._answer = answer
        self._heard = heard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._answer, name)

    async def aiter_text(self) -> AsyncIterator[str]:
        async for text in self._answer.aiter_text():
            self._heard()
            yield text


async def _messages(source: "httpx2.EventSource") -> AsyncIterator[StreamMessage]:
    async for message in source:
        yield StreamMessage(message.event, message.id, _document(message.data))


def _document(text: str | bytes, form: Callable[[str], str] = sanitize) -> Any:
    """JSON from another machine, with its texts in a form that is safe."""
    try:
        return codec.visible(codec.loads(text), form)
    except codec.Undecodable as error:
        raise Fault(
            FaultType.PROTOCOL, f"the fleet answered something that cannot be read: {error}"
        ) from error
