"""How a project is served: one agent alone or all, where, and what is recorded."""

import os
from dataclasses import dataclass, replace

from pallas.config import Project


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """What is decided when a fleet is made."""

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


def records_wire(wanted: bool | None, dev: bool) -> bool:
    """Whether messages on the wire are recorded: as wanted, else by ``PALLAS_WIRE_RECORD``, else ``dev``."""
    if wanted is not None:
        return wanted
    said = os.environ.get("PALLAS_WIRE_RECORD", "").strip().lower()
    return said not in ("0", "false", "no", "off") if said else dev
