"""The lifespan of an ASGI application, run once even if several ports serve the application."""

import asyncio
import logging
from typing import Any, Final

from starlette.types import ASGIApp, Message

from pallas.deadlines import cancel_and_wait, done_within
from pallas.model import Fault, FaultType

log = logging.getLogger(__name__)

START_TIMEOUT: Final = 30.0
STOP_TIMEOUT: Final = 2.0


class Lifespan:
    """Keeps ``app`` alive from ``start`` to ``stop``, in one task as the ASGI specification requires."""

    def __init__(self, app: ASGIApp, owner: str) -> None:
        self._app = app
        self._owner = owner
        self._events: asyncio.Queue[Message] = asyncio.Queue(2)
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._failed = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the app and return when it is up, within 30 s of free event loop time. Raises Fault
        (INTERNAL)."""
        self._task = asyncio.create_task(self._live(), name=f"lifespan of {self._owner}")
        self._events.put_nowait({"type": "lifespan.startup"})
        up = asyncio.create_task(self._up.wait())
        try:
            if not await done_within(START_TIMEOUT, up):
                self._failed = True
                log.error("%s did not start within %.0f s", self._owner, START_TIMEOUT)
        finally:
            up.cancel()
        if self._failed:
            await self.stop()
            raise Fault(FaultType.INTERNAL, f"{self._owner} could not be served; the log has the details")

    async def stop(self) -> None:
        """Send the app its shutdown event and cancel it if it has not ended after 2 s."""
        task, self._task = self._task, None
        if task is None:
            return
        if not task.done():
            self._events.put_nowait({"type": "lifespan.shutdown"})
            await asyncio.wait({task}, timeout=STOP_TIMEOUT)
        if not task.done():
            log.warning("%s did not end within %.0f s and is cancelled", self._owner, STOP_TIMEOUT)
            await cancel_and_wait(task, seconds=STOP_TIMEOUT)

    async def _live(self) -> None:
        scope: dict[str, Any] = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": {},
        }
        try:
            await self._app(scope, self._events.get, self._hear)
        except Exception as error:
            self._failed = not self._up.is_set()
            log.error("the lifespan of %s ended: %s", self._owner, type(error).__name__, exc_info=error)
        finally:
            self._up.set()
            self._down.set()

    async def _hear(self, message: Message) -> None:
        if message["type"] == "lifespan.startup.failed":
            self._failed = True
            log.error("%s did not start: %s", self._owner, message.get("message", ""))
        if message["type"].startswith("lifespan.startup."):
            self._up.set()
