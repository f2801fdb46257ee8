"""How a project is served: one agent alone or all, from where, and with what is kept of it."""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pallas.config import Project


def alone(project: Project, only: str | None) -> Project:
    """The project as one is served that serves ``only`` this agent: at its own port alone, if it has one."""
    if only and project.agents[only].port:
        return replace(project, port=None, public_url="")
    return project


def keeps_wire(wanted: bool | None, dev: bool) -> bool:
    """Whether what goes over the wire is kept: as wanted, else by ``PALLAS_WIRE_RECORD``, else ``dev``."""
    if wanted is not None:
        return wanted
    said = os.environ.get("PALLAS_WIRE_RECORD", "").strip().lower()
    return said not in ("0", "false", "no", "off") if said else dev


class WorkingFolder:
    """The working directory of this process, while a fleet has it."""

    def __init__(self) -> None:
        self._came_from: Path | None = None

    def enter(self, root: Path) -> None:
        """Go to the project's folder."""
        with suppress(OSError):  # it may be gone
            self._came_from = Path.cwd()
        os.chdir(root)

    def leave(self, root: Path) -> None:
        """Go back, unless somebody else has gone on from there."""
        with suppress(OSError):  # either folder may be gone by now
            if self._came_from and Path.cwd().samefile(root):
                os.chdir(self._came_from)
