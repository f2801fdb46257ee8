"""A fleet that runs a recorded question again, with a recording in place of models and MCP servers.

With all of them live it goes on from a step of a recording.
"""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from time import perf_counter
from typing import Final, Self

from pallas.config import Project
from pallas.config.delegation import leads_to
from pallas.config.models import ScriptedConfig
from pallas.config.network import AGENTS
from pallas.config.ports import free_port
from pallas.executors.faults.fault_injection import current_injection
from pallas.executors.replay.replay import REFUSED, Admit, Replay, ReplayPlan, missed_call
from pallas.model import AgentState, Event, Fault, FaultType, Params, Recording, RunRequest, RunStarted, Step
from pallas.model.dated_template import DatedTemplate
from pallas.model.fault_rules import FaultPlan
from pallas.model.host_places import HostPlaces
from pallas.model.ids import mint_run
from pallas.prices.price_book import PriceBook
from pallas.recordings.nested_runs import RecordedCall
from pallas.recordings.replay_check import ReplayDifference, Templates, first_replay_difference, first_unused
from pallas.recordings.sent_history import sent_history
from pallas.runs.in_flight import InFlight
from pallas.runs.run_recording import portable_recording
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.trace_context import child_of
from pallas.tools_lock.lock_file import read_lock
from pallas.tools_lock.surface import Surface

from .asked_servers import AskedServer, AskedServers
from .changed_servers import changed_servers, offer_changes, unknown_offers
from .fleet import Fleet

