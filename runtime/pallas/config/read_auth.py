"""``auth:`` of the project and of its agents."""

from dataclasses import dataclass
from pathlib import Path

from .auth import AuthConfig
from .section import Section
from .where import Where


@dataclass(frozen=True, slots=True)
class AgentAuth:
    """``auth:`` of one agent alone, before the project's is laid under it."""

    where: Where


def read_auth(top: Section, root: Path) -> AuthConfig | None:
    """``auth:`` at the top; None where there is none."""
    if "auth" in top:
        top.error("auth", "is not there yet", "leave it out")
    return None


def read_agent_auth(section: Section) -> AgentAuth | None:
    """``auth:`` of an agent; None where there is none."""
    if "auth" in section:
        section.error("auth", "is not there yet", "leave it out")
    return None


def auth_of(project: AuthConfig | None, agent: AgentAuth | None) -> AuthConfig | None:
    """What holds for an agent."""
    return project
