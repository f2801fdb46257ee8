"""The agents of a live fleet that no file declares: made over the API, or registered by code."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pallas.catalog.desired_fleet import DesiredFleet
from pallas.config import AgentConfig, Project
from pallas.config.change_effects import needs_new_version
from pallas.deadlines import cancel_and_wait
from pallas.model import AgentState, Fault, Notice, Reloaded
from pallas.model.other_workers import CATALOG
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line
from pallas.surfaces.published_agent import resource_url

from .agent import DRAIN_SECONDS, FleetAgent
from .agent_control import DEADLINE, AgentControl
from .context import FleetContext
from .membership import Membership
from .project_merger import ProjectMerger, ShadowNotices, shadow
from .registration import Registrations, is_registered
from .tool_decisions import decisions

if TYPE_CHECKING:
    from pallas.catalog import Catalog
    from pallas.ledger import Ledger

log = logging.getLogger(__name__)

PATIENCE: Final = 20.0
"""Seconds that a change of the catalog waits for the agents it concerns; they go on without it."""
FOLLOW_SECONDS: Final = 0.25
"""Seconds between two looks for what other fleets changed."""
_FOLLOW_ALONE_SECONDS: Final = 1.0
# Seconds that the deletion of an agent waits until nothing of it is left, beyond what its runs have.
_LEAVING: Final = 7.0
_NOTHING: Final = DesiredFleet()


class DynamicAgents:
    """Makes the agents that the catalog wants and those that are registered. Belongs to the fleet's loop.

    ``files`` is the project as its files said when they were last read; ``among`` lays these agents over it.
    An agent that a file declares takes precedence over one of its name that was made. With one agent alone
    there are none of these.
    """

    def __init__(
        self,
        context: FleetContext,
        members: Membership,
        control: AgentControl,
        start: Callable[[FleetAgent], Awaitable[None]],
    ) -> None:
        self.files = context.project
        self.catalog: Catalog | None = None
        self._context = context
        self._members = members
        self._control = control
        self._start = start
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._leaving: set[str] = set()
        self._problems: dict[str, str] = {}
        self._shadows = ShadowNotices(context.hub)
        self._declaring: asyncio.Task[None] | None = None
        self._merger = ProjectMerger()
        self._began = False
        self.registrations = Registrations(
            self, context.hub, lambda: context.lifecycle.refusal, alone=context.is_alone
        )

    # What the fleet asks

    def live(self) -> None:
        """Apply registrations at once from now on: the fleet has its agents."""
        self._began = True

    async def open_catalog(self, ledger: "Ledger") -> None:
        """Read the catalog of a fleet that is about to start; the fleet goes by its agents then.

        ``close`` and ``close_catalog`` end it. Raises Fault (CONFIG) for a key of the secrets that cannot be
        used, and what the ledger raises.
        """
        catalogs, sealing, addresses = await asyncio.to_thread(_imported)
        folder = None if ledger.is_private else addresses.default_path(self.files).parent
        seal = await asyncio.to_thread(sealing.seal_of, os.environ, folder)
        catalog: Catalog = catalogs.Catalog(ledger.resources, seal, self)
        for problem in await catalog.start():
            log.error("%s", problem)
            self._context.hub.publish(Notice(level="error", text=one_line(problem, 500)))
        self.catalog = catalog
        if (worker := self._context.options.worker) is not None:
            catalog.others = worker
            worker.hear(CATALOG, lambda _: self._context.tasks.start(catalog.read_again()))
        self._shadows.look(self.files, self._desired(self.files))
        self.registrations.look(self.merged_project())
        self._context.current.adopt(self.among(self.files))

    async def follow(self, ledger: "Ledger") -> None:
        """Go by what others change in the same database, until cancelled.

        Also without another fleet: `pallas apply` elsewhere may have opened it for a moment.
        """
        catalog = self.catalog
        if catalog is None or self._context.is_alone or ledger.is_private:
            return
        while True:
            await asyncio.sleep(FOLLOW_SECONDS if ledger.has_others else _FOLLOW_ALONE_SECONDS)
            try:
                if await catalog.follow():
                    self._context.tasks.start(self.update())
            except Fault as fault:
                log.debug("the changes of other fleets could not be looked up: %s", fault.message)

    def read(self, files: Project) -> Project:
        """Take files that were read again; return the project with the agents of catalog and code."""
        self.files = files
        if self.catalog is not None:
            self._own_declaring(self.catalog)
        self._shadows.look(self.files, self._desired(self.files))
        self.registrations.look(self.merged_project())
        return self.among(files)

    def among(self, files: Project) -> Project:
        """Lay the agents of the catalog and of code over ``files``, which were just read."""
        return self.registrations.merged_over(self._merger.merged(files, self._desired(files), self._leaving))

    def now(self, project: Project) -> Project:
        """Return ``project`` with the agents of the catalog and of code as they are now."""
        return replace(project, agents=self.among(self.files).agents)

    async def close(self) -> None:
        """Cancel the changes in progress."""
        tasks = [*self._tasks.values(), *([self._declaring] if self._declaring is not None else [])]
        await cancel_and_wait(*tasks, seconds=1.0)

    def close_catalog(self) -> None:
        """Let go of the catalog: nothing is made any more."""
        if self.catalog is not None:
            self.catalog.close()

    # As ``RegistrationHost``

    def merged_project(self) -> Project:
        """As ``RegistrationHost.merged_project``."""
        return self._merger.merged(self.files, self._desired(self.files), self._leaving)

    def changed(self, name: str) -> asyncio.Task[None] | None:
        """As ``RegistrationHost.changed``."""
        if self._began and not self._context.lifecycle.refusal:
            return self._settling(name)
        self._context.current.adopt(self.now(self._context.project))
        return None

    def agent(self, name: str) -> FleetAgent | None:
        """As ``RegistrationHost.agent``."""
        return self._context.agents.get(name)

    # What the catalog asks

    async def update(self) -> None:
        """As ``pallas.catalog.Live``."""
        if self._context.lifecycle.refusal or self._context.is_alone:
            return
        self.registrations.look(self.merged_project())
        target = self.among(self.files).agents
        alive = self._context.agents.by_name
        concerned = [
            name for name, agent in alive.items() if name not in target and not _of_files(agent.config)
        ]
        concerned += [name for name, config in target.items() if self._is_due(config, alive.get(name))]
        for name in self._problems.keys() - concerned:  # what it asked for was taken back
            del self._problems[name]
        tasks = {self._settling(name) for name in concerned}
        if tasks:
            await asyncio.wait(tasks, timeout=PATIENCE)

    async def remove(self, name: str) -> None:
        """As ``pallas.catalog.Live``."""
        self._leaving.add(name)
        if (agent := self._context.agents.get(name)) is not None and agent.config.definition is not None:
            await asyncio.wait({self._settling(name)}, timeout=DRAIN_SECONDS + _LEAVING)

    def removed(self, name: str) -> None:
        """As ``pallas.catalog.Live``."""
        self._leaving.discard(name)
        self._problems.pop(name, None)

    def status(self, name: str) -> Mapping[str, Any]:
        """As ``pallas.catalog.Live``."""
        agent = self._context.agents.get(name)
        if agent is None:
            return {}
        shown = agent.snapshot()
        info = agent.executor.info if agent.executor is not None else None
        found: dict[str, Any] = {
            "state": agent.state.value,
            "health": agent.watched.shown.status.value,
            "health_message": agent.watched.shown.message,
            "url": resource_url(self._context.project, agent.config),
            "instruction": info.instruction if info is not None else "",
            "kind": shown.kind,
            "availability": shown.availability,
            "capabilities": shown.capabilities,
            "model": shown.model,
            "serves": shown.serves,
            "context": shown.context,
            "tool_rules": tuple(decisions(agent.tool_rules, info, agent.config.peers)),
        }
        takes = info.payload if info is not None else None
        if takes is not None:
            example = takes.example_json
            found["payload"] = {"name": takes.name, "schema": takes.json_schema, "example": example}
        if agent.reason:
            found["reason"] = agent.reason
        if name in self._problems:
            found["problem"] = self._problems[name]
        return found

    def shadow(self, name: str) -> str:
        """As ``pallas.catalog.Live``."""
        return shadow(self.files, name) or self.registrations.before(name)

    # How it is done

    def _desired(self, files: Project) -> DesiredFleet:
        if self.catalog is None or self._context.is_alone:
            return _NOTHING
        return self.catalog.desired(files)

    def _is_due(self, config: AgentConfig, agent: FleetAgent | None) -> bool:
        """Whether something has to be done so that ``agent`` is what ``config`` says."""
        if not _of_files(config):
            return agent is None or agent.config != config
        if agent is None:  # its version is the files' business
            return False
        if is_registered(agent.config):  # what stood before it went
            return True
        own, wanted = (agent.config.params, agent.config.shadows), (config.params, config.shadows)
        return agent.config.definition is None and own != wanted

    def _settling(self, name: str) -> asyncio.Task[None]:
        """Return the task that brings the agent to its desired state, and make it check once more."""
        self._again.add(name)
        task = self._tasks.get(name)
        if task is None or task.done():
            # In an empty context: the agent keeps no variables of the caller.
            task = asyncio.create_task(self._settle(name), name=f"make {name}", context=Context())
            self._tasks[name] = task
            task.add_done_callback(lambda done: self._task_ended(name, done))
        return task

    def _task_ended(self, name: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]

    async def _settle(self, name: str) -> None:
        while name in self._again:
            self._again.discard(name)
            try:
                await self._one(name)
            except Exception as error:
                text = error.message if isinstance(error, Fault) else f"{type(error).__name__}; see the log"
                self._fail(name, text, error)

    async def _one(self, name: str) -> None:
        target = self.among(self.files).agents.get(name)
        agent = self._context.agents.get(name)
        if agent is None:
            if target is not None and not _of_files(target):
                await self._add(target)
        elif target is not None:
            outcome = await self._control.held(name, lambda: self._change(name))
            if outcome.outcome == "failed":
                self._fail(name, outcome.error)
            elif outcome.outcome == "live":
                self._problems.pop(name, None)
        elif not _of_files(agent.config):
            await self._leave(agent)

    async def _add(self, config: AgentConfig) -> None:
        await self._members.gone([config])
        if config.name in self._context.agents.by_name:  # a file has declared it by now
            return
        agent = self._members.add(self._context.project, config)
        self._context.current.adopt_agent(config)
        self._context.agents.arrange(tuple(self.among(self.files).agents))
        await self._start(agent)
        self._problems.pop(config.name, None)

    async def _change(self, name: str) -> Reloaded:
        """Bring the agent to its desired state; no verb runs on it until that is done."""
        if (starting := self._context.agents.get(name)) is not None:
            async with asyncio.timeout(DEADLINE):
                await starting.settled.wait()
        agent = self._context.agents.get(name)
        config = self.among(self.files).agents.get(name)
        nothing = Reloaded(agent=name, outcome="unchanged")
        if agent is None or config is None or not self._is_due(config, agent):
            return nothing
        if _of_files(config) and not is_registered(agent.config):
            updated = replace(agent.config, params=config.params, shadows=config.shadows)
            await agent.adopt(agent.project, updated)
            self._context.current.adopt_agent(agent.config)
            return nothing
        same = not needs_new_version(config, agent.config, config)
        if agent.executor is not None and not same:
            outcome = await agent.swap(self._context.project, config)
            if outcome.outcome == "live":
                self._context.current.adopt_agent(agent.config)
            return outcome
        await agent.adopt(self._context.project, replace(config, port=agent.config.port))
        self._context.current.adopt_agent(agent.config)
        if agent.executor is None and agent.state is not AgentState.STOPPED:
            if not agent.is_open:
                await agent.open()
            if not await agent.start(fresh=True):
                return Reloaded(agent=name, outcome="failed", error=agent.reason)
        return Reloaded(agent=name, outcome="live")

    async def _leave(self, agent: FleetAgent) -> None:
        name = agent.name
        self._members.remove(
            name, "it was unregistered" if is_registered(agent.config) else "it was deleted", DRAIN_SECONDS
        )
        self._context.current.forget_agent(name)
        await self._members.gone([agent.config])

    def _fail(self, name: str, reason: str, cause: BaseException | None = None) -> None:
        text = one_line(redact_text(reason), 300)
        self._problems[name] = text
        log.error(
            "%s: it differs from what was requested: %s", name, text, exc_info=cause, extra={"agent": name}
        )
        self._context.hub.publish(Notice(level="error", text=one_line(f"{name}: {text}", 500), agent=name))

    def _own_declaring(self, catalog: "Catalog") -> None:
        before = self._declaring

        async def declare() -> None:
            if before is not None:
                await asyncio.wait({before})
            try:
                await catalog.declare()
            except Fault as fault:
                log.error("the agents of the files could not be noted: %s", fault.message)

        self._declaring = asyncio.create_task(declare(), name="declare agents", context=Context())


def _of_files(config: AgentConfig) -> bool:
    """Whether a file declares it."""
    return config.definition is None and not is_registered(config)


def _imported() -> tuple[Any, Any, Any]:
    from pallas import catalog
    from pallas.catalog import secret_seal
    from pallas.ledger import ledger_address

    return catalog, secret_seal, ledger_address
