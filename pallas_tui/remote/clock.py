"""Times of another machine on the clock of this one."""

from dataclasses import replace
from typing import Final

from pallas.model import Event, FleetSnapshot, Health, HealthChanged

TOLERANCE: Final = 2.0
"""Seconds by which clocks may differ before anything is shifted: that much is the network's."""


def skew_of(here: float, there: float) -> float:
    """Seconds to add to a time of over there; 0 where the clocks agree well enough."""
    return here - there if abs(here - there) > TOLERANCE else 0.0


def shift_event(event: Event, skew: float) -> Event:
    """The event at its time here."""
    if not skew:
        return event
    if isinstance(event, HealthChanged):
        return replace(event, at=event.at + skew, health=_health(event.health, skew))
    return replace(event, at=event.at + skew)


def shift_snapshot(snapshot: FleetSnapshot, skew: float) -> FleetSnapshot:
    """The snapshot with its times here; that of a downstream's last call stays as it is."""
    if not skew:
        return snapshot
    agents = tuple(
        replace(
            agent,
            since=agent.since + skew,
            health=_health(agent.health, skew),
            restart_at=_moved(agent.restart_at, skew),
        )
        for agent in snapshot.agents
    )
    servers = tuple(
        replace(server, since=server.since + skew, restart_at=_moved(server.restart_at, skew))
        for server in snapshot.servers
    )
    watch = snapshot.watch
    if watch is not None:
        last = replace(watch.last, at=watch.last.at + skew) if watch.last is not None else None
        watch = replace(watch, since=watch.since + skew, last=last)
    return replace(snapshot, since=snapshot.since + skew, agents=agents, servers=servers, watch=watch)


def _moved(at: float | None, skew: float) -> float | None:
    return None if at is None else at + skew


def _health(health: Health, skew: float) -> Health:
    return replace(health, since=health.since + skew, checked_at=health.checked_at + skew)
