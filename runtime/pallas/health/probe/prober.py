"""Probes all downstreams of an agent at once, and not more often than needed."""

import asyncio
import functools
import logging
import ssl
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from time import monotonic, time
from typing import Final

import httpx2

from pallas.config.models import DownstreamConfig
from pallas.deadlines import cancel_and_wait
from pallas.model import Downstream, ProbeResult, ServerConnection
from pallas.safe_text import one_line

from .server_probe import TIMEOUT, Era, Finding, found, look, probe_client, unprobed
from .steady_state import Steady

log = logging.getLogger(__name__)

CACHE_SECONDS: Final = 10.0
NOT_RUNNING: Final = "its program could not be started or ended"
"""Of a downstream that agents could not connect, while its command can be executed."""
# Seconds a caller waits beyond a round's own deadline, if even the round is held up.
_LEEWAY: Final = 0.25
# The part of a round's time that a connection has to answer.
_CHECKED: Final = 0.9


class Prober:
    """Probes ``downstreams`` together and caches the result for ``CACHE_SECONDS`` (PI-10).

    One round runs at a time, no matter how many callers ask. It ends after ``timeout_s`` seconds; a
    downstream that has not answered by then is unreachable. Callers get the result itself; ``latest``, which
    the fleet shows, changes without flapping. Belongs to one event loop; close it there.

    A downstream that the agent is connected to is asked over that connection: ``check`` gets its name and the
    seconds that it has, and ``connections`` has what was found. Where none is open, or it fails, the
    downstream itself is probed; if that answers, ``check`` connects it.
    """

    def __init__(
        self,
        downstreams: Sequence[DownstreamConfig],
        *,
        timeout_s: float = TIMEOUT,
        clock: Callable[[], float] = monotonic,
        connections: Callable[[], Sequence[ServerConnection]] = lambda: (),
        check: Callable[[str, float], Awaitable[None]] | None = None,
    ) -> None:
        self._downstreams = tuple(downstreams)
        self._timeout_s = timeout_s
        self._clock = clock
        self._connections = connections
        self._check = check
        self._eras: dict[str, Era] = {}
        self._client: httpx2.AsyncClient | None = None
        self._found = tuple(unprobed(config) for config in self._downstreams)
        self._shown = self._found
        self._steady: dict[str, Steady[Downstream]] = {each.name: Steady() for each in self._downstreams}
        self._problems: frozenset[str] = frozenset()
        self._at: float | None = None
        self.began = 0.0
        """When the last round began, in Unix seconds."""
        self._round: asyncio.Task[None] | None = None
        self._late: set[asyncio.Task[Finding]] = set()
        self._closed = False

    @property
    def latest(self) -> tuple[Downstream, ...]:
        """Each downstream's state in the order given; ``unknown`` before the first round.

        Safe from any thread.

        A round that timed out or lost its connection changes this only if the next one confirms it, and one
        good round does not yet clear a bad one; refusals and HTTP errors count at once.
        """
        return tuple(self._corrected(each) for each in self._shown)

    @property
    def unconfirmed(self) -> bool:
        """Whether the last round found something that ``latest`` does not show yet."""
        return any(each.unconfirmed for each in self._steady.values())

    async def probe(self, problems: Collection[str] = (), *, fresh: bool = False) -> tuple[Downstream, ...]:
        """The current results, at most ``cache`` seconds old. Never raises; takes at most one round's time.

        ``problems`` names the downstreams that could not be connected when last used: that a command can be
        executed proves little if the program ends at once. ``fresh`` ignores the cache.
        """
        self._problems = frozenset(problems)
        known = not fresh and self._at is not None and self._clock() - self._at < CACHE_SECONDS
        if self._downstreams and not known and not self._closed:
            if self._round is None or self._round.done():
                self._round = asyncio.create_task(self._run(), name="probe downstreams")
            # A caller that is cancelled must not end the round of the others.
            await asyncio.wait({self._round}, timeout=self._timeout_s + _LEEWAY)
        return tuple(self._corrected(each) for each in self._found)

    async def close(self) -> None:
        """Cancel the probes under way and close the connections."""
        self._closed = True
        tasks: set[asyncio.Task[None] | asyncio.Task[Finding]] = {*self._late}
        if self._round is not None:
            tasks.add(self._round)
        await cancel_and_wait(*tasks, seconds=2.0)
        if self._client is not None:
            await self._client.aclose()

    async def _run(self) -> None:
        self.began = time()
        try:
            findings = await self._look()
        except (OSError, ValueError) as error:
            # For example no certificate store. Report it rather than guess.
            log.exception("downstreams cannot be probed")
            detail = f"cannot be probed ({type(error).__name__}); the log says why"
            findings = tuple(
                Finding(found(each, ProbeResult.UNREACHABLE, detail)) for each in self._downstreams
            )
        self._found = tuple(each.downstream for each in findings)
        self._shown = tuple(self._steadied(each) for each in findings)
        self._at = self._clock()

    def _steadied(self, finding: Finding) -> Downstream:
        downstream = finding.downstream
        good = downstream.reach is ProbeResult.OK
        steady = self._steady[downstream.name]
        return steady.take(downstream, downstream.reach, good=good, certain=finding.certain)

    async def _look(self) -> tuple[Finding, ...]:
        if self._client is None:
            self._client = probe_client(await asyncio.to_thread(certificates))
        client = self._client
        tasks = [
            asyncio.create_task(self._find(config, client), name=f"probe {config.name}")
            for config in self._downstreams
        ]
        # Late probes end a session that they opened themselves.
        self._late.update(tasks)
        for task in tasks:
            task.add_done_callback(self._late.discard)
        done, _ = await asyncio.wait(tasks, timeout=self._timeout_s)
        silence = f"no answer within {self._timeout_s:g} s"
        return tuple(
            task.result()
            if task in done
            else Finding(found(config, ProbeResult.UNREACHABLE, silence), certain=False)
            for config, task in zip(self._downstreams, tasks, strict=True)
        )

    async def _find(self, config: DownstreamConfig, client: httpx2.AsyncClient) -> Finding:
        """Find the state of one downstream, over the agent's own connection if there is one."""
        now = self._connection(config.name)
        if self._check is not None and now is not None and now.is_open and not now.needs_caller:
            await self._check(config.name, self._timeout_s * _CHECKED)
            now = self._connection(config.name)
            if now is not None and now.is_open and now.checked == "answers":
                return Finding(found(config, ProbeResult.OK))
            if now is not None and now.is_open and now.checked == "silent":
                silence = f"no answer within {self._timeout_s:g} s"
                return Finding(found(config, ProbeResult.UNREACHABLE, silence), certain=False)
        finding = await look(config, client, self._eras, self._timeout_s)
        if now is not None and now.is_open and now.needs_caller and finding.refuses_strangers:
            return Finding(found(config, ProbeResult.OK))  # the probe has no token, and callers have
        if finding.downstream.reach is not ProbeResult.OK or config.transport == "stdio":
            return finding
        now = self._connection(config.name)
        if self._check is None or now is None or now.needs_caller:
            return finding
        if not now.is_open:  # it is back
            await self._check(config.name, self._timeout_s * _CHECKED)
            now = self._connection(config.name) or now
        if now.is_open and now.checked != "failed":
            return finding
        how = "fails the agent's connection" if now.is_open else "is not connected"
        lost = found(config, ProbeResult.UNREACHABLE, f"it answers, but {how}: {now.error}")
        return Finding(lost, certain=False)

    def _connection(self, server: str) -> ServerConnection | None:
        name = one_line(server, 80)
        return next((each for each in self._connections() if each.server == name), None)

    def _corrected(self, downstream: Downstream) -> Downstream:
        failed = downstream.name in self._problems and downstream.transport == "stdio"
        if failed and downstream.reach is ProbeResult.OK:
            return replace(downstream, reach=ProbeResult.UNREACHABLE, detail=NOT_RUNNING)
        return downstream


@functools.cache
def certificates() -> ssl.SSLContext:
    """One certificate store for all agents.

    Reading it takes tens of milliseconds, so never do that in the loop.
    """
    return httpx2.create_ssl_context()
