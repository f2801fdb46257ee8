"""Makes what the parts of a fleet share, and connects it."""

from pallas.config import Project
from pallas.model.host_places import HostPlaces
from pallas.runs.kernel import Kernel
from pallas.surfaces.auth.inbound_auth import Inbound
from pallas.surfaces.session_seal import seal_of_database
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.step_record import StepRecord
from pallas.telemetry.wire_record import WireRecord

from .context import AgentTable, CurrentProject, FleetContext, Lifecycle
from .delegation import DelegatedCalls
from .options import FleetOptions, records_wire
from .startup import is_loopback


def new_context(
    project: Project,
    options: FleetOptions,
    hub: EventHub | None,
    dev: bool,
    record: bool | None,
    database: str | None,
) -> FleetContext:
    """What the parts of a new fleet share."""
    hub = hub or EventHub()
    agents, current = AgentTable(), CurrentProject(project)
    steps = StepRecord(prices=current.prices, places=HostPlaces.of(project.root))
    kernel = Kernel(hub, wire=WireRecord() if records_wire(record, dev) else None, steps=steps)
    calls = DelegatedCalls(kernel.in_flight, agents)
    worker = options.worker
    inbound = Inbound(
        dev=dev,
        loopback=is_loopback(options.bind),
        is_run_call=calls.is_requested_by_run,
        session_seal=worker.seal if worker is not None else seal_of_database(database),
        own_token=worker.own_token if worker is not None else "",
    )
    inbound.adopt(project)
    kernel.in_flight.leads_to = calls.leads_to
    kernel.questions.adopt(lambda: inbound.grants, lambda: current.project.approvals)
    return FleetContext(options, hub, kernel, inbound, current, Lifecycle(current, hub), agents)
