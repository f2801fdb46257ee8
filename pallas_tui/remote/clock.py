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
        replace(agent, since=agent.since + skew, health=_health(agent.health, skew))
        for agent in snapshot.agents
    )
    return replace(snapshot, since=snapshot.since + skew, agents=agents)


def _health(health: Health, skew: float) -> Health:
    return replace(health, since=health.since + skew, checked_at=health.checked_at + skew)
