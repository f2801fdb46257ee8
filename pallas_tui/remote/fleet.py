"""The FleetPort of a fleet that runs elsewhere: its picture is kept here, what is asked goes there."""

import asyncio
import logging
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from pallas.model import (
    AgentDetail,
    Envelope,
    EventBatch,
    Exchange,
    Fault,
    FaultType,
    FleetSnapshot,
    FleetVerb,
    MessageRecord,
    Page,
    TaskRecord,
    ThreadRecord,
    ToolOutcome,
    Verb,
)

from ..fleets import READ_ONLY
from .address import label
from .connection import Connection, decoded
from .state import Known
from .tokens import TokenSource

log = logging.getLogger(__name__)

LOOKUP_TIMEOUT: Final = 40.0
CALL_TIMEOUT: Final = 310.0


class RemoteFleet:
    """A fleet at ``origin`` (``http://host:port``), seen with the tokens of ``tokens``.

    ``start`` returns at once; the connection is held by a thread of its own and made again whenever it is
    lost, and events go on where they broke off. Meanwhile ``snapshot().stale`` says what is wrong. ``stop``
    ends the connection and leaves the fleet running. Every method may be called from any thread. The fleet's
    log is mirrored into ``log_mirror``.
    """

    outlives = True
    """The fleet goes on without the workbench."""

    def __init__(self, origin: str, tokens: TokenSource, *, log_mirror: Path | None = None) -> None:
        self.origin = origin
        self._mirror = log_mirror
        self._known = Known(label(origin))
        self._connection = Connection(origin, tokens, self._known)
        self._thread = threading.Thread(target=self._main, name="attached fleet", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stopping = threading.Event()

    @property
    def can_control(self) -> bool:
        """Whether the token allows changes; False until that is known."""
        return self._known.can_control

    def start(self) -> None:
        """Begin to connect; call once."""
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Let go of the fleet, which runs on. Safe to call twice or unstarted."""
        self._stopping.set()
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(stop.set)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def snapshot(self) -> FleetSnapshot:
        """The fleet as it was last seen."""
        return self._known.snapshot()

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        """Events with a number above ``seq``."""
        return self._known.since(seq, limit)

    def cancel(self, run_id: str) -> None:
        """Ask for a run to be cancelled."""
        self._change(f"/runs/{quote(run_id, safe='')}/cancel", f"cancel run {run_id}")

    def control(self, agent: str, verb: Verb) -> None:
        """Ask for something to be done with one agent."""
        self._change(f"/agents/{quote(agent, safe='')}/{verb}", f"{verb} {agent}")

    def control_fleet(self, verb: FleetVerb) -> None:
        """Ask for something to be done with the whole fleet."""
        self._change(f"/{verb}", verb)

    async def describe(self, agent: str) -> AgentDetail:
        """Everything about an agent. Raises Fault."""
        path = f"/agents/{quote(agent, safe='')}"
        document = await self._asked(lambda wire: wire.get(path), LOOKUP_TIMEOUT)
        detail: AgentDetail = decoded(AgentDetail, document)
        return detail

    async def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        """What a run said over the wire. Raises Fault."""
        path = f"/runs/{quote(run_id, safe='')}/exchanges"
        document = await self._asked(lambda wire: wire.get(path), LOOKUP_TIMEOUT)
        found: tuple[Exchange, ...] = decoded(tuple[Exchange, ...], document)
        return found

    async def envelopes(self, run_id: str, after: int = 0, limit: int = 1_000) -> tuple[Envelope, ...]:
        """Messages between the handlers of a run, from after a number on. Raises Fault."""
        query = urlencode({"after": after, "limit": limit})
        document = await self._got(f"/runs/{quote(run_id, safe='')}/messages?{query}")
        found: tuple[Envelope, ...] = decoded(tuple[Envelope, ...], document)
        return found

    async def call_tool(
        self, agent: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        """Call a tool by hand; the bearer goes to the fleet in the body of this one request. Raises Fault."""
        if not self.can_control:
            raise Fault(FaultType.AUTH, READ_ONLY)
        call = {"server": server, "tool": tool, "arguments": dict(arguments), "bearer": bearer}
        path = f"/agents/{quote(agent, safe='')}/tools/call"
        document = await self._asked(lambda wire: wire.post(path, call, timeout=CALL_TIMEOUT), CALL_TIMEOUT)
        outcome: ToolOutcome = decoded(ToolOutcome, document)
        return outcome

    # Durable threads

    async def threads(self, agent: str = "", limit: int = 50, cursor: str = "") -> Page[ThreadRecord]:
        """Durable threads, the one that was used last first. Raises Fault."""
        query = urlencode({"agent": agent, "limit": limit, "cursor": cursor})
        page: Page[ThreadRecord] = decoded(Page[ThreadRecord], await self._got(f"/threads?{query}"))
        return page

    async def thread(self, agent: str, thread: str) -> ThreadRecord:
        """One thread of an agent. Raises Fault."""
        path = f"/agents/{quote(agent, safe='')}/thread?{urlencode({'which': thread})}"
        found: ThreadRecord = decoded(ThreadRecord, await self._got(path))
        return found

    async def thread_messages(
        self, thread: str, limit: int = 50, cursor: str = "", newest_first: bool = False
    ) -> Page[MessageRecord]:
        """Some rows of a thread. Raises Fault."""
        query = urlencode({"limit": limit, "cursor": cursor, "newest": int(newest_first)})
        document = await self._got(f"/threads/{quote(thread, safe='')}/messages?{query}")
        page: Page[MessageRecord] = decoded(Page[MessageRecord], document)
        return page

    async def rename_thread(self, thread: str, title: str) -> ThreadRecord:
        """Give a thread another title. Raises Fault."""
        path = f"/threads/{quote(thread, safe='')}/rename"
        renamed: ThreadRecord = decoded(ThreadRecord, await self._put("POST", path, {"title": title}))
        return renamed

    async def delete_thread(self, thread: str) -> None:
        """Delete a thread with all its messages. Raises Fault."""
        await self._put("DELETE", f"/threads/{quote(thread, safe='')}")

    async def tasks(self, agent: str = "", limit: int = 50, cursor: str = "") -> Page[TaskRecord]:
        """Tasks, the newest first. Raises Fault."""
        query = urlencode({"agent": agent, "limit": limit, "cursor": cursor})
        page: Page[TaskRecord] = decoded(Page[TaskRecord], await self._got(f"/tasks?{query}"))
        return page

    async def task(self, id: str) -> TaskRecord:  # noqa: A002 - the word of the record
        """One task with its answer. Raises Fault."""
        found: TaskRecord = decoded(TaskRecord, await self._got(f"/tasks/{quote(id, safe='')}"))
        return found

    async def cancel_task(self, id: str) -> TaskRecord:  # noqa: A002 - as above
        """Ask for a task to be cancelled. Raises Fault."""
        document = await self._put("DELETE", f"/tasks/{quote(id, safe='')}")
        found: TaskRecord = decoded(TaskRecord, document)
        return found

    async def save_params(self, agent: str, params: Mapping[str, Any]) -> str:
        """Keep parameters as the agent's own. Raises Fault."""
        path = f"/agents/{quote(agent, safe='')}/params"
        document = await self._put("POST", path, {"params": dict(params)})
        return str(document.get("said", "")) if isinstance(document, dict) else ""

    async def _got(self, path: str) -> Any:
        return await self._asked(lambda wire: wire.get(path), LOOKUP_TIMEOUT)

    async def _put(self, method: str, path: str, document: Any = None) -> Any:
        if not self.can_control:
            raise Fault(FaultType.AUTH, READ_ONLY)
        return await self._asked(lambda wire: wire.ask(method, path, document), LOOKUP_TIMEOUT)

    # Asking, from any thread

    def _change(self, path: str, what: str) -> None:
        if not self.can_control:
            self._known.tell("warning", READ_ONLY)
            return

        async def ask() -> None:
            try:
                await self._through(lambda wire: wire.post(path))
            except Fault as fault:
                self._known.tell("error", f"{what}: {fault.message}")

        self._submit(ask())

    async def _asked(self, ask: Any, timeout: float) -> Any:
        future = self._submit(self._through(ask))
        if future is None:
            raise Fault(FaultType.TRANSPORT, f"there is no connection to {self.origin} yet")
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise Fault(FaultType.TIMEOUT, f"{self.origin} did not answer within {timeout:.0f} s") from None

    def _submit(self, work: Coroutine[Any, Any, Any]) -> "Future[Any] | None":
        loop = self._loop
        if loop is None or not loop.is_running() or self._stopping.is_set():
            work.close()
            return None
        return asyncio.run_coroutine_threadsafe(work, loop)

    async def _through(self, ask: Any) -> Any:
        """What ``ask`` gets over the connection there is. Raises Fault."""
        from .wire import Gone, NoControl, Refused

        if self._connection.wire is None:
            raise Fault(
                FaultType.TRANSPORT, f"there is no connection to {self.origin} now; it is being tried"
            )
        try:
            return await ask(self._connection.wire)
        except Refused:
            raise Fault(FaultType.AUTH, f"{self.origin} no longer accepts the token") from None
        except NoControl as error:
            raise Fault(FaultType.TRANSPORT, str(error)) from None
        except Gone:
            raise Fault(FaultType.UPSTREAM, "that is not there any more") from None

    # The connection, in the thread

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception as error:
            log.exception("the connection to %s broke", self.origin)
            self._known.failed(f"{type(error).__name__} in the connection; the log has the details")

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        if self._stopping.is_set():
            return
        stopped = asyncio.create_task(self._stop.wait())
        work: set[asyncio.Task[Any]] = {asyncio.create_task(self._connection.hold(), name="attached: events")}
        if self._mirror is not None:
            from .log_mirror import LogMirror

            mirror = LogMirror(self._mirror, lambda: self._connection.wire)
            work.add(asyncio.create_task(mirror.run(), name="attached: log"))
        try:
            # The mirror never ends by itself; when the connection does, there is nothing to mirror.
            await asyncio.wait({stopped, *work}, return_when=asyncio.FIRST_COMPLETED)
            for task in work:
                if task.done() and not task.cancelled():
                    task.result()
            await self._stop.wait()
        finally:
            for task in (stopped, *work):
                task.cancel()
            await asyncio.wait({stopped, *work}, timeout=2.0)
