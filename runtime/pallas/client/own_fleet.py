"""A fleet for one call: the running one, else one in this process that ends with the call."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Final

from pallas.config import ConfigError, Project
from pallas.config.agent_code import read_agents
from pallas.config.models import AgentConfig, Need
from pallas.config.network import local_port
from pallas.config.notes import did_you_mean
from pallas.config.ports import free_port
from pallas.config.unnamed_models import refuse_unnamed_models
from pallas.deadlines import cancel_and_wait
from pallas.fleet.child_processes import ending_children
from pallas.model import Event, Fault, FaultType, Notice
from pallas.model.refusals import not_found
from pallas.safe_text import one_line, sanitize

from .client_faults import NoFleetAnswers
from .fleet_address import FleetAddress, place_of
from .rest_client import RestClient, connect

if TYPE_CHECKING:
    from pallas.fleet.fleet import Fleet

START_TIMEOUT: Final = 180.0
"""Seconds for the whole start; agents have their own, shorter limits."""
STOP_TIMEOUT: Final = 10.0
PORTS_TIMEOUT: Final = 60.0
"""Seconds to wait for another call of the same project that uses the same ports."""
_LOOPBACK: Final = "127.0.0.1"
_GLANCE: Final = 2.0

log = logging.getLogger(__name__)


@asynccontextmanager
async def running_or_own(
    project: Project,
    agent: str = "",
    token: str = "",
    *,
    starting: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = lambda text: None,
) -> AsyncIterator[RestClient]:
    """Open the API of the project's fleet: the running one, or one in this process.

    A fleet of our own starts only ``agent`` and those that it reaches, on loopback. It uses the
    project's ledger, so its threads remain afterwards. ``starting`` is called before it begins: from then on
    the process is in the project's folder, and the agents' code runs in it. ``tell`` receives what is wrong
    with the fleet, one line each. Raises Fault, with ``not_found`` for an agent that is neither declared nor
    created over the API.
    """
    place = place_of(project=project, environ={})
    if await is_there(place):
        async with connect(place, token) as api:
            yield api
        return
    if agent and agent not in project.agents:
        api_agents = await made_agents(project)
        if api_agents is not None and agent not in (*api_agents, *api_agents.values()):
            known = [*project.agents, *api_agents]
            shown = f"{one_line(agent, 100)} in {one_line(project.name, 60)}"
            hint = did_you_mean(agent, known) or f"known: {', '.join(known[:20])}"
            raise not_found(f"there is no agent {shown}; {hint}")
    starting()
    async with (
        own_fleet(project, agent, tell) as origin,
        connect(FleetAddress(origin, project.root), token) as api,
    ):
        api.own = True
        yield api


async def is_there(place: FleetAddress) -> bool:
    """Return whether the expected fleet answers there, and not a fleet of another project."""
    if is_anothers(place):
        return False
    api = RestClient(place, connect_timeout=_GLANCE)
    try:
        await api.get("/whoami", timeout=10.0)
    except NoFleetAnswers:
        return False
    except Fault:
        return True
    else:
        return True
    finally:
        await api.close()


def is_anothers(place: FleetAddress) -> bool:
    """Return whether a fleet of another project of this user is known to have that port."""
    if place.project is None or not place.is_loopback:
        return False
    from pallas.surfaces.control.token_file import TokenFileExposed, find_tokens

    with suppress(TokenFileExposed, OSError):
        stored_tokens = find_tokens(place.port, host=place.host)
        wanted = str(place.project.resolve())
        return bool(stored_tokens) and all(each.project and each.project != wanted for each in stored_tokens)
    return False


async def made_agents(project: Project) -> dict[str, str] | None:
    """Return names and ids of the agents created over the API; None when the ledger cannot be read.

    Does not create a missing ledger.
    """
    from pallas.ledger import open_ledger
    from pallas.ledger.ledger_address import address_of, database_url_of

    try:
        url = database_url_of(project, os.environ)
        path = address_of(url, project.root).path
        if path is not None and not path.exists():
            return {}
        ledger = await open_ledger(url)
    except Fault:
        return None
    try:
        found = await ledger.resources.everything()
    finally:
        await ledger.close()
    return {each.name: each.id for each in found.agents if each.values["made"]}


def needed(project: Project, agent: str) -> Project:
    """Return the project with only ``agent`` and those that it reaches, on loopback and a free port.

    It reaches what it depends on, its peers, and siblings that are servers of it, which are started before
    it. Only those that others of them call get a port of their own. An agent that no file declares may need
    any of the others, so all of them stay.
    """
    wanted: dict[str, AgentConfig] = {}
    served: set[str] = set()
    waiting = [agent] if agent in project.agents else list(project.agents)
    while waiting:
        name = waiting.pop()
        if name not in wanted and name in project.agents:
            each = project.agents[name]
            servers = _sibling_servers(project, each) if agent in project.agents else ()
            waiting += (*each.depends_on, *each.peers, *servers)
            served.update(each.depends_on, servers)
            # A ring would wait for itself, and each of its agents is ready without the others.
            first = [Need(other) for other in servers if not _waits_for(project, wanted, other, name)]
            wanted[name] = replace(each, needs=(*each.needs, *first))
    called = {local_port(each.url) for each in project.downstreams.values() if each.url}
    if agent in project.agents and agent not in served:
        called.discard(project.agents[agent].port)
    agents = {
        name: each if each.port in called else replace(each, port=0)
        for name, each in ((name, wanted[name]) for name in project.agents if name in wanted)
    }
    port = free_port()
    return replace(
        project,
        agents=agents,
        port=port,
        registry_port=port,
        public_url="",
        bind=_LOOPBACK,
        allowed_hosts=(),
        tls=None,
    )


def needed_by_all(project: Project, names: Iterable[str]) -> Project:
    """Return the project with these of its agents and those that they reach, at their own ports."""
    found: set[str] = set()
    for name in names:
        if name in project.agents:
            found.update(needed(project, name).agents)
    return replace(project, agents={name: each for name, each in project.agents.items() if name in found})


def _sibling_servers(project: Project, config: AgentConfig) -> tuple[str, ...]:
    """Return the agents of the project whose ports are servers of this one, by the text of its code."""
    used = {server.text for each in read_agents(project.root, config) for server in each.servers}
    ports = {local_port(each.url) for name, each in project.downstreams.items() if name in used and each.url}
    others = (each for each in project.agents.values() if each.name not in (config.name, *config.depends_on))
    return tuple(each.name for each in others if each.port and each.port in ports)


def _waits_for(project: Project, wanted: Mapping[str, AgentConfig], name: str, other: str) -> bool:
    """Return whether ``name`` starts after ``other``, directly or through others."""
    seen, waiting = set[str](), [name]
    while waiting:
        if (each := waiting.pop()) not in seen and each in project.agents:
            seen.add(each)
            waiting += wanted.get(each, project.agents[each]).depends_on
    return other in seen


@asynccontextmanager
async def own_fleet(
    project: Project,
    agent: str,
    tell: Callable[[str], None],
    begun: Callable[[str], None] = lambda origin: None,
    started: Callable[["Fleet"], None] = lambda fleet: None,
    grace_s: float = PORTS_TIMEOUT,
) -> AsyncIterator[str]:
    """Start a fleet on its own thread and loop, so that agents' code cannot block ours; yields its origin.

    ``begun`` receives it before the agents are started, ``started`` gets the fleet in its own loop after
    that. ``grace_s`` is how many seconds to wait for ports that another fleet of the project has. Raises
    Fault.
    """
    asked, wanted = agent if agent in project.agents else "", needed(project, agent)
    try:
        refuse_unnamed_models(wanted)
    except ConfigError as error:
        raise Fault(FaultType.CONFIG, str(error)) from error
    own = _Own(wanted, asked, tell, begun, started, grace_s)
    with ending_children():
        try:
            async with asyncio.timeout(START_TIMEOUT):
                origin = await asyncio.wrap_future(own.begin())
        except TimeoutError:
            await own.end()
            raise Fault(
                FaultType.TIMEOUT, f"the fleet of {project.name} did not start in {START_TIMEOUT:.0f} s"
            ) from None
        except BaseException:
            await own.end()
            raise
        try:
            yield origin
        finally:
            await own.end()


class _Own:
    def __init__(
        self,
        project: Project,
        asked: str,
        tell: Callable[[str], None],
        begun: Callable[[str], None],
        started: Callable[["Fleet"], None],
        grace_s: float,
    ) -> None:
        self._project = project
        self._asked = asked
        self._tell = tell
        self._begun = begun
        self._started = started
        self._grace_s = grace_s
        self._caller = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._stop_requested = threading.Event()
        self._ready: Future[str] = Future()
        self._thread = threading.Thread(target=self._main, name="fleet", daemon=True)

    def begin(self) -> Future[str]:
        self._thread.start()
        return self._ready

    async def end(self) -> None:
        self._stop_requested.set()
        if self._loop is not None:
            with suppress(RuntimeError):  # It has just ended.
                self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join, STOP_TIMEOUT)

    def _main(self) -> None:
        from pallas.processes.event_loop import run

        try:
            run(self._serve())
        except BaseException as error:
            log.error("the fleet of one call ended", exc_info=error)
            if not self._ready.done():
                self._ready.set_exception(error if isinstance(error, Exception) else RuntimeError(str(error)))

    async def _serve(self) -> None:
        from pallas.fleet.fleet import Fleet
        from pallas.fleet.local_port import offer_control
        from pallas.fleet.storage import url_of
        from pallas.telemetry.event_hub import EventHub
        from pallas.telemetry.log.log_path import log_path

        self._loop = asyncio.get_running_loop()
        hub = EventHub()
        hub.listen(self._hear)
        fleet = Fleet(self._project, hub=hub, dev=True, database=url_of(self._project))
        await self._reserve(fleet)
        offer_control(fleet, log_path())
        with suppress(RuntimeError):  # The caller has just gone.
            self._caller.call_soon_threadsafe(self._begun, fleet.ports.origin)
        try:
            await self._start(fleet)
            if not self._stop_requested.is_set():
                self._tell_of_failed(fleet)
                self._started(fleet)
                self._ready.set_result(fleet.ports.origin)
                await self._stop.wait()
        finally:
            await fleet.stop()

    def _tell_of_failed(self, fleet: "Fleet") -> None:
        """Say which others the asked agent has to do without; its own failure is the answer's."""
        from pallas.fleet.supervisor.dependency_health import trouble_of

        for agent in fleet.agents:
            if self._asked and agent.name != self._asked and (trouble := trouble_of(agent)):
                self._say(f"{self._asked} answers without {agent.name}: {trouble}")

    def _hear(self, event: Event) -> None:
        if isinstance(event, Notice) and event.level == "error":
            self._say(event.text)

    def _say(self, text: str) -> None:
        with suppress(RuntimeError):  # The caller has just gone.
            self._caller.call_soon_threadsafe(self._tell, sanitize(text))

    async def _reserve(self, fleet: "Fleet") -> None:
        """Take the ports, once another call of this kind has ended. Raises Fault (CONFIG)."""
        began = monotonic()
        while True:
            try:
                fleet.reserve()
                return
            except Fault as fault:
                # Their owner belongs to this project, or does not serve yet and cannot say what it is.
                waits = str(self._project.root) in fault.message or "that is starting" in fault.message
                if not waits or monotonic() - began > self._grace_s or self._stop_requested.is_set():
                    raise
            await asyncio.sleep(0.3)

    async def _start(self, fleet: "Fleet") -> None:
        starting = asyncio.create_task(fleet.start(), name="fleet start")
        stopped = asyncio.create_task(self._stop.wait(), name="fleet stop asked")
        try:
            await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
        finally:
            await cancel_and_wait(starting, stopped, seconds=1.0)