SURFACE: Final = "replay"
"""The surface of a run that replays another one."""
_LOOPBACK: Final = "127.0.0.1"
_IN_MEMORY: Final = "memory"
_MAX_CHANGES: Final = 5
"""Changes of what servers offer that are named."""
_PLAIN: Final = re.compile("[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """What became of a replay. ``recording`` is that of the replayed run, ``fault`` why it failed.

    ``difference`` is the first one to the recording, ``unused`` the first recorded step that was not needed;
    with ``is_miss`` something was asked that is not in it, or a changed server could not be asked.
    ``missed`` is the request of a call that is not in it. ``asked`` are the steps for which a model was asked
    for real, and ``refusal`` is why one was not.
    """

    recording: Recording
    seconds: float
    fault: str = ""
    is_miss: bool = False
    difference: ReplayDifference | None = None
    unused: ReplayDifference | None = None
    missed: str = ""
    asked: tuple[Step, ...] = ()
    refusal: str = ""

    @property
    def is_same(self) -> bool:
        """Whether steps and answer are those of the recording."""
        return not self.is_miss and self.difference is None and self.unused is None


class ReplayFleet:
    """A project's fleet in the running event loop, for replays of one recording or several at a time.

    Its ledger is in memory, its port a free one of loopback, and it asks nobody for a token, as `pallas dev`.
    """

    def __init__(
        self, fleet: Fleet, replay: Replay, recorded: Recording, asked: Mapping[str, AskedServer]
    ) -> None:
        self._fleet = fleet
        self._replay = replay
        self._recorded = recorded
        self._places = HostPlaces.of(fleet.project.root)
        self._asked = asked

    @property
    def hub(self) -> EventHub:
        """Its events."""
        return self._fleet.hub

    @property
    def prices(self) -> PriceBook:
        """What models cost today."""
        return self._fleet.context.current.prices

    @property
    def port(self) -> int:
        """The port of loopback where its agents are reached."""
        return self._fleet.project.registry_port

    @property
    def templates(self) -> Templates:
        """The templates of instructions that name the date, by agent, with marks as in recordings."""
        return {
            agent: tuple(DatedTemplate(self._places.marked(each.text)) for each in templates)
            for agent, templates in self._replay.templates.items()
        }

    def trouble_of(self, agent: str) -> str:
        """Why an agent of it cannot answer; empty for one that can, and one that it does not have."""
        known = self._fleet.context.agents.get(agent)
        if known is None or known.state is AgentState.READY:
            return ""
        return known.reason or known.state.value

    @property
    def runs_in_flight(self) -> InFlight:
        """Its runs that are not over."""
        return self._fleet.kernel.in_flight

    @classmethod
    @asynccontextmanager
    async def started(
        cls,
        project: Project,
        plan: ReplayPlan,
        servers: AskedServers | None = None,
        admit: Admit | None = None,
    ) -> AsyncIterator[Self]:
        """Start it with the agents of ``project``, and stop it when the block ends. Raises Fault.

        ``servers`` asks those that have changed since the recording, and remembers what they said. ``admit``
        is called before a model is asked for real; it raises Fault to refuse that.
        """
        port, recorded = free_port(), plan.recording
        plan = replace(plan, recording=HostPlaces.of(project.root).all_placed(recorded))
        offered = await asyncio.to_thread(_offered, project)
        plan = replace(plan, agents_at=dict(_agents_at(project, port, plan.answered)), offered=offered)
        changed = await asyncio.to_thread(changed_servers, project, plan)
        asked = await (servers or AskedServers()).ask(project, changed) if changed else {}
        plan = replace(
            plan, asked={name: each.offer for name, each in asked.items() if each.offer is not None}
        )
        replay = Replay(plan)
        replay.admit = admit
        fleet = Fleet(
            _replayed(project, plan, port), dev=True, record=False, database=_IN_MEMORY, faults=FaultPlan(())
        )
        replay.call_of = lambda run_id: _call_of(fleet.kernel.in_flight, run_id)
        replay.install()
        try:
            await fleet.start()
            # Where the offline model of a running fleet answers, this one has none of its own.
            fleet.context.current.prices.adopt(project.prices, project.offline_port)
            yield cls(fleet, replay, recorded, asked)
        finally:
            await fleet.stop()
            replay.uninstall()

    async def replay(
        self, recorded: Recording | None = None, faults: FaultPlan | None = None
    ) -> ReplayOutcome:
        """Ask a recorded question, and compare all that follows with the recording: by default that of the
        plan, else one of those whose runs it has.

        ``faults`` are injected into its calls.

        Cancelling this cancels the run. May be called again: each call begins with the whole recording.
        Raises Fault (CONFIG) if the agent of the recorded run is not in the project, and others.
        """
        recorded = recorded or self._recorded
        here = self._places.all_placed(recorded)
        fleet, request = self._fleet, _request_of(here)
        if request.agent not in fleet.project.agents:
            raise Fault(
                FaultType.CONFIG,
                f"replay: {request.agent}, which was recorded, is not in {fleet.project.agents_file.name}; "
                "replay it with its own project (--project), or record it again",
            )
        assert request.trace is not None
        session = self._replay.begin(request.trace.trace_id, here)
        session.steps.bind(request.run_id, recorded.first.id)
        if faults is not None:
            self.inject(request.trace.trace_id, faults)
        session.is_over = False
        try:
            outcome = await self.ask(request)
        finally:
            session.is_over = True
        steps = (each.step for run in outcome.recording.runs for each in run.steps)
        asked = tuple(step for step in steps if (step.run_id, step.number) in session.asked)
        outcome = replace(outcome, asked=asked, missed=missed_call(session.miss))
        if session.miss is not None and REFUSED in session.miss.data:
            return replace(outcome, refusal=session.miss.message)
        if unknown := "; ".join(unknown_offers(here, self._asked)):
            return replace(outcome, fault=f"replay: {unknown}", is_miss=True)
        if session.miss is not None:
            fault = session.miss.message
            if changes := "; ".join(islice(offer_changes(here, self._asked), _MAX_CHANGES)):
                fault = f"replay: {changes}; {fault.removeprefix('replay: ')}"
            return replace(outcome, fault=fault, is_miss=True)
        compared = recorded, outcome.recording, self.templates
        return replace(outcome, difference=first_replay_difference(*compared), unused=first_unused(*compared))

    def inject(self, trace_id: str, faults: FaultPlan) -> None:
        """Inject faults into the calls of the runs with that trace."""
        if (injection := current_injection()) is not None:
            injection.begin(trace_id, faults)

    async def ask(self, request: RunRequest) -> ReplayOutcome:
        """Run a message, and return what became of it, compared with nothing.

        Raises Fault for a message that is not taken.
        """
        request = replace(request, run_id=request.run_id or mint_run())
        fleet, fault, is_taken = self._fleet, "", False

        def hear(event: Event) -> None:
            nonlocal is_taken
            is_taken = is_taken or isinstance(event, RunStarted)

        began = perf_counter()
        try:
            await fleet.kernel.run(request, hear)
        except Fault as error:
            if not is_taken:
                raise
            fault = error.message
        seconds = perf_counter() - began
        assert fleet.ledger is not None
        recording = await portable_recording(fleet.kernel, fleet.ledger, fleet.project, request.run_id)
        return ReplayOutcome(recording, seconds, fault)


def _request_of(recording: Recording) -> RunRequest:
    """The recorded question, in a trace of its own."""
    first = recording.first
    return RunRequest(
        first.agent,
        first.question,
        first.images,
        history=sent_history(recording),
        surface=SURFACE,
        caller="pallas replay",
        trace=child_of(None),
        run_id=mint_run(),
        params=Params(first.params),
        provider=first.provider,
    )


def _call_of(runs: InFlight, run_id: str) -> RecordedCall | None:
    """The call that led to a run; None if no run in flight waits for it, or the call is no step of that."""
    run, caller = (*runs.chain(run_id), None, None)[:2]
    if run is None or caller is None or caller.recorded is None:
        return None
    steps = [each.value for each in caller.recorded.steps]
    at = next((at for at, step in enumerate(steps) if step.span_id and step.span_id == run.parent_span), None)
    return RecordedCall(run.agent, caller.id, steps[at], steps[:at]) if at is not None else None


def _agents_at(project: Project, port: int, answered: Collection[str]) -> Iterator[tuple[str, str]]:
    """The servers of a project that are agents of it, with their URLs at the port of a replay.

    Without those in ``answered``: a call of one has its recorded result, as that of any other server.
    """
    for server in project.downstreams.values():
        for agent in project.agents.values():
            if agent.name not in answered and server.url and leads_to(server.url, agent.name, project):
                yield server.name, f"http://{_LOOPBACK}:{port}/{AGENTS}/{agent.slug}/mcp"


def _offered(project: Project) -> dict[str, Surface]:
    """What the servers of a project list, where a served fleet lets models see nothing else. Raises Fault.

    A server with names that models get otherwise is left out: their calls are recorded by those.
    """
    lock = read_lock(project.root) if project.tools_lock.mode in (None, "hold") else None
    return {
        name: server.surface
        for name, server in (lock.servers if lock is not None else {}).items()
        if not server.not_lockable and all(map(_PLAIN.fullmatch, server.surface.tools))
    }


def _replayed(project: Project, plan: ReplayPlan, port: int) -> Project:
    """The project as it is replayed: at one port of loopback, without what the recording answers for."""
    downstreams = {
        name: replace(each, url=plan.agents_at.get(name, each.url))
        for name, each in project.downstreams.items()
        if plan.is_live(name)
    }
    called = {each.url for each in downstreams.values()}
    programs = {
        name: each
        for name, each in project.servers.items()
        if plan.live_tools or name in plan.live_servers or each.url in called
    }
    return replace(
        project,
        agents={name: replace(each, port=0, auth=None) for name, each in project.agents.items()},
        downstreams=downstreams,
        servers=programs,
        scripted=_scripted(project) if plan.asks_models else None,
        port=port,
        registry_port=port,
        public_url="",
        bind=_LOOPBACK,
        allowed_hosts=(),
        tls=None,
        auth=None,
        rbac=None,
        workers=1,
        database_url="",
    )


def _scripted(project: Project) -> ScriptedConfig | None:
    """The offline model, unless its port is taken: then a fleet of the project runs, whose model answers."""
    if project.scripted is None:
        return None
    with socket.socket() as sock:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((_LOOPBACK, project.scripted.port))
        except OSError:
            return None
    return project.scripted
