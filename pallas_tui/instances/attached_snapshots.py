"""An attached agent as a snapshot of the fleet, so that every view of agents can show it."""

from typing import Final

from pallas.model import AgentSnapshot, AgentState, Health, HealthStatus

from ..state import port_of
from .instance_model import RegistryAgent

_AT: Final = "@"


def snapshot_of(agent: RegistryAgent, label: str, since: float, health: Health | None) -> AgentSnapshot:
    """The agent as the chat takes it, named ``id@label``: ready as soon as it was polled once (PI-17).

    Where the registry does not say whether an agent has vision, it is taken to have: the agent itself
    says no to an image then.
    """
    return AgentSnapshot(
        name=attached_name(agent.id, label),
        title=agent.title,
        description=agent.description,
        state=AgentState.CONNECTING if health is None else AgentState.READY,
        since=since,
        health=health or Health(HealthStatus.ERROR, "not polled yet"),
        port=port_of(agent.url) or 0,
        url=agent.url,
        model=agent.model,
        vision=agent.vision is not False,
    )


def attached_name(agent: str, label: str) -> str:
    """What the agent of that id, of the instance with that label, is called in the workbench."""
    return f"{agent}{_AT}{label}"


def is_attached_name(name: str) -> bool:
    """Whether a name is that of an agent of another instance; no agent of a project has one like it."""
    return _AT in name
