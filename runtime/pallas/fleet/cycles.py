"""Cycles of agents that ask each other: all instances of an agent wait for one more of it."""

from pallas.model import Fault, FaultType

from .context import FleetContext


def waiting_above(context: FleetContext, run_id: str, agent: str) -> tuple[str, ...]:
    """Return the agents that wait for what a run asks of ``agent``, the outermost first.

    Raises Fault (UPSTREAM) where it could never answer: each of its instances waits for this one, and none
    becomes free before a run times out, minutes later.
    """
    run = context.kernel.in_flight.get(run_id)
    if run is None:
        return ()
    waiting = (*run.above, run.agent)
    found = context.agents.get(agent)
    if found is not None and found.config.kind == "llm":
        most = found.config.max_instances
        if waiting.count(agent) >= most:
            raise Fault(
                FaultType.UPSTREAM,
                f"{agent} asks itself through other agents: all of its {most} instances wait for this one; "
                "end it earlier, or raise max_instances",
            )
    return waiting
