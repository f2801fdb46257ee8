"""One connection to one MCP server: opened in either era, listed, called, lost, and opened again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic, time
from typing import Any, Final

from mcp import Client, MCPError
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from pallas.bounds.tool_results import ResultSchema
from pallas.deadlines import cancel_and_wait
from pallas.mcp_client.stdio_seam import how_it_ended
from pallas.model.fault import leaves_of
from pallas.safe_text import one_line
from pallas.telemetry.trace_context import current_agent

from .http_requests import CallFate, call_fate, says_session_lost
from .offer import MAX_SIZE, Offer, offer_of
from .opening import Callbacks, Heard, Opener, Settings, is_closed
from .pulse import Pulse
from .result_fit import LeftOut, as_json
from .transports import Http, Link, Transport
from .usable_lists import LISTS
from .usable_results import UsableResult, usable_result

log = logging.getLogger(__name__)

START_SECONDS: Final = 120.0
"""How long one opening may take, from the start of a program to its lists: it may be downloaded first."""
REOPEN_SECONDS: Final = 10.0
"""How long a call waits for a connection that was lost."""
PAUSE_SECONDS: Final = 1.0
"""Between two listings of a server that keeps changing its lists, and before a subscription is made again."""
BUSY_SECONDS: Final = 60.0
"""How long a server may be silent while it works on a call."""
_SOON_SECONDS: Final = 2.0
_LEAVE_SECONDS: Final = 8.0
# How long the other calls on a connection that one call has lost may go on.
_DRAIN_SECONDS: Final = 300.0
_LISTS_CHANGED: Final = (
    ToolListChangedNotification,
    PromptListChangedNotification,
    ResourceListChangedNotification,
)
_OPENING: Final = frozenset({"initialize", "server/discover"})
# The server read the request, so its session is there.
_READ: Final = frozenset({INVALID_PARAMS, METHOD_NOT_FOUND})
# By which servers say with status 200 that they do not know a session.
_SESSION_ERRORS: Final = frozenset({-32001, -32000, INVALID_REQUEST})
# A server of the other era answers with one of these to a request that names no session. -32000 is the
# TypeScript SDK's.
_OTHER_ERA: Final = frozenset({INVALID_REQUEST, UNSUPPORTED_PROTOCOL_VERSION, -32000})


class NotConnected(ConnectionError):
    """The server is not connected now; the message says why."""


class ProgramEnded(ConnectionError):
    """The program of a server has ended; the message says how."""


@dataclass(slots=True)
class Watch:
    """What the owner of a connection hears.

    ``listed`` gets each new offer before it is used, and returns the one to use; ``changed`` is called when
    the connection was opened or its server has listed again, ``lost`` with the reason once it is lost.
    """

    listed: Callable[[Offer], Awaitable[Offer]]
    changed: Callable[[], None] = lambda: None
    lost: Callable[[BaseException], None] = lambda error: None


class Connection:
    """The connection of one agent's instance to one server. Belongs to one event loop.

    A task of its own, the owner, opens it and leaves it; calls are made by their callers' tasks, so that each
    request has the context of its run. ``eras`` remembers which servers take the handshake only, by the
    transport's key; it may be shared. ``context`` makes the context of the owner's own requests, which belong
    to no run.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        settings: Settings,
        callbacks: Callbacks,
        watch: Watch,
        eras: dict[str, str],
        context: Callable[[], Context] = copy_context,
    ) -> None:
        self.name = name
        self.client: Client | None = None
        """The live client; None while the server is not connected."""
        self.offer: Offer | None = None
        """What the server listed last, also while it is lost."""
        self.error: BaseException | None = None
        """Why it is not connected."""
        self.since = 0.0
        """When it was opened or lost, in Unix seconds; 0 before it was opened first."""
        self.end = ""
        """How its program ended last, with the last line of its stderr; empty if it has not, or is none."""
        self.failed_at = 0.0
        """When it was lost, or could not be opened, last."""
        self.link = Link(one_line(name, 80))
        self._transport = transport
        self._settings = settings
        self._watch = watch
        heard = Heard(self._read, self._hear, self._ended, self._outdate)
        self._opener = Opener(name, transport, settings, callbacks, heard, self.link, eras)
        self._context = context
        self._found: list[LeftOut] = []
        self._opening_found: tuple[LeftOut, ...] = ()
        self._schemas: Mapping[str, ResultSchema] = {}
        self._listed_schemas: dict[str, Mapping[str, Any]] = {}
        self._schema_size = 0
        self._listing = asyncio.Lock()
        self._opening: asyncio.Future[None] | None = None
        self._owners: set[asyncio.Task[None]] = set()
        self._calls: dict[asyncio.Future[None], Client] = {}  # those in flight, by what is done at their end
        self._drains = False
        self._wake = asyncio.Event()
        self._is_outdated = self._is_closed = False
        self._pulse = Pulse()
        self._working, self._active_at = 0, 0.0

    @property
    def is_open(self) -> bool:
        """Whether calls can be made now."""
        return self.client is not None

    @property
    def is_over_http(self) -> bool:
        """Whether calls are HTTP requests, which ``Http.prepare`` has seen the client of."""
        return isinstance(self._transport, Http)

    @property
    def is_opening(self) -> bool:
        """Whether it is being opened now."""
        return self._opening is not None and not self._opening.done()

    @property
    def is_starting(self) -> bool:
        """Whether it is opened for the first time now, and a program: that may be downloaded first."""
        return self._transport.is_program and self.offer is None and self.is_opening

    async def open(self, seconds: float) -> None:
        """Open it, or wait for the opening that goes on, for ``seconds`` at most.

        The opening itself goes on after that, for ``START_SECONDS`` in all. Raises what the attempt raised,
        and TimeoutError while it goes on.
        """
        if self.client is not None:
            return
        if self._is_closed:
            raise NotConnected("the agent is stopping")
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_future()
            owner = asyncio.create_task(
                self._own(self._opening), name=f"server {self.link.name}", context=self._context()
            )
            self._owners.add(owner)
            owner.add_done_callback(partial(self._left, self._opening))
        opening = self._opening
        await asyncio.wait({opening}, timeout=seconds)
        if not opening.done():
            raise TimeoutError(f"{self.link.name} did not connect within {seconds:g} s")
        opening.result()

    async def call[T](self, work: Callable[[Client], Awaitable[T]], *, can_repeat: bool = False) -> T:
        """Return the result of ``work`` with the live client; the connection is opened if it is lost.

        After a failure that shows that the server has not run it, it is made once more on a new connection;
        with ``can_repeat`` after any loss. Raises the SDK's errors, NotConnected and TimeoutError.
        """
        for is_last in (False, True):
            await self._open_for_call()
            client = self.client
            if client is None:  # lost in this moment
                raise NotConnected(f"{self.link.name} is not connected") from self.error
            fate = CallFate()
            token = call_fate.set(fate)
            end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._calls[end] = client
            try:
                with nullcontext() if work == self._pulse.ask else self._busy():
                    return await work(client)
            except Exception as error:
                if not self._lost_by(error, fate, client):
                    raise
                if is_closed(error) and isinstance(self.error, ProgramEnded):
                    error.add_note(str(self.error))
                is_unrun = can_repeat or fate.unsent or fate.no_session or fate.refused
                if is_last or not (self._settings.repeats and is_unrun):
                    await self._open_soon()
                    raise
            finally:
                call_fate.reset(token)
                del self._calls[end]
                end.cancel()
        raise AssertionError("unreachable")

    async def list_again(self, seconds: float) -> None:
        """List now what an open connection offers. Raises the SDK's errors and TimeoutError."""
        if (client := self.client) is not None:
            async with asyncio.timeout(seconds):
                await self._list(client)

    async def answers(self, seconds: float) -> bool:
        """Return whether the server answers within ``seconds``; a session that it has lost is opened again.

        One that is silent may be busy: for ``BUSY_SECONDS`` after a call began or ended, while there is one,
        that counts as an answer. Raises ConnectionError, also for an HTTP status that refuses or fails, and
        the SDK's errors.
        """
        is_busy = self._working > 0 and monotonic() - self._active_at < BUSY_SECONDS
        half = seconds / 2
        try:
            async with asyncio.timeout(half):
                await self.call(self._pulse.ask)
        except TimeoutError:
            return is_busy or await self._pulse.lists(self.client, half)
        return True

    def schema_of(self, tool: str) -> ResultSchema | None:
        """The schema that the structured results of a tool must fit; None if it has none."""
        return self._schemas.get(tool)

    def lose(self, error: BaseException, *, drains: bool = False) -> None:
        """Leave the connection: the next call opens a new one. ``drains``: when the calls in flight end."""
        if self.client is None:
            return
        self._drains = drains
        self.client, self.error, self.since = None, error, time()
        self.failed_at = self.since
        self.link.is_open = False
        self._wake.set()
        self._watch.lost(error)

    async def close(self) -> None:
        """Leave the connection for good, within 8 s; a program is ended."""
        self._is_closed = True
        self.client = None
        self._wake.set()
        for end in self._calls:
            end.cancel()
        if self._opening is not None and not self._opening.done():
            for owner in self._owners:
                owner.cancel()
        if self._owners:
            await asyncio.wait(set(self._owners), timeout=_LEAVE_SECONDS)
        for owner in self._owners:
            owner.cancel()
        if self._owners:
            await asyncio.wait(set(self._owners), timeout=1.0)

    async def _own(self, opening: asyncio.Future[None]) -> None:
        """Open the connection, and leave it once it is lost or closed."""
        wake = self._wake = asyncio.Event()
        try:
            async with asyncio.timeout(START_SECONDS) as limit, self._opener.entered() as client:
                await self._list(client)
                limit.reschedule(None)
                self.client, self.error, self.link.is_open = client, None, True
                self.since = time()
                if not opening.done():
                    opening.set_result(None)
                self._watch.changed()
                await self._keep(client, wake)
                if self._drains and not self._is_closed:
                    await self._drained(client)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._failed(opening, error, is_newest=self._wake is wake)
        finally:
            if self._wake is wake and self.client is not None:
                self.lose(ConnectionError("the connection was closed"))

    def _left(self, opening: asyncio.Future[None], owner: asyncio.Task[None]) -> None:
        """An owner has ended, perhaps before it began."""
        self._owners.discard(owner)
        if not opening.done():
            opening.set_exception(NotConnected("the agent is stopping"))
            opening.exception()  # perhaps nobody waits any more

    async def _drained(self, client: Client) -> None:
        """Wait for the calls in flight: what one of them has lost may still answer the others."""
        if ends := {end for end, used in self._calls.items() if used is client}:
            await asyncio.wait(ends, timeout=_DRAIN_SECONDS)

    def _failed(self, opening: asyncio.Future[None], error: Exception, *, is_newest: bool) -> None:
        causes = list(leaves_of(error))
        cause = causes[0] if len(causes) == 1 else error
        if is_closed(cause):
            self.end = self._end_of_program()
        if not opening.done():
            self.error, self.failed_at = cause, time()
            opening.set_exception(cause)
            opening.exception()
        elif is_newest:
            self.lose(cause)

    def _read(self, method: str, result: Any, version: str | None) -> UsableResult:
        made = usable_result(method, result, version)
        if method in LISTS:
            self._found.extend(made.findings)
        elif method in _OPENING:
            self._opening_found = made.findings
        self._take_schemas(made.output_schemas)
        return made

    def _take_schemas(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the output schemas of a page of tools, as many characters as a list may have."""
        for name, schema in schemas.items():
            self._schema_size += len(as_json(schema))
            if self._schema_size > MAX_SIZE:
                why = (
                    f"the output schemas before it have {MAX_SIZE:,} characters; its results are not checked"
                )
                self._found.append(LeftOut("tool", one_line(name, 100), why, "outputSchema"))
                return
            self._listed_schemas[name] = schema

    async def _list(self, client: Client) -> None:
        async with self._listing:
            self._found, self._listed_schemas = list(self._opening_found), {}
            self._schema_size = 0
            offer = await offer_of(client, self._found)
            tools = tuple(_with_schema(each, self._listed_schemas.get(each.name)) for each in offer.tools)
            self._schemas = {
                name: ResultSchema(name, schema) for name, schema in self._listed_schemas.items()
            }
            offer = replace(offer, tools=tools)
            self.offer = await self._watch.listed(offer)

    async def _keep(self, client: Client, wake: asyncio.Event) -> None:
        """Keep the lists up to date until the connection is lost or closed."""
        helpers = [asyncio.create_task(self._listen(client), name=f"listen {self.link.name}")]
        if self._settings.ping_seconds > 0 and client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            helpers.append(asyncio.create_task(self._ping(client), name=f"ping {self.link.name}"))
        try:
            while self.client is client:
                await wake.wait()
                wake.clear()
                if self.client is not client:
                    return
                if self._is_outdated:
                    self._is_outdated = False
                    await self._list_and_tell()
                    await asyncio.sleep(PAUSE_SECONDS)
                    wake.set()
        finally:
            await cancel_and_wait(*helpers, seconds=_LEAVE_SECONDS)

    async def _list_and_tell(self) -> None:
        with suppress(Exception):  # a lost connection shows at the next call
            await self.list_again(REOPEN_SECONDS)
            if self.client is not None:  # else the agent has left it meanwhile, or it was lost
                self._watch.changed()

    async def _listen(self, client: Client) -> None:
        """Hear of changed lists in the modern era, where a server tells those that subscribe only."""
        told = client.server_capabilities
        tools, prompts, resources = (
            each is not None and bool(each.list_changed)
            for each in (told.tools, told.prompts, told.resources)
        )
        while (tools or prompts or resources) and client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            try:
                async with client.listen(
                    tools_list_changed=tools,
                    prompts_list_changed=prompts,
                    resources_list_changed=resources,
                ) as subscription:
                    await self._list_and_tell()  # what has changed before it began was not told
                    async for _ in subscription:
                        self._outdate()
            except MCPError as error:
                if not is_closed(error):
                    return
            except Exception:
                log.debug("%s: the subscription ended", self.link.name, exc_info=True)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _ping(self, client: Client) -> None:
        missed = 0
        while True:
            await asyncio.sleep(self._settings.ping_seconds)
            fate = CallFate()
            call_fate.set(fate)  # of this task alone
            try:
                async with asyncio.timeout(self._settings.ping_seconds):
                    await self._pulse.ping(client)
                missed = 0
            except MCPError as error:
                if fate.no_session and error.code not in _READ:  # the server was restarted
                    self.lose(error, drains=True)
                    return
                missed = missed + 1 if is_closed(error) else 0
            except TimeoutError:
                missed += 1
            if missed >= self._settings.missed_pings:
                if await self._pulse.lists(client, self._settings.ping_seconds):
                    missed = 0
                    continue
                self.lose(ConnectionError(f"it did not answer {missed} pings"))
                return

    async def _hear(self, message: Any) -> None:
        if isinstance(message, _LISTS_CHANGED):
            self._outdate()

    def _outdate(self) -> None:
        self._is_outdated = True
        self._wake.set()

    async def _open_for_call(self) -> None:
        """Open it. What came of an attempt that began before a call says nothing of the server now."""
        older = self._opening if self.is_opening and not self._transport.is_program else None
        try:
            await self.open(REOPEN_SECONDS)
        except Exception:
            if older is None or not older.done():
                raise
            await self.open(REOPEN_SECONDS)

    async def _open_soon(self) -> None:
        """Open a lost connection for the calls that follow, and wait a moment for it."""
        with suppress(Exception):
            await self.open(_SOON_SECONDS)

    def _ended(self, client: Client) -> None:
        """The other side has closed the streams."""
        if self.client is client:
            self.end = self._end_of_program()
            how = how_it_ended(current_agent(), self.link.name)
            closed = ConnectionError("the other side closed the connection")
            self.lose(ProgramEnded(f"its program {how}") if how else closed)

    def _end_of_program(self) -> str:
        how = how_it_ended(current_agent(), self.link.name)
        last = self.link.stderr.last_line() if self.link.stderr is not None else ""
        return f"its program {how}" + (f": {last}" if last else "") if how else ""

    @contextmanager
    def _busy(self) -> Iterator[None]:
        if not self._working:
            self._active_at = monotonic()
        self._working += 1
        try:
            yield
            self._active_at = monotonic()
        finally:
            self._working -= 1

    def _lost_by(self, error: Exception, fate: CallFate, client: Client) -> bool:
        """Whether a call failed because the connection is lost, which is left then."""
        if self.client is not client:  # another call found it first
            return True
        code = error.code if isinstance(error, MCPError) else 0
        if fate.has_session and code in _SESSION_ERRORS and says_session_lost(str(error), only=fate.accepted):
            fate.no_session = True
        if (fate.no_session and code not in _READ) or (fate.refused and code in _OTHER_ERA):
            self.lose(error, drains=True)
            return True
        if fate.unsent or fate.broken or is_closed(error):
            # Requests over HTTP are answered apart: others may still be.
            self.lose(error, drains=self.is_over_http or not is_closed(error))
            return True
        return isinstance(error, ConnectionError)


def _with_schema(tool: Tool, schema: Mapping[str, Any] | None) -> Tool:
    """The SDK's client was not to see it: it would refuse results for it that we pass on."""
    return tool if schema is None else tool.model_copy(update={"output_schema": dict(schema)})


def end_notes(error: BaseException) -> tuple[str, ...]:
    """Return how the program ended whose end made a call fail; empty if that is not known."""
    return tuple(getattr(error, "__notes__", ()))[-1:] if is_closed(error) else ()
