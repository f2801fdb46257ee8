"""Calls of agents by agents: whether a run in flight asked for one."""

from collections.abc import Callable

from pallas.config.delegation import leads_to
from pallas.model import TraceContext
from pallas.runs.in_flight import InFlight

from .agent import FleetAgent


class Delegations:
    """What the runs of a fleet ask of its other agents."""

    def __init__(self, runs: InFlight, find: Callable[[str], FleetAgent | None]) -> None:
        self._runs = runs
        self._find = find

    def asked_for(self, agent: str, trace: TraceContext | None) -> bool:
        """Whether a run in flight calls this very agent, now, with that span.

        The span alone is not enough: other downstreams, which are told of theirs as well, could show it here.
        The one that is called must be at the agent's address.
        """
        if trace is None:
            return False
        for run in self._runs:
            server = run.called(trace)
            if server is None:
                continue
            caller = self._find(run.agent)
            return caller is not None and _is_at(caller, server, agent)
        return False


def _is_at(caller: FleetAgent, server: str, agent: str) -> bool:
    definition = caller.config.definition
    own = {each.name: each for each in definition.own_servers} if definition is not None else {}
    downstream = own.get(server) or caller.project.downstreams.get(server)
    return downstream is not None and leads_to(downstream.url, agent, caller.project)
