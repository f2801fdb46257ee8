"""How a project is served: all agents or one, at which address, with or without a record."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from pallas.config import Project
from pallas.executors.faults.fault_injection import FaultInjection
from pallas.model import LockMode

from .reload.verdict_judge import VerdictJudge
from .worker_process import WorkerProcess


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """The options of a fleet, fixed when it is made."""

    bind: str
    """The address that every port is bound to."""
    only: str | None = None
    """The one agent that is served: without a registry and without dependencies (PR-4)."""
    watch: bool = False
    """Whether changed files are applied by themselves."""
    worker: WorkerProcess | None = None
    """This process, where it is one of several that serve the project."""
    end_process: Callable[[], None] | None = None
    """Has this process drain the fleet and end, as SIGTERM does; None in a workbench."""

    faults: FaultInjection | None = None
    """What injects faults into calls of models and tools."""
    judge: VerdictJudge | None = None
    """What judges recorded runs after a save."""
    lock_mode: LockMode = "hold"
    """What a difference from ``tools.lock`` does where the project does not say."""

    @property
    def runs_programs(self) -> bool:
        """Whether what exists once in a project runs in this process."""
        return self.only is None and (self.worker is None or self.worker.is_first)


def lock_mode_of(dev: bool) -> LockMode:
    """What a difference from ``tools.lock`` does where the project does not say."""
    return "warn" if dev else "hold"


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
