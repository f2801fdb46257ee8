"""Requests to one fleet, bounded in size and time; every failure is a Fault."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pallas import __version__
from pallas.bounds.fleet_answer import MAX_ANSWER, read_answer
from pallas.config import Project
from pallas.model import Fault, FaultType, codec
from pallas.safe_text import without_controls

from .chat_stream import NO_HEADERS, ChatStream
from .client_faults import BASE, lost, refusal
from .fleet_address import FleetAddress, place_of

if TYPE_CHECKING:
    import httpx2

CONTROL_VARIABLE: Final = "PALLAS_CONTROL_TOKEN"

CONNECT_TIMEOUT: Final = 5.0
ANSWER_TIMEOUT: Final = 60.0
"""Seconds without a byte after which a request or a stream is given up; streams have heartbeats."""
RUN_TIMEOUT: Final = 3600.0
"""Seconds for an answer that comes whole."""
_MAX_PAGES: Final = 1_000
_CONTROL: Final = "/fleet"


class TokenCandidates:
    """The token in use, and the ones to try when it is refused.

    A token that a person gave is the only one. Otherwise the first request has none. If a loopback fleet asks
    for one, the next is the token it was started with, if the project's folder has it
    (``PALLAS_CONTROL_TOKEN``), and then the one it keeps in a file that only this user can read. Neither is
    ever sent to another machine, and the second only to the address in that file. If a given token is not the
    ``sole`` one, it is merely the first.
    """

    def __init__(self, place: FleetAddress, given: str = "", *, sole: bool = True) -> None:
        self._place = place
        self._given = given if sole else ""
        self._left: list[str] | None = None
        self.token = given

    def __repr__(self) -> str:
        return "TokenCandidates()"

    def next(self, refused: str) -> bool:
        """Switch to the next token after ``refused``; return whether there is one. Raises Fault (CONFIG).

        Of several concurrent requests that were refused, the first moves on, the others follow.
        """
        if self._given or not self._place.is_loopback:
            return False
        if self.token != refused:
            return True
        if self._left is None:
            from pallas.surfaces.control.token_file import TokenFileExposed, find_tokens

            mine = os.environ.get(CONTROL_VARIABLE, "").strip() if self._place.project is not None else ""
            try:
                self._left = [mine] if mine.isascii() and mine.isprintable() and mine else []
                host = "" if self._place.origin.startswith("https:") else self._place.host
                self._left += [each.token for each in find_tokens(self._place.port, host=host) if each.token]
            except TokenFileExposed as error:
                raise Fault(FaultType.CONFIG, str(error)) from error
            except OSError:
                pass  # There is no such folder, or it cannot be read.
        if not self._left:
            return False
        self.token = self._left.pop(0)
        return True

    def advice(self, refused: Fault) -> str:
        """Return what to do when no token was accepted, to follow the fleet's own message."""
        if refused.data.get("closed"):
            return ""  # The fleet has no token to accept.
        if self._given:
            return "; the token that was given (--token, PALLAS_TOKEN) is not one that this fleet knows"
        more = ", or PALLAS_CONTROL_TOKEN in .env of its project" if self._place.is_loopback else ""
        return f"; give one that it knows with --token or in PALLAS_TOKEN{more}"


