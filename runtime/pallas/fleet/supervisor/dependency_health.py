"""Agents that others depend on: when one of those failed, the others say so in their health."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from pallas.health.probe import Lack
from pallas.model import AgentChanged, AgentState, Event
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub

from ..agent import FleetAgent

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1", "0.0.0.0"})
_MAX_REASON: Final = 200


class DependencyHealth:
    """Tells each agent of a fleet which others it lacks. Belongs to the fleet's event loop; close it.

    An agent needs those it depends on and those it calls over MCP. It lacks one that failed, until that takes
    runs again, and one that was stopped by hand; one that starts for the first time is only waited for.
    """

    def __init__(self, agents: Callable[[], Sequence[FleetAgent]], hub: EventHub) -> None:
        self._agents = agents
        self._pending: asyncio.Handle | None = None
        self._unlisten = hub.listen(self._hear)

    def close(self) -> None:
        """Stop listening."""
        self._unlisten()
        if self._pending is not None:
            self._pending.cancel()

    def _hear(self, event: Event) -> None:
        # Once for however many agents change in the same moment, and after what tells of it is through.
        if isinstance(event, AgentChanged) and self._pending is None:
            with suppress(RuntimeError):  # the loop has ended
                self._pending = asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._pending = None
        agents = {agent.name: agent for agent in self._agents()}
        troubles = {name: trouble for name, agent in agents.items() if (trouble := trouble_of(agent))}
        places = {place: name for name, agent in agents.items() for place in _places(agent.url)}
        for agent in agents.values():
            leads = {
                config.name: places[place]
                for config in agent.watched.watched
                if (place := _place(config.url)) in places
            }
            needed = dict.fromkeys((*agent.config.depends_on, *leads.values()))
            agent.watched.lack(
                tuple(
                    Lack(
                        name,
                        troubles[name],
                        frozenset(server for server, leads_to in leads.items() if leads_to == name),
                    )
                    for name in needed
                    if name in troubles and name != agent.name
                )
            )


def trouble_of(agent: FleetAgent) -> str:
    """Return the problem of an agent that others need, in one line; empty if there is none."""
    if agent.state is AgentState.STOPPED:
        return one_line(agent.reason, _MAX_REASON)  # without a reason it is only being restarted
    state = agent.state
    if state in (AgentState.IMPORTING, AgentState.CONNECTING) and agent.supervisor.crashes:
        state = AgentState.BACKOFF  # to its dependants an attempt is no difference
    if state in (AgentState.ERROR, AgentState.BACKOFF, AgentState.CRASH_LOOP):
        reason = one_line(agent.reason, _MAX_REASON)
        return f"{state.value} ({reason})" if reason else state.value
    return ""


def _places(url: str) -> tuple[tuple[int, str], ...]:
    place = _place(url)
    return (place,) if place is not None else ()


def _place(url: str) -> tuple[int, str] | None:
    """Port and path of a URL on this machine, None for any other."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return (port, parts.path.rstrip("/")) if port is not None and host in _LOOPBACK else None
