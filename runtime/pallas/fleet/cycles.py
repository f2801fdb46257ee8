"""Agents that ask themselves, by way of others: where all of an agent's instances wait for one more of it."""

from typing import TYPE_CHECKING

from pallas.model import Fault, FaultType

if TYPE_CHECKING:
    from .fleet import Fleet


def above(fleet: "Fleet", run_id: str, agent: str) -> tuple[str, ...]:
    """The agents that wait for what a run asks of ``agent``, the outermost first.

    Raises Fault (UPSTREAM) where that could never be answered: each instance that it has waits for this one,
    and none would become free before a run is tired of waiting, minutes later.
    """
    run = fleet.kernel.in_flight.get(run_id)
    if run is None:
        return ()
    waiting = (*run.above, run.agent)
    found = fleet._members.by_name.get(agent)
    if found is not None and found.config.kind == "llm":
        most = found.config.max_instances
        if waiting.count(agent) >= most:
            raise Fault(
                FaultType.UPSTREAM,
                f"{agent} asks itself, by way of others: all of its {most} instances wait for this one; "
                "end it earlier, or raise max_instances",
            )
    return waiting
