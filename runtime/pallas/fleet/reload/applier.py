"""A plan carried out on a fleet that goes on answering."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, Final, Literal

from pallas.config import AgentConfig, Project
from pallas.config.change_effects import changed_fields
from pallas.config.files import shown
from pallas.model import AgentState, Change, Fault, Notice, Reloaded
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line
from pallas.telemetry.log import reapply_logging, relevel_logging

from ..agent import FleetAgent
from ..agent_control import AgentControl
from ..context import FleetContext, with_agents
from ..membership import Membership
from ..programs import Programs
from ..versions import MAX_PREDECESSORS
from .affected_agents import ReloadPlan, file_of
from .recent_runs import RecentRuns

log = logging.getLogger(__name__)

# Seconds until a version that does not get ready is given up, even if its own limits are longer.
DEADLINE: Final = 90.0
# Keys that are written otherwise than they are called here.
_KEYS: Final[Mapping[str, str]] = {"log_level": "logger.level"}
_PLACE: Final = re.compile(r"^([^\s:]+\.[A-Za-z]+:\d+)\b")
_NOT_TOLD: Final = frozenset({"icons", "auth"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadContext:
    """The parts of the fleet that a reload changes. All of them belong to one event loop."""

    fleet: FleetContext
    members: Membership
    control: AgentControl
    programs: Programs
    start: Callable[[FleetAgent], Awaitable[None]]
    """Serves and starts an agent that was added."""
    now: Callable[[Project], Project]
    """Lays the agents that no file declares over a project, as they are now: they come and go at any time."""
    check_providers: Callable[[Project], object]
    recent: RecentRuns


class Applier:
    """Does what plans say, agents that are independent of each other at the same time."""

    def __init__(self, context: ReloadContext) -> None:
        self._on = context
        self._agents = context.fleet.agents
        self.reloading: set[str] = set()
        self.failed: set[str] = set()
        """Agents whose last attempt at another version failed."""
        self.owed: dict[str, frozenset[str]] = {}
        """Agents that another version is due for, and because of what."""
        self._told: set[tuple[str, str]] = set()

    def crowded(self, name: str) -> bool:
        """Whether an agent has to wait until an earlier version has finished its runs."""
        agent = self._agents.get(name)
        return agent is not None and agent.predecessors >= MAX_PREDECESSORS

    async def apply(self, plan: ReloadPlan, new: Project, began: float) -> tuple[Reloaded, ...]:
        """Carry out a plan. ``began`` is when the first change was seen (``time.monotonic``).

        Never raises for an agent or a program: an event reports the outcome of each.
        """
        old, members = self._on.fleet.project, self._on.members
        self._tell_at_start(plan, new)
        if "log_level" in plan.keys:
            relevel_logging(new.log_level)
        for name in plan.remove:
            if name not in self._agents.by_name:
                continue
            seconds = old.drain_timeout
            file = file_of(self._agents.by_name[name].config, new)
            members.remove(name, f"removed from {file}", seconds)
            self.failed.discard(name)
            self.owed.pop(name, None)
        self._adopt(new)
        if plan.providers:
            self._on.check_providers(new)
        await self._on.programs.change(plan.stop, plan.restart, new.servers)
        moved = await self._move(plan, new)
        await self._adopt_settings(plan, new)
        self._adopt(new)
        return (*moved, *await self.reload(plan, new, began))

    async def reload(
        self, plan: ReloadPlan, new: Project, began: float, failed: Collection[str] = ()
    ) -> tuple[Reloaded, ...]:
        """Make the new versions of a plan, and nothing else of it; who needs one of ``failed`` waits."""
        outcomes: list[Reloaded] = []
        late = set(failed)
        for layer in plan.layers:
            done = await asyncio.gather(*(self._one(name, plan, new, late, began) for name in layer))
            outcomes += [each for each in done if each is not None]
            late |= {each.agent for each in done if each is not None and each.outcome == "failed"}
            self._adopt(new)
        self._on.members.moved(new.drain_timeout)
        self._agents.arrange(tuple(new.agents))
        reapply_logging()  # fast-agent sets up its loggers whenever an agent starts or ends
        return tuple(outcomes)

    def project_now(self) -> Project:
        """Return the fleet's project with its agents as they are now.

        One that was reloaded by hand may answer already, and the fleet does not go by its entry yet.
        """
        return self._as_it_is(self._on.fleet.project)

    def _adopt(self, new: Project) -> None:
        """The fleet goes by the new files, and by what its agents really are."""
        self._on.fleet.current.adopt(self._as_it_is(self._on.now(new)))

    def _as_it_is(self, project: Project) -> Project:
        members = self._agents.by_name
        return with_agents(
            project, {name: members[name].config for name in project.agents if name in members}
        )

    async def _one(
        self, name: str, plan: ReloadPlan, new: Project, failed: set[str], began: float
    ) -> Reloaded | None:
        self.reloading.add(name)
        try:
            if name in plan.add:
                return await self._add(name, new, began)
            if name not in self._agents.by_name:  # it has been deleted
                return None
            why = frozenset(plan.reload[name])
            late = (failed | (self.failed if name in self.owed else set())) & plan.needs.get(
                name, frozenset()
            )
            if late:
                self.owed[name] = why
                known = name in self.failed or not late & failed
                return None if known else self._waits(name, min(late), why, began)
            if self.crowded(name):
                if name not in self.owed:
                    busy = f"{name}: {MAX_PREDECESSORS} earlier versions still answer runs"
                    self._tell("info", f"{busy}; the next one follows as soon as one of them is done")
                self.owed[name] = why
                return None
            outcome = await self._on.control.held(name, lambda: self._reload(name, plan, new, began))
            self.owed.pop(name, None)
            (self.failed.add if outcome.outcome == "failed" else self.failed.discard)(name)
            return outcome
        finally:
            self.reloading.discard(name)

    async def _reload(self, name: str, plan: ReloadPlan, new: Project, began: float) -> Reloaded:
        agent, new = self._agents.get(name), self._on.now(new)
        if agent is None or name not in new.agents:  # it has been deleted
            return Reloaded(agent=name, outcome="unchanged")
        config = replace(new.agents[name], port=agent.config.port)
        why = plan.reload[name]
        files = tuple(each for each in why if (new.root / each).is_file())
        try:
            async with asyncio.timeout(DEADLINE):
                if agent.executor is not None:
                    own = {new.root / each for each in files} <= agent.files and len(files) == len(why)
                    return await agent.swap(new, config, files=files, began=began, force=not own)
                await agent.adopt(new, config)
                if not agent.is_open:
                    await agent.open()
                await agent.start(fresh=True)
        except TimeoutError:
            return self._told_of(name, files, began, f"it was not ready within {DEADLINE:.0f} s")
        except Exception as error:
            log.exception("%s: it could not be reloaded", name, extra={"agent": name})
            text = error.message if isinstance(error, Fault) else f"{type(error).__name__}; see the log"
            return self._told_of(name, files, began, text)
        return self._told_of(name, files, began, "" if agent.state is AgentState.READY else agent.reason)

    async def _add(self, name: str, new: Project, began: float) -> Reloaded:
        config, file = new.agents[name], file_of(new.agents[name], new)
        await self._on.members.gone([config])
        try:
            agent = self._on.members.add(new, config)
        except Fault as fault:
            self.owed[name] = frozenset({file})
            log.error("%s", fault.message, extra={"agent": name})
            return self._told_of(name, (file,), began, fault.message, place=str(config.where))
        self.owed.pop(name, None)
        self._agents.arrange(tuple(new.agents))
        self._adopt(new)
        await self._on.start(agent)
        problem = "" if agent.state is AgentState.READY else agent.reason
        (self.failed.add if problem else self.failed.discard)(name)
        return self._told_of(name, (file,), began, problem, changes=(Change("agent", "added", name),))

    async def _move(self, plan: ReloadPlan, new: Project) -> list[Reloaded]:
        members, found, began = self._agents.by_name, list[Reloaded](), monotonic()
        moving = {
            name: replace(members[name].config, port=new.agents[name].port, where=new.agents[name].where)
            for name in plan.move
            if name in members
        }
        await self._on.members.gone(replace(config, name="") for config in moving.values())
        added = {new.agents[name].port for name in plan.add}
        problems = await self._on.members.move(moving, added, new.drain_timeout)
        for name, config in moving.items():
            agent = members[name]
            if (fault := problems.get(name)) is not None:
                text = f"{fault.message}; it stays at port {agent.config.port}"
                log.error("%s: %s", name, text, extra={"agent": name})
                file = file_of(new.agents[name], new)
                found.append(self._told_of(name, (file,), began, text, place=str(config.where)))
                continue
            await agent.adopt(agent.project, replace(agent.config, port=config.port))
            log.info("%s: it answers at %s now", name, agent.url, extra={"agent": name})
        return found

    async def _adopt_settings(self, plan: ReloadPlan, new: Project) -> None:
        """What needs no other version of an agent is taken over by all that stay as they are."""
        if not plan.reread:
            return
        for name, agent in list(self._agents.by_name.items()):
            new = self._on.now(new)
            if name in plan.reload or name in self.owed or name not in new.agents:
                continue
            if new.agents[name].definition != agent.config.definition:  # its change is under way
                continue
            config = replace(new.agents[name], port=agent.config.port)
            await agent.adopt(new, config)

    def _waits(self, name: str, need: str, why: frozenset[str], began: float) -> Reloaded:
        text = f"not reloaded, since {need}, which it needs, could not be; the previous version still answers"
        return self._told_of(name, tuple(sorted(why)), began, text)

    def _told_of(
        self,
        name: str,
        files: tuple[str, ...],
        began: float,
        problem: str,
        *,
        place: str = "",
        changes: tuple[Change, ...] = (),
    ) -> Reloaded:
        agent = self._agents.get(name)
        known = agent.snapshot() if agent is not None else None
        event = Reloaded(
            agent=name,
            outcome="failed" if problem else "live",
            version=known.version if known is not None else 0,
            files=files,
            changes=changes,
            seconds=monotonic() - began,
            place=place or (place_of(problem) if problem else ""),
            error=one_line(redact_text(problem), 400),
            story=(known.error if known is not None else "") or redact_text(problem) if problem else "",
        )
        self._on.fleet.hub.publish(event)
        return event

    def _tell_at_start(self, plan: ReloadPlan, new: Project) -> None:
        """Report each new value of a key that is read only when a fleet starts, once."""
        for key in plan.at_start:
            place = place_of_key(new, key)
            text = f"{place}: {key} takes effect when the fleet is started again"
            if (key, place) not in self._told:
                self._tell("warning", text)
        self._told = {(key, place_of_key(new, key)) for key in plan.at_start}

    def _tell(self, level: Literal["info", "warning", "error"], text: str) -> None:
        log.log(logging.WARNING if level == "warning" else logging.INFO, "%s", text)
        self._on.fleet.hub.publish(Notice(level=level, text=one_line(redact_text(text), 500)))


def place_of_key(project: Project, key: str) -> str:
    """``agents.yaml:12`` of a key at its top."""
    file = project.agents_file
    line = line_of(file, key)
    return f"{file.name}:{line}" if line else file.name


def config_changes(
    plan: ReloadPlan, old: Project, new: Project, reported: Collection[str]
) -> tuple[Change, ...]:
    """List the changes of agents.yaml that were applied, and that no event of ``reported`` agents says."""
    file = shown(new.root, new.agents_file)
    found = [_change(_KEYS.get(key, key), getattr(old, key), getattr(new, key)) for key in plan.keys]
    found += [Change("agent", "removed", name) for name in plan.remove]
    found += [Change("agent", "added", name) for name in plan.add]
    found += [
        Change("config", "removed" if name in plan.stop else "changed", f"servers.{name}")
        for name in (*plan.stop, *plan.restart)
        if file in plan.restart.get(name, (file,))
    ]
    for name, config in new.agents.items():
        before = old.agents.get(name)
        if before is not None and name not in plan.reload and name not in reported:
            found += agent_changes(name, before, config)
    return tuple(found)


def agent_changes(name: str, before: AgentConfig, config: AgentConfig) -> list[Change]:
    """List the changes of an agent's entry that need no new version."""
    return [
        _change(f"agents.{name}.{key}", getattr(before, key), getattr(config, key))
        for key in changed_fields(before, config, "at once")
        if key not in _NOT_TOLD
    ]


def _change(name: str, before: Any, after: Any) -> Change:
    shown: Mapping[bool, str] = {True: "yes", False: "no"}

    def text(value: Any) -> str:
        if isinstance(value, bool):
            return shown[value]
        return one_line(redact_text(str(value)), 200) if isinstance(value, str | int | float) else ""

    return Change("config", "changed", name, before=text(before), after=text(after))


def line_of(file: Path, key: str) -> int:
    """The line, from 1, where ``key`` stands at the top of a YAML file; 0 where it does not."""
    pattern = re.compile(rf"{re.escape(key)}\s*:")
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return 0
    return next((number for number, line in enumerate(lines, 1) if pattern.match(line)), 0)


def place_of(text: str) -> str:
    """The ``file:line`` that a message begins with; empty where it does not."""
    match = _PLACE.match(text)
    return match[1] if match else ""
