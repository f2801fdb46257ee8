"""Opens the accounts of runs that begin."""

from pallas.limits.spending import RunMeter, Spending
from pallas.model import LoopStopped, RunRequest
from pallas.runs.in_flight import InFlight
from pallas.runs.run import ActiveRun


def meter_of(
    spending: Spending | None, run: ActiveRun, request: RunRequest, in_flight: InFlight
) -> RunMeter | None:
    """The meter of a run that begins; its accounts are those of the run that asks for it, too."""
    if spending is None:
        return None
    is_below = bool(run.caused_by) and spending.of(run.caused_by) is not None
    run.meter = spending.open(
        run.id,
        run.agent,
        request.principal.id,
        above=run.caused_by,
        # A server that was called knows the span, too: its own questions are not those of the run's caller.
        for_caller=is_below and any(each.id == run.caused_by for each in in_flight.chain(run.id)),
        asked=request.limits,
        used=run.said.spent if run.said is not None and run.before is not None else None,
    )
    return run.meter


def tell_limit(run: ActiveRun) -> None:
    """Publish that a limit ended a run."""
    if run.meter is not None and (reached := run.meter.reached) is not None:
        limit = str(reached.data["limit"])
        run.emit(LoopStopped(run_id=run.id, agent=run.agent, reason="limit", count=run.steps, limit=limit))
