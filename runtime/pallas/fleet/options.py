"""How a project is served: all agents or one, at which address, with or without a record."""

import os
from dataclasses import dataclass, replace

from pallas.config import Project


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """The options of a fleet, fixed when it is made."""

    bind: str
    """The address that every port is bound to."""
    only: str | None = None
    """The one agent that is served: without a registry and without dependencies (PR-4)."""
    watch: bool = False
    """Whether changed files are applied by themselves."""


def served_project(project: Project, only: str | None) -> Project:
    """The project as it is served: with ``only``, at that agent's own port alone, if it has one."""
    if only and project.agents[only].port:
        return replace(project, port=None, public_url="")
    return project


def records_wire(requested: bool | None, dev: bool) -> bool:
    """Whether messages on the wire are recorded: as wanted, else by ``PALLAS_WIRE_RECORD``, else ``dev``."""
    if requested is not None:
        return requested
    setting = os.environ.get("PALLAS_WIRE_RECORD", "").strip().lower()
    return setting not in ("0", "false", "no", "off") if setting else dev
