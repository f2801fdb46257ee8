"""The FleetPort of a remote fleet: a mirror of its state, and operations over its control API."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import NoneType
from typing import Any, Final

from pallas.deadlines import cancel_and_wait
from pallas.model import (
    Attachment,
    EventBatch,
    Fault,
    FaultType,
    FleetSnapshot,
    Operation,
    RunningFleet,
    TokenScope,
)
from pallas.model.operations import READ_ONLY

from .fleet_address import label
from .fleet_connection import FleetConnection, decoded
from .fleet_mirror import FleetMirror
from .token_source import TokenSource

log = logging.getLogger(__name__)

MARGIN_S: Final = 10.0
"""Seconds added to the deadline of an operation: the fleet itself gives up before, and so does its API."""


class RemoteFleet(RunningFleet):
    """A fleet at ``origin`` (``http://host:port``), seen with the tokens of ``tokens``.

    ``start`` returns at once; a thread of its own holds the connection, reconnects after a loss and resumes
    the events. Meanwhile ``snapshot().stale`` says what is wrong. ``stop``
    ends the connection and leaves the fleet running. Every method may be called from any thread. The fleet's
    log is mirrored into ``log_mirror``. ``timer`` returns seconds that only grow.
    """

    outlives = True

    def __init__(
        self,
        origin: str,
        tokens: TokenSource,
        *,
        log_mirror: Path | None = None,
        timer: Callable[[], float] = monotonic,
    ) -> None:
        self.origin = origin
        self._log_mirror = log_mirror
        self._mirror = FleetMirror(label(origin))
        self._connection = FleetConnection(origin, tokens, self._mirror, timer=timer)
        self._thread = threading.Thread(target=self._main, name="attached fleet", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stopping = threading.Event()

    @property
    def can_control(self) -> bool:
        """Whether the token allows changes; False until that is known."""
        return self._mirror.can_control

    @property
    def attachment(self) -> Attachment | None:
        """How the fleet is attached now; None before the first connection."""
        return self._connection.attachment

    def start(self) -> None:
        """Begin to connect; call once."""
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Disconnect; the fleet runs on. Safe to call twice or unstarted."""
        self._stopping.set()
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(stop.set)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def snapshot(self) -> FleetSnapshot:
        """The fleet as it was last seen."""
        return self._mirror.snapshot()

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        """Events with a number above ``seq``."""
        return self._mirror.since(seq, limit)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` for each event and each snapshot; returns a function that stops that."""
        return self._mirror.listen(wake)

    async def _call(self, operation: Operation, arguments: dict[str, Any]) -> Any:
        """Request it from the fleet. Raises Fault."""
        if operation.scope is TokenScope.FULL and not self.can_control:
            raise Fault(FaultType.AUTH, READ_ONLY)
        deadline = operation.deadline_s + MARGIN_S
        path, body = operation.request(arguments)
        document = await self._asked(
            lambda client: client.request(operation.http_method, path, body, timeout=deadline), deadline
        )
        if not operation.result_key:
            return decoded(operation.result, document)
        if operation.result is NoneType:
            return None
        found = document.get(operation.result_key) if isinstance(document, dict) else None
        return decoded(operation.result, found)

    def _send(self, operation: Operation, arguments: dict[str, Any]) -> None:
        """Request it from the fleet, from any thread; a Notice reports what is wrong."""
        if not self.can_control:
            self._mirror.notify("warning", READ_ONLY)
            return
        path, body = operation.request(arguments)

        async def ask() -> None:
            try:
                await self._through(lambda client: client.request(operation.http_method, path, body))
            except Fault as fault:
                self._mirror.notify("error", f"{operation.describe(arguments)}: {fault.message}")

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
        """The result of ``ask`` over the current connection. Raises Fault."""
        from .control_client import NoControlApi, ResourceGone, TokenRejected

        if self._connection.client is None:
            raise Fault(FaultType.TRANSPORT, f"there is no connection to {self.origin} now; reconnecting")
        try:
            return await ask(self._connection.client)
        except TokenRejected:
            raise Fault(FaultType.AUTH, f"{self.origin} no longer accepts the token") from None
        except NoControlApi as error:
            raise Fault(FaultType.TRANSPORT, str(error)) from None
        except ResourceGone:
            raise Fault(FaultType.UPSTREAM, "it does not exist any more") from None

    # The connection, in the thread

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception as error:
            log.exception("the connection to %s failed", self.origin)
            self._mirror.fail(f"{type(error).__name__} in the connection; the log has the details")

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        if self._stopping.is_set():
            return
        stopped = asyncio.create_task(self._stop.wait())
        work: set[asyncio.Task[Any]] = {asyncio.create_task(self._connection.hold(), name="attached: events")}
        if self._log_mirror is not None:
            from .log_mirror import LogMirror

            mirror = LogMirror(self._log_mirror, lambda: self._connection.client)
            work.add(asyncio.create_task(mirror.run(), name="attached: log"))
        try:
            # The mirror never ends by itself; when the connection does, there is nothing to mirror.
            await asyncio.wait({stopped, *work}, return_when=asyncio.FIRST_COMPLETED)
            for task in work:
                if task.done() and not task.cancelled():
                    task.result()
            await self._stop.wait()
        finally:
            await cancel_and_wait(stopped, *work, seconds=2.0)