class RestClient:
    """The API of the fleet at ``place``. Paths are relative to ``/api/v1``. Belongs to one event loop.

    Every method raises Fault: the fleet's own, NoFleetAnswers when none answers, TIMEOUT when it takes too
    long. Text in responses is sanitized, unless ``visible`` is false: then the caller has to do it before
    showing it.
    """

    def __init__(
        self, place: FleetAddress, token: str = "", *, connect_timeout: float = CONNECT_TIMEOUT
    ) -> None:
        import httpx2

        self.place = place = place.literal()
        self.own = False
        # The fleet's operator is another principal than the callers of its agents, with other threads.
        self._tokens, self._control = TokenCandidates(place, token), TokenCandidates(place, token, sole=False)
        self._connect_timeout = connect_timeout
        try:
            self._http = httpx2.AsyncClient(
                base_url=place.origin + BASE,
                # A small compressed response must not expand to a large one.
                headers={"user-agent": f"pallas/{__version__}", "accept-encoding": "identity"},
                # A proxy in the environment is not meant for fleets on this machine.
                trust_env=not place.is_loopback,
                verify=place.trust(),
                follow_redirects=False,
            )
        except (httpx2.InvalidURL, OSError) as error:
            raise lost(error, place.origin) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def get(
        self, path: str, *, timeout: float = ANSWER_TIMEOUT, visible: bool = True, **query: Any
    ) -> Any:
        """Return the JSON at ``path``. Query values that are None or empty are left out."""
        return await self.request("GET", path, timeout=timeout, visible=visible, query=query)

    async def post(self, path: str, document: Any = None, *, timeout: float = ANSWER_TIMEOUT) -> Any:
        """Send a document to be created or acted on, and return the response."""
        return await self.request("POST", path, document, timeout=timeout)

    async def put(self, path: str, document: Any, *, timeout: float = ANSWER_TIMEOUT) -> Any:
        """Send a changed document, and return the response. Absent keys stay as they are."""
        return await self.request("PUT", path, document, timeout=timeout)

    async def delete(self, path: str, *, timeout: float = ANSWER_TIMEOUT) -> Any:
        """Delete, and return the response; None when it is empty."""
        return await self.request("DELETE", path, timeout=timeout)

    async def items(
        self, path: str, *, most: int = 0, visible: bool = True, **query: Any
    ) -> AsyncIterator[Any]:
        """Yield the items of a list, page by page; with ``most`` at most so many."""
        cursor, count = "", 0
        for _ in range(_MAX_PAGES):
            limit = min(200, most - count) if most else 200
            page = await self.get(path, visible=visible, limit=limit, cursor=cursor, **query)
            for item in _list(page, "items"):
                yield item
                count += 1
                if most and count >= most:
                    return
            cursor = str(page.get("next") or "")
            if not cursor:
                return

    async def answer(self, agent: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send one message and return its whole answer (AG-16). Cancelling this cancels the run.

        Its ``text`` has no controls, but is data otherwise: the caller has to sanitise it before showing it.
        """
        document = await self.request(
            "POST",
            f"/agents/{part(agent)}/chat",
            {**body, "stream": False},
            timeout=RUN_TIMEOUT,
            visible=False,
        )
        if not isinstance(document, dict):
            raise Fault(FaultType.PROTOCOL, f"{self.place.origin} did not answer as a fleet does")
        text = document.get("text")
        shown: dict[str, Any] = codec.visible(document)
        return shown | ({"text": without_controls(text)} if isinstance(text, str) else {})

    def chat(
        self, agent: str, body: Mapping[str, Any], headers: Mapping[str, str] = NO_HEADERS
    ) -> ChatStream:
        """Send one message, and return the chunks of AG-15 and ``thinking`` (AG-30) as they are written.

        ``headers`` are sent too. Closing the stream does not end the run: see ``cancel``.
        """
        path = f"/agents/{part(agent)}/chat"
        return ChatStream(self.open, path, body, self.place.origin, headers=headers)

    async def fork(self, run: str, body: Mapping[str, Any]) -> str:
        """Continue from a step of a run, and return the id of the new run when it has ended."""
        stream = ChatStream(self.open, f"/runs/{part(run)}/fork", body, self.place.origin)
        try:
            async for _ in stream:
                pass
        finally:
            await stream.aclose()
        return stream.run_id

    async def cancel(self, run: str) -> None:
        """Ask for a run to be cancelled; does nothing for one that is over or unknown."""
        try:
            await self.request("DELETE", f"/runs/{part(run)}", timeout=10.0)
        except Fault as fault:
            if fault.data.get("reason") not in ("not_found", "conflict"):
                raise

    async def request(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        timeout: float = ANSWER_TIMEOUT,
        visible: bool = True,
        query: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send any request; return its JSON, None for an empty response."""
        body = await self._body(method, path, document, timeout=timeout, query=query)
        if not body:
            return None
        try:
            found = codec.loads(body)
        except codec.Undecodable as error:
            raise Fault(
                FaultType.PROTOCOL, f"{self.place.origin} answered something that cannot be read: {error}"
            ) from error
        return codec.visible(found) if visible else found

    async def download(self, path: str, *, timeout: float = ANSWER_TIMEOUT, most: int) -> bytes:
        """Return the bytes at ``path``, at most ``most``."""
        return await self._body("GET", path, timeout=timeout, most=most)

    async def _body(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        timeout: float,
        query: Mapping[str, Any] | None = None,
        most: int = MAX_ANSWER,
    ) -> bytes:
        import httpx2

        connected = False
        try:
            async with self.open(method, path, document, timeout=timeout, query=query) as answer:
                connected = True
                return await read_answer(answer, most)
        except httpx2.HTTPError as error:
            raise lost(error, self.place.origin, connected=connected) from error

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        timeout: float = ANSWER_TIMEOUT,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator["httpx2.Response"]:
        """Open a successful response, not yet read.

        Raises Fault, and httpx2's own errors while it is read.
        """
        import httpx2

        content = codec.dumps(document) if document is not None else None
        tokens = self._control if path.startswith(_CONTROL) else self._tokens
        params = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        while True:
            sent, token = dict(headers or {}), tokens.token
            if content is not None:
                sent["content-type"] = "application/json"
            if token:
                sent["authorization"] = f"Bearer {token}"
            request = self._http.build_request(
                method,
                path,
                content=content,
                params=params or None,
                headers=sent,
                timeout=httpx2.Timeout(timeout, connect=self._connect_timeout),
            )
            try:
                answer = await self._http.send(request, stream=True)
            except httpx2.HTTPError as error:
                raise lost(error, self.place.origin) from error
            try:
                if answer.status_code == 401 and tokens.next(token):
                    continue
                if not answer.is_success:
                    fault = await refusal(answer, self.place.origin)
                    if answer.status_code == 401:
                        fault = Fault(fault.type, fault.message + tokens.advice(fault), data=fault.data)
                    raise fault
                yield answer
            finally:
                await answer.aclose()
            return


@asynccontextmanager
async def connect(where: FleetAddress | Project | str, token: str = "") -> AsyncIterator[RestClient]:
    """Open the API of a fleet, by its address, its project, or a URL; sends no request yet.

    ``token`` is sent with every request; ``place_of`` and ``token_of`` say where both come from.
    """
    if isinstance(where, Project):
        where = place_of(project=where, environ={})
    elif isinstance(where, str):
        where = place_of(where)
    api = RestClient(where, token)
    try:
        yield api
    finally:
        await api.close()


def part(name: str) -> str:
    """Quote a name as one segment of a path."""
    return quote(name, safe="")


def _list(page: Any, name: str) -> list[Any]:
    found = page.get(name) if isinstance(page, dict) else None
    if not isinstance(found, list):
        raise Fault(FaultType.PROTOCOL, "the fleet did not answer with a list")
    return found
