"""One attached agent: its connection, and its health between two polls."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import time
from typing import Any, Final, Protocol

from pallas.deadlines import cancel_and_wait
from pallas.model import Fault, FaultType, Health, HealthStatus

from .health_polls import DEFAULT_INTERVAL, health_in, reason_of
from .instance_model import RegistryAgent

POLL_TIMEOUT: Final = 10.0
"""An agent answers within 3.5 s; the rest is for connecting, and for a machine that is busy."""
_STOP_TIMEOUT: Final = 5.0


class PolledConnection(Protocol):
    """The connection to an agent, made by the first call."""

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """The result of a tool; raises Fault."""
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


@dataclass(frozen=True, slots=True)
class PollPace:
    """When agents are polled. ``clock`` gives Unix seconds, ``wait`` waits that many seconds.

    ``interval`` is between two polls of one agent, ``timeout`` how long one may take, both in seconds.
    """

    interval: float = DEFAULT_INTERVAL
    timeout: float = POLL_TIMEOUT
    clock: Callable[[], float] = time
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep


class AgentPoller:
    """Polls one agent from ``start`` until ``stop``; ``health`` is what the last poll found (PI-15).

    ``on_poll`` is called after each poll, on the loop of ``start``.
    """

    def __init__(
        self,
        agent: RegistryAgent,
        wire: PolledConnection,
        pace: PollPace,
        on_poll: Callable[["AgentPoller"], None],
    ) -> None:
        self.agent = agent
        self.since = pace.clock()
        self.health: Health | None = None
        self._wire, self._pace, self._on_poll = wire, pace, on_poll
        self._poked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect and poll from now on."""
        self._task = asyncio.create_task(self._run(), name=f"health of {self.agent.url}")

    def poke(self) -> None:
        """Poll now and not only when it is time."""
        self._poked.set()

    async def stop(self) -> None:
        """End polling and the connection; done within a few seconds."""
        if self._task is not None:
            await cancel_and_wait(self._task, seconds=_STOP_TIMEOUT)
        await self._wire.close()

    async def _run(self) -> None:
        while True:
            self._poked.clear()
            status, message, heard = await self._poll()
            now = self._pace.clock()
            before = self.health
            since = before.since if before is not None and before.status is status else now
            self.health = Health(status, message, since, now)
            self._on_poll(self)
            if not heard:
                # Close the rest of the connection: the next poll makes a new one.
                await self._wire.close()
            await self._rest()

    async def _poll(self) -> tuple[HealthStatus, str, bool]:
        """Status, reason, and whether the agent answered at all."""
        timeout = self._pace.timeout
        try:
            async with asyncio.timeout(timeout):
                result = await self._wire.call("get_health", {})
            return *health_in(result), True
        except TimeoutError:
            fault = Fault(FaultType.TIMEOUT, "")
        except Fault as error:
            fault = error
        except Exception as error:  # a poller that ends would leave a stale ok on the screen
            fault = Fault(FaultType.INTERNAL, f"{type(error).__name__}: {error}")
        return HealthStatus.ERROR, reason_of(fault, self.agent.url, timeout), False

    async def _rest(self) -> None:
        """Until it is time, or ``poke`` is called."""
        waits = {
            asyncio.ensure_future(self._pace.wait(self._pace.interval)),
            asyncio.ensure_future(self._poked.wait()),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
