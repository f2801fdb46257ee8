"""The replicas of a fleet, as they were read last; nothing of the screen in here."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from pallas.model import Fault, FaultType, FleetPort, ReplicaRecord
from pallas.safe_text import one_line

MOST: Final = 200
"""Replicas that are listed at most."""


class ReplicaBook:
    """The oldest replicas of the fleet that ``port`` gives; ``has_more`` says that there are further ones.

    Every request to the fleet raises Fault.
    """

    def __init__(self, port: Callable[[], Any]) -> None:
        self._port = port
        self.listed: list[ReplicaRecord] = []
        self.has_more = False
        self.is_read = False

    async def refresh(self) -> None:
        """Read them again."""
        page = await self._fleet().replicas(MOST)
        self.listed, self.has_more = [safe(each) for each in page.items[:MOST]], bool(page.next)
        self.is_read = True

    async def drain(self, replica: str) -> None:
        """Have a replica drain and end."""
        await self._fleet().drain_replica(replica)

    @property
    def releases(self) -> set[str]:
        """The releases of the replicas that live."""
        return {each.release for each in self.listed if each.state != "dead"}

    def _fleet(self) -> FleetPort:
        port: FleetPort | None = self._port()
        if port is None:
            raise Fault(FaultType.TRANSPORT, "the fleet is not running")
        return port


def safe(record: ReplicaRecord) -> ReplicaRecord:
    """A replica whose texts can be shown."""
    return replace(
        record,
        id=one_line(record.id, 20),
        host=one_line(record.host, 100),
        release=one_line(record.release, 40),
    )


def words_of(record: ReplicaRecord) -> str:
    """What a filter looks in."""
    return f"{record.id} {record.host} {record.pid} {record.release} {record.state}".lower()
