"""A primary and its standby. The primary is killed, the standby is promoted, and gets a standby of its own.

What a primary had committed when it died, and its standby had not, is read from the data that the dead one
left: that, and nothing else, may be missing where replication is asynchronous.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from .audit import rows
from .database import PostgresServer

FOLLOW_SECONDS: Final = 60.0
_PAUSE: Final = 0.1
# The name that PostgreSQL gives the connection of a standby; that of a base backup does not count.
_STANDBY: Final = "walreceiver"
_SENDER: Final = (
    f"SELECT pid, state, sync_state FROM pg_stat_replication WHERE application_name = '{_STANDBY}'"
)
_ASKED: Final = "SELECT run_id, content FROM messages WHERE role = 'user'"
_SESSIONS: Final = "SELECT id FROM sessions"
# What belongs to a run, in a form that is different for each row and each of its changes.
_OF_RUNS: Final = """
    SELECT coalesce(body ->> 'run_id', body ->> 'id') AS run, n || ' ' || at AS row FROM chaos.audit
    WHERE what IN ('runs', 'messages', 'call_results')
    UNION ALL
    SELECT run_id, 'event ' || seq FROM run_events
"""


@dataclass(slots=True)
class Loss:
    """What was lost with primaries: rows and changes of ``runs``, whose messages are in ``run_of``.

    ``rows`` has their number for each promotion. ``sessions`` are those of the bridge.
    """

    rows: list[int] = field(default_factory=list)
    runs: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)
    run_of: dict[str, str] = field(default_factory=dict)


class Cluster:
    """The two servers, at two addresses. Each of them is the primary at times."""

    def __init__(self, ports: Sequence[int], *, is_synchronous: bool, lag: float) -> None:
        self._ports, self._lag = list(ports), lag
        self._settings = {"synchronous_standby_names": _STANDBY} if is_synchronous else {}
        self.loss = Loss()
        self.primary = PostgresServer(port=self._ports[0])
        self.standby: PostgresServer | None = None

    async def begin(self) -> None:
        """Add the standby, then wait for it at each commit if that is the setting."""
        await self._add_standby(self._ports[1])
        if self._settings:
            await asyncio.to_thread(self.primary.stop, "fast")
            self.primary.settings = self._settings
            await asyncio.to_thread(self.primary.start)
            await self._followed()

    def url(self, user: str) -> str:
        """The address of both, of which the primary is meant."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"postgresql://{user}@{hosts}/postgres?target_session_attrs=read-write"

    async def promote(self) -> None:
        """Kill the primary after the lag, promote the standby, and make another one."""
        dead, heir = self.primary, self.standby
        assert heir is not None
        for sender in await self._senders():
            # What is committed from now on stays with the primary.
            with suppress(ProcessLookupError):
                os.kill(sender, signal.SIGSTOP)
        await asyncio.sleep(self._lag)
        await asyncio.to_thread(dead.kill)
        await rows(heir.url(), "SELECT pg_promote(true, 60)")
        self.primary, self.standby = heir, None
        await self._add_standby(dead.port)
        try:
            await self._read(dead)
        finally:
            await asyncio.to_thread(dead.close)

    async def close(self) -> None:
        """Leave nothing of them."""
        for each in (self.standby, self.primary):
            if each is not None:
                await asyncio.to_thread(each.close)

    async def _add_standby(self, port: int) -> None:
        self.standby = await asyncio.to_thread(
            PostgresServer, port=port, primary=self.primary, settings=self._settings
        )
        await self._followed()

    async def _followed(self) -> None:
        wanted = "sync" if self._settings and self.primary.settings else "async"
        until = monotonic() + FOLLOW_SECONDS
        while monotonic() < until:
            found = await rows(self.primary.url(), _SENDER)
            if [(each["state"], each["sync_state"]) for each in found] == [("streaming", wanted)]:
                return
            await asyncio.sleep(_PAUSE)
        raise SystemExit(f"the standby did not follow its primary within {FOLLOW_SECONDS:g} s")

    async def _senders(self) -> list[int]:
        return [each["pid"] for each in await rows(self.primary.url(), _SENDER)]

    async def _read(self, dead: PostgresServer) -> None:
        """Compare what the dead primary has with what its heir has."""
        await asyncio.to_thread(dead.start, is_alone=True)
        there, here = dead.url(), self.primary.url()
        had = {(each["run"], each["row"]) for each in await rows(there, _OF_RUNS)}
        lost = had - {(each["run"], each["row"]) for each in await rows(here, _OF_RUNS)}
        self.loss.rows.append(len(lost))
        runs = {run for run, _ in lost if run}
        self.loss.runs |= runs
        for each in await rows(there, _ASKED):
            if each["run_id"] in runs:
                self.loss.run_of[each["content"]] = each["run_id"]
        sessions = [
            {each["id"] for each in await rows(url, "SELECT id FROM sessions")} for url in (there, here)
        ]
        self.loss.sessions |= sessions[0] - sessions[1]
