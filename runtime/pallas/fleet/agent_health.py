"""The health of one agent: probes, outcomes of real calls, the shown state, and since when."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from time import time
from typing import Final

from pallas.config.models import DownstreamConfig
from pallas.health.probe import NOT_RUNNING, CallRecord, Lack, Prober, health_of
from pallas.model import (
    AgentState,
    Downstream,
    Health,
    HealthChanged,
    HealthStatus,
    ProbeResult,
    RunEvent,
    RunFinished,
    ServerChange,
    ServerConnection,
)
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub

_MAX_FAULT: Final = 200

log = logging.getLogger(__name__)


class AgentHealth:
    """The health of the agent ``name``, and of the downstreams it calls. Belongs to one event loop.

    ``condition`` gives the agent's state and, where that is ``error``, the reason; ``lock_changes`` what its
    servers list otherwise than the lock says. ``connections`` gives those of its instances to its servers,
    and ``check_connection`` asks over one of them. A change of what is shown is a ``HealthChanged``.
    """

    def __init__(
        self,
        name: str,
        hub: EventHub,
        condition: Callable[[], tuple[AgentState, str]],
        provider_problem: Callable[[], str],
        lock_changes: Callable[[], tuple[ServerChange, ...]] = lambda: (),
        connections: Callable[[], tuple[ServerConnection, ...]] = lambda: (),
        check_connection: Callable[[str, float], Awaitable[None]] | None = None,
    ) -> None:
        self._name = name
        self._hub = hub
        self._condition = condition
        self._provider_problem = provider_problem
        self._lock_changes = lock_changes
        self._connections = connections
        self._check_connection = check_connection
        self._known: Mapping[str, ServerConnection] = {}
        self._watched: tuple[DownstreamConfig, ...] = ()
        self._prober = Prober(())
        self._calls = CallRecord(())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lacks: tuple[Lack, ...] = ()
        self._failed_runs = 0
        self._last_fault = ""
        self._disproved = ""  # a problem of the provider that a run succeeded with
        self._was_fine = True
        self._required: frozenset[str] = frozenset()
        self._shown = Health(HealthStatus.ERROR, "starting", since=time(), checked_at=time())

    @property
    def shown(self) -> Health:
        """What the fleet shows. Safe from any thread."""
        return self._shown

    @property
    def downstreams(self) -> tuple[Downstream, ...]:
        """The downstreams as the fleet shows them, with the last real calls, and as agents are connected.

        Safe from any thread.
        """
        return self._as_used(self._prober.latest)

    @property
    def watched(self) -> tuple[DownstreamConfig, ...]:
        """The downstreams that are looked at."""
        return self._watched

    @property
    def unconfirmed(self) -> bool:
        """Whether the last look found something that another must confirm."""
        return self._prober.unconfirmed

    @property
    def uneasy(self) -> bool:
        """Whether to look again soon: to confirm something, or because a downstream may be back."""
        return self._prober.unconfirmed or any(
            each.reach in (ProbeResult.UNREACHABLE, ProbeResult.AUTH_REQUIRED) for each in self._prober.latest
        )

    async def watch_servers(
        self, downstreams: Sequence[DownstreamConfig], required: Collection[str] = ()
    ) -> None:
        """Watch these downstreams from now on; keep the health of those that stay.

        Without the ``required`` ones the agent does not answer.
        """
        self._required = frozenset(required)
        if self._loop is not None and tuple(downstreams) == self._watched:
            return
        self._loop = asyncio.get_running_loop()
        before, self._watched = self._prober, tuple(downstreams)
        self._calls = CallRecord(downstreams)
        self._prober = Prober(downstreams, connections=self._connections, check=self._check_connection)
        await before.close()

    def lack(self, lacks: tuple[Lack, ...]) -> None:
        """From now on these agents, which it needs, cannot answer."""
        if lacks != self._lacks:
            self._lacks = lacks
            self.refresh()

    async def ask(self, problems: Collection[str]) -> Health:
        """Return the health as it is found now; probe at most every ten seconds and never a model (PI-9).

        The caller gets the result; the state that the fleet shows does not flap. ``problems`` as for
        ``Prober.probe``.
        """
        if self._condition()[0] is not AgentState.READY:
            return self.refresh()
        found = await self._prober.probe(problems)
        shown = self.refresh()
        asked = self._compose(found)
        return replace(asked, since=shown.since) if asked.status is shown.status else asked

    async def look(self, problems: Collection[str]) -> None:
        """Look now, so that the workbench and the gauge know; never raises."""
        try:
            found = await self._prober.probe(problems, fresh=True)
            self._calls.probed(found, self._prober.began)
            self.refresh()
        except Exception:
            log.exception("%s: its health could not be checked", self._name)

    def refresh(self) -> Health:
        """Compute the health from known results, and publish it if it has changed."""
        self._known = {each.server: each for each in self._connections()}
        if (is_fine := self._is_fine()) and not self._was_fine:
            self.forget_failures()  # what was wrong with them is over
        self._was_fine = is_fine
        health, before = self._compose(self._prober.latest), self._shown
        since = health.since if before.status is not health.status else before.since
        self._shown = replace(health, since=since)
        if (before.status, before.message) != (health.status, health.message):
            self._hub.publish(HealthChanged(agent=self._name, health=self._shown))
        return self._shown

    def hear(self, event: RunEvent) -> bool:
        """Note what an event of the agent's runs says of it; return whether to look at its downstreams.

        Any thread; returns at once.
        """
        changed = evidence = self._calls.observe(event)
        if isinstance(event, RunFinished):
            if event.outcome == "ok" and (self._failed_runs or self._shown.status is not HealthStatus.OK):
                self._disproved = self._provider_problem()
                self.forget_failures()
                changed = True
            elif event.of_agent:
                self._failed_runs += 1
                # Without what the provider itself said
                self._last_fault = one_line(event.fault.partition(" (")[0], _MAX_FAULT)
                self._disproved = ""
                changed = True
        if changed and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.refresh)
        return evidence

    def forget_failures(self) -> None:
        """Count failed runs from now on: a run succeeded, another version answers, or the cause is gone."""
        self._failed_runs = 0

    async def close(self) -> None:
        """End the probes that still run."""
        await self._prober.close()

    def _compose(self, found: Sequence[Downstream]) -> Health:
        return self._health(found, self._failed_runs)

    def _is_fine(self) -> bool:
        """Whether nothing is wrong, apart from failed runs."""
        return self._health(self._prober.latest, 0).status is HealthStatus.OK

    def _health(self, found: Sequence[Downstream], failed_runs: int) -> Health:
        state, reason = self._condition()
        problem = self._provider_problem()
        if not problem:
            self._disproved = ""
        return health_of(
            state,
            self._as_used(found),
            "" if problem == self._disproved else problem,
            reason,
            self._lacks,
            self._required,
            failed_runs=(failed_runs, self._last_fault),
            lock_changes=self._lock_changes(),
        )

    def _as_used(self, found: Sequence[Downstream]) -> tuple[Downstream, ...]:
        """The downstreams with the last real calls, and what the agent's connections say of them."""
        known = self._known
        return tuple(
            _with_connection(replace(each, last_call=self._calls.last(each.name)), known.get(each.name))
            for each in found
        )


def _with_connection(downstream: Downstream, connection: ServerConnection | None) -> Downstream:
    if connection is None:
        return downstream
    is_ok = downstream.reach is ProbeResult.OK
    is_used = is_ok and connection.needs_caller and connection.is_open
    is_known = downstream.detail == NOT_RUNNING and connection.error
    found = "" if is_used or is_known else downstream.detail
    return replace(
        downstream,
        connection=connection,
        detail=found or (str(connection) if is_ok else connection.error),
        problem=downstream.problem or (connection.problem if is_ok else ""),
    )
