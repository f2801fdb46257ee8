"""The reloader of a fleet, and the ground that it works on."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pallas.config import Project
from pallas.model import FleetState

from .agent_control import AgentControl
from .programs import Program
from .reload.applier import ReloadContext
from .reload.reloader import Reloader
from .start_order import StartOrder

if TYPE_CHECKING:
    from .fleet import Fleet


def reloader_of(
    fleet: "Fleet",
    *,
    control: AgentControl,
    order: StartOrder,
    programs: dict[str, Program],
    check_providers: Callable[[Project], object],
    read: Callable[[Project], Project],
    script: Callable[[Any], None],
    only: str | None,
) -> Reloader:
    """``read`` takes a project in that was just read; ``script`` the offline model's, where that changed."""
    ground = ReloadContext(
        project=lambda: fleet.project,
        adopt=partial(setattr, fleet, "project"),
        now=fleet.made.now,
        hub=fleet.hub,
        members=fleet._members,
        control=control,
        start=lambda agent: order.start(agent, alone=bool(only)),
        programs=programs,
        make_program=lambda config: Program(config, fleet.hub),
        check_providers=check_providers,
    )
    return Reloader(
        ground,
        wanted=read,
        script=script,
        running=lambda: fleet.state is FleetState.RUNNING,
        only=only,
    )
