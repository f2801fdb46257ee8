"""The registered instances: register, read, attach and detach, without the screen."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from pallas.model import AgentSnapshot, Fault, FaultType, Health
from pallas.safe_text import one_line

from ..mcp_link import McpLink
from .agent_poller import POLL_TIMEOUT, PolledConnection, PollPace
from .attached_snapshots import snapshot_of
from .health_metrics import HealthMetrics
from .instance_attachment import Connect, HealthGauge, InstanceAttachment
from .instance_model import RegisteredInstance, RegistryListing, Remote
from .instance_store import MAX_INSTANCES, InstanceStore, Saved
from .registry_address import document_url, label_of
from .registry_reader import read_registry

CLOSE_TIMEOUT: Final = 3.0
Read = Callable[[str], Awaitable[RegistryListing]]


@dataclass(eq=False, slots=True)
class _Entry:
    """An instance as it is kept; ``lock`` lets one thing be done with it at a time."""

    url: str
    label: str
    agents: InstanceAttachment
    attached: bool = False
    listing: RegistryListing = field(default_factory=RegistryListing)
    busy: str = ""
    problem: str = ""
    read_at: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    again: asyncio.Task[None] | None = None


class Instances:
    """Registers, attaches and polls the fleets of others (PI-14 to PI-16).

    All methods belong to one event loop. Those that can fail raise Fault, and an instance that could not be
    read keeps the reason as its ``problem``. ``read`` fetches a document, ``connect`` makes the connection
    to an agent, ``gauge`` the gauge at the first attaching, in place of that of ``metrics``; ``store`` None
    keeps nothing between two starts.
    """

    def __init__(
        self,
        *,
        store: InstanceStore | None = None,
        pace: PollPace | None = None,
        read: Read = read_registry,
        connect: Connect | None = None,
        gauge: Callable[[], HealthGauge] | None = None,
        metrics: HealthMetrics | None = None,
    ) -> None:
        self.pace = pace or PollPace()
        self.version = 0
        self._store = store
        self._read = read
        self._connect = connect or self._link
        self._make_gauge = gauge
        self._metrics = metrics or HealthMetrics()
        self._gauge: HealthGauge | None = None
        self._entries: dict[str, _Entry] = {}
        self._agents: tuple[int, tuple[AgentSnapshot, ...]] = (-1, ())
        self._saving = asyncio.Lock()
        self._closed = False

    # State

    def all(self) -> tuple[RegisteredInstance, ...]:
        """Every instance as it is now, in the order they were registered."""
        return tuple(_seen(entry) for entry in self._entries.values())

    def instance(self, url: str) -> RegisteredInstance | None:
        """One of them, by the URL of its document."""
        entry = self._entries.get(url)
        return None if entry is None else _seen(entry)

    def agents(self) -> tuple[AgentSnapshot, ...]:
        """The attached agents in the terms of the fleet, named ``id@label``; one tuple while unchanged."""
        if self._agents[0] != self.version:
            found = [
                snapshot_of(watch.agent, entry.label, watch.since, watch.health)
                for entry in self._entries.values()
                for watch in entry.agents.watches
            ]
            self._agents = self.version, tuple(found)
        return self._agents[1]

    def health(self, url: str, agent: str) -> Health | None:
        """What the last poll of an agent found; None when it is not attached or not polled yet."""
        entry = self._entries.get(url)
        watch = entry.agents.watch(agent) if entry is not None else None
        return None if watch is None else watch.health

    # What can be done

    def restore(self) -> tuple[str, ...]:
        """Load the saved instances and attach those that were attached; return the mistakes in the file.

        Returns at once. A registry that does not answer is asked again at each interval.
        """
        saved, mistakes = self._store.load() if self._store is not None else ((), ())
        for each in saved:
            if each.url not in self._entries:
                entry = self._add(each.url)
                entry.attached = each.attached
                if each.attached:
                    entry.again = asyncio.create_task(self._attach_again(entry), name=f"attach {entry.label}")
        self._changed()
        return mistakes

    async def serve_metrics(self) -> str:
        """Serve the health of attached agents if a port was given; return the mistake in it."""
        try:
            await self._metrics.serve()
        except Fault as fault:
            return fault.message
        return ""

    async def register(self, text: str) -> RegisteredInstance:
        """Read the registry that a person typed, and keep it when that went well."""
        url = document_url(text)
        self._check_new(url)
        listing = await self._read(url)
        self._check_new(url)  # typed twice while the first one was being read
        entry = self._add(url)
        self._take(entry, listing)
        await self._save()
        return _seen(entry)

    async def refresh(self, url: str) -> None:
        """Read the document again; of an attached instance also poll every agent now."""
        entry = self._entry(url)
        async with self._doing(entry, "reading"):
            await self._read_again(entry)
            if entry.attached:
                await self._watch(entry)
                await self._stop_trying(entry)
                entry.agents.poke()

    async def read_unread(self) -> None:
        """Read the saved instances that were not read in this process; failures become their ``problem``."""
        unread = [entry.url for entry in self._entries.values() if not (entry.read_at or entry.busy)]
        await asyncio.gather(*(self.refresh(url) for url in unread), return_exceptions=True)

    async def attach(self, url: str) -> None:
        """Read the document again and connect to every agent in it, however they are."""
        entry = self._entry(url)
        async with self._doing(entry, "attaching"):
            if entry.attached and entry.again is None:
                return
            await self._read_again(entry)
            entry.attached = True
            await self._watch(entry)
            await self._stop_trying(entry)
        await self._save()

    async def detach(self, url: str) -> None:
        """Let go of everything of this instance: connections, agents, health and gauge values."""
        entry = self._entry(url)
        await self._stop_trying(entry)
        async with self._doing(entry, "detaching"):
            await self._let_go(entry)
        await self._save()

    async def remove(self, url: str) -> None:
        """Detach it and forget it."""
        entry = self._entry(url)
        await self._stop_trying(entry)
        async with self._doing(entry, "removing"):
            await self._let_go(entry)
            del self._entries[url]
        await self._save()

    async def close(self) -> None:
        """End every poll and connection, within 3 s; registrations stay saved."""
        self._closed = True
        await self._metrics.close()
        entries = self._entries.values()
        tries = [entry.again for entry in entries if entry.again is not None]
        for task in tries:
            task.cancel()
        stops = [asyncio.create_task(entry.agents.end()) for entry in entries if entry.agents.watches]
        if tries or stops:
            await asyncio.wait({*tries, *stops}, timeout=CLOSE_TIMEOUT)
        for task in stops:
            task.cancel()

    # How it is done

    def _entry(self, url: str) -> _Entry:
        if (entry := self._entries.get(url)) is None:
            raise Fault(FaultType.CONFIG, f"{one_line(url)} is not registered; register it first.")
        return entry

    def _add(self, url: str) -> _Entry:
        label = label_of(url)
        entry = _Entry(url, label, InstanceAttachment(label, self.pace, self._connect, self._changed))
        self._entries[url] = entry
        return entry

    def _check_new(self, url: str) -> None:
        if url in self._entries:
            raise Fault(FaultType.CONFIG, f"{label_of(url)} is registered already; choose it in the list.")
        if len(self._entries) >= MAX_INSTANCES:
            raise Fault(
                FaultType.CONFIG, f"{MAX_INSTANCES} instances are registered; remove one of them first."
            )

    @asynccontextmanager
    async def _doing(self, entry: _Entry, what: str) -> AsyncIterator[None]:
        async with entry.lock:
            if self._entries.get(entry.url) is not entry or self._closed:
                raise Fault(FaultType.CONFIG, f"{entry.label} was removed in the meantime.")
            entry.busy = what
            self._changed()
            try:
                yield
            finally:
                entry.busy = ""
                self._changed()

    async def _read_again(self, entry: _Entry) -> None:
        try:
            listing = await self._read(entry.url)
        except Fault as fault:
            entry.problem = fault.message
            raise
        self._take(entry, listing)

    def _take(self, entry: _Entry, listing: RegistryListing) -> None:
        entry.listing, entry.problem, entry.read_at = listing, "", self.pace.clock()
        self._changed()

    async def _watch(self, entry: _Entry) -> None:
        if self._gauge is None:
            make = self._make_gauge
            self._gauge = await asyncio.to_thread(make) if make is not None else await self._metrics.gauge()
        await entry.agents.follow(entry.listing.agents, self._gauge)

    async def _let_go(self, entry: _Entry) -> None:
        entry.attached, entry.problem = False, ""
        await entry.agents.end()

    async def _attach_again(self, entry: _Entry) -> None:
        """Attach an instance that was attached when the workbench ended, as soon as its registry answers."""
        while True:
            try:
                async with self._doing(entry, "attaching"):
                    await self._read_again(entry)
                    await self._watch(entry)
            except Fault:
                await self.pace.wait(self.pace.interval)
            else:
                entry.again = None
                return

    async def _stop_trying(self, entry: _Entry) -> None:
        task, entry.again = entry.again, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _save(self) -> None:
        if self._store is None:
            return
        async with self._saving:
            saved = [Saved(entry.url, entry.attached) for entry in self._entries.values()]
            try:
                await asyncio.to_thread(self._store.save, saved)
            except OSError as error:
                raise Fault(
                    FaultType.CONFIG,
                    f"Done, but only until you quit: {self._store.path} cannot be written "
                    f"({one_line(str(error), 120)}). Fix that folder and try again.",
                ) from error

    def _link(self, url: str) -> PolledConnection:
        timeout = min(self.pace.timeout, POLL_TIMEOUT)
        return McpLink(url, connect_timeout=timeout, read_timeout=timeout)

    def _changed(self) -> None:
        self.version += 1


def _seen(entry: _Entry) -> RegisteredInstance:
    agents = tuple(
        Remote(agent, watch.since, watch.health) if (watch := entry.agents.watch(agent.id)) else Remote(agent)
        for agent in entry.listing.agents
    )
    return RegisteredInstance(
        url=entry.url,
        label=entry.label,
        attached=entry.attached,
        agents=agents,
        skipped=entry.listing.skipped,
        busy=entry.busy,
        problem=entry.problem,
        read_at=entry.read_at,
    )
