"""What was read of an agent's resources by hand, and the subscriptions to them, while its screen is open."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from textual.widget import Widget
from textual.worker import Worker

from pallas.model import Fault, FleetPort, ResourceReading
from pallas.safe_text import one_line

from ...text import Glyphs, clock, count
from ..tones import DIM, STRONG
from .tool_rows import ToolRow

_DEADLINE_S: Final = 60.0
_MAX_READINGS: Final = 50
Key = tuple[str, str]
"""A server and the URI of its resource."""


@dataclass(frozen=True, slots=True)
class SeenResource:
    """A resource as it was read last. ``problem`` says why it was not read, or is no longer followed."""

    reading: ResourceReading | None = None
    problem: str = ""
    is_busy: bool = False
    is_followed: bool = False

    @property
    def about(self) -> str:
        """A few words on the state of a subscription; empty without one."""
        if self.problem and not self.is_followed:
            return self.problem
        if not self.is_followed:
            return ""
        reading = self.reading
        if reading is None:
            return "subscribing"
        if reading.updated_at is None:
            return "subscribed"
        return f"updated {clock(reading.updated_at)}, {count(reading.updates, 'update')}"


NOT_READ: Final = SeenResource()


class ResourceReadings:
    """Reads resources and follows them, in workers of ``owner``, which end with it."""

    def __init__(self, owner: Widget, agent: str, changed: Callable[[], None]) -> None:
        self._owner = owner
        self._agent = agent
        self._changed = changed
        self._seen: dict[Key, SeenResource] = {}
        self._workers: dict[Key, Worker[None]] = {}

    def of(self, row: ToolRow) -> SeenResource:
        """What is known of the resource of a row."""
        return self._seen.get(_key(row), NOT_READ)

    def read(self, fleet: FleetPort, row: ToolRow) -> None:
        """Read it once; one that is followed is read with each update anyway."""
        if not self.of(row).is_followed and not self.of(row).is_busy:
            self._work(row, self._read(fleet, _key(row)), "read")

    def toggle(self, fleet: FleetPort, row: ToolRow) -> None:
        """Subscribe to it, or unsubscribe from it."""
        key = _key(row)
        if self.of(row).is_followed:
            self._workers.pop(key).cancel()
            self._put(key, is_followed=False)
        else:
            self._put(key, is_followed=True, problem="")
            self._work(row, self._follow(fleet, key), "follow")

    def _work(self, row: ToolRow, work: object, verb: str) -> None:
        key = _key(row)
        if (before := self._workers.pop(key, None)) is not None:
            before.cancel()
        self._workers[key] = self._owner.run_worker(
            work,  # type: ignore[arg-type]
            group="resources",
            exit_on_error=False,
            description=f"{verb} {one_line(key[1], 60)}",
        )

    async def _read(self, fleet: FleetPort, key: Key) -> None:
        self._put(key, is_busy=True)
        try:
            async with asyncio.timeout(_DEADLINE_S):
                found = await fleet.read_resource(self._agent, *key)
        except Exception as error:
            self._put(key, is_busy=False, problem=_why(error))
        else:
            self._put(key, is_busy=False, problem="", reading=found)

    async def _follow(self, fleet: FleetPort, key: Key) -> None:
        """Subscribe, and ask for updates one call after the other; a call that is cancelled unsubscribes."""
        id_, after = "", 0
        try:
            while True:
                async with asyncio.timeout(_DEADLINE_S):
                    found = await fleet.follow_resource(self._agent, *key, id_, after)
                if found.updates > after or not id_:
                    self._put(key, reading=found, problem=found.problem)
                id_, after = found.subscription, found.updates
        except Exception as error:
            self._put(key, is_followed=False, problem=f"unsubscribed: {_why(error)}")

    def _put(self, key: Key, **changes: object) -> None:
        self._seen[key] = replace(self._seen.pop(key, NOT_READ), **changes)  # type: ignore[arg-type]
        for old in [each for each, seen in self._seen.items() if not seen.is_followed][:-_MAX_READINGS]:
            del self._seen[old]
        if self._owner.is_attached:
            self._changed()


def about_resource(row: ToolRow, seen: SeenResource, glyphs: Glyphs) -> list[tuple[str, str]]:
    """A resource with its contents, as far as they were read."""
    resource = row.resource
    assert resource is not None
    size = f"{resource.size:,} bytes" if resource.size is not None else ""
    facts = ", ".join(filter(None, (resource.media_type, size)))
    parts = [(resource.title or resource.name, STRONG), (resource.uri, DIM), (facts, DIM)]
    parts = [part for part in parts if part[0]]
    if resource.description:
        parts += [("", ""), (resource.description, "")]
    parts.append(("", ""))
    if seen.is_followed:
        parts.append((f"{glyphs.ok} {seen.about}", "$text-success"))
    if seen.problem:
        parts.append((seen.problem, "$text-error"))
    if seen.is_busy:
        parts.append((f"reading{glyphs.ellipsis}", DIM))
    elif seen.reading is None and not seen.is_followed:
        more = "; w subscribes to it." if row.server.subscribes else "."
        parts.append((f"enter reads it{more}", DIM))
    if (reading := seen.reading) is not None:
        parts += [(f"read {clock(reading.at)}", DIM), ("", ""), (reading.text or "It is empty.", "")]
    return parts


def _key(row: ToolRow) -> Key:
    assert row.resource is not None
    return row.server.server, row.resource.uri


def _why(error: Exception) -> str:
    if isinstance(error, Fault):
        return error.message
    if isinstance(error, TimeoutError):
        return f"no answer within {_DEADLINE_S:.0f} s"
    return f"the call failed: {type(error).__name__}"  # a fleet elsewhere may fail in ways of its own
