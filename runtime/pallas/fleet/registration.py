"""Agents that code registers with a fleet: handlers and workers (DR-4, DR-5)."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from pallas.catalog.spec_fields import check_name
from pallas.config import AgentConfig, Project
from pallas.config.agent_kinds import restart_without_words
from pallas.config.auth import AuthConfig
from pallas.config.kinds import HandlerConfig, WorkerConfig
from pallas.config.where import Where
from pallas.executors.handler.handler_shape import shape_of
from pallas.handlers import Registered
from pallas.model import AgentKind, AgentState, Fault, FaultType, Notice
from pallas.runs.agent_directory import rank
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub

from .agent import FleetAgent

log = logging.getLogger(__name__)

SOURCE: Final = "code"
"""Where an agent is declared that was registered."""
MAX_REGISTERED: Final = 1_000
PATIENCE: Final = 60.0
"""Seconds that the caller of a registration waits for its agent; the start goes on without the caller."""
_RANKS: Final = ("in this process", "as a worker", "as a remote agent")


class RegistrationHost(Protocol):
    """The fleet, as far as registering changes it."""

    @property
    def files(self) -> Project:
        """The project as its files say."""
        ...

    def merged_project(self) -> Project:
        """With the agents made over the API, and without the registered ones."""
        ...

    def changed(self, name: str) -> asyncio.Task[None] | None:
        """Bring the agent to its desired state; return None before the start and after the end."""
        ...

    def agent(self, name: str) -> FleetAgent | None:
        """What has that name now."""
        ...


@dataclass(frozen=True, slots=True)
class _Entry:
    config: AgentConfig
    first: bool
    """Whether it also takes precedence over an agent that a file declares under the same name."""


class Registration:
    """What became of a registration. It is done already; ``await`` it to go on when its agent answers.

    Awaiting raises Fault where the agent cannot answer; it stays registered. While the fleet has not
    started there is nothing to wait for.
    """

    def __init__(self, name: str, task: asyncio.Task[None] | None, look: Callable[[], str]) -> None:
        self.id = name
        self._task = task
        self._look = look

    def __await__(self) -> Generator[Any]:
        return self._settled().__await__()

    async def _settled(self) -> None:
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=PATIENCE)
        if problem := self._look():
            raise Fault(FaultType.UPSTREAM, f"{self.id} cannot answer: {problem}")


class Registrations:
    """The registered agents of one fleet. Belongs to its event loop; may be used before it runs."""

    def __init__(
        self, live: RegistrationHost, hub: EventHub, refusal: Callable[[], str], *, alone: bool
    ) -> None:
        self._live = live
        self._hub = hub
        self._refusal = refusal
        self._alone = alone
        self._entries: dict[tuple[str, int], _Entry] = {}
        self._laid: tuple[Project, Project] | None = None
        self._places: dict[str, tuple[AgentConfig, AgentConfig]] = {}
        self._told: dict[str, str] = {}

    def handler(
        self, handler: Any, *, capabilities: Sequence[str], capacity: Any, replace_: bool
    ) -> Registration:
        """As ``Fleet.register``."""
        name = _id_of(handler)
        shape = shape_of(handler, name)
        if not isinstance(capacity, int) or capacity < 1:
            raise _wrong(name, f"has the capacity {capacity!r}; allowed: 1 and more")
        title, description = _described(handler, name)
        config = AgentConfig(
            name=name,
            port=0,
            title=title,
            description=description,
            kind="handler",
            capabilities=_words(name, capabilities) or shape.capabilities,
            handler=HandlerConfig(capacity=capacity, registered=Registered(handler)),
            where=Where(SOURCE),
        )
        return self._add(config, first=replace_)

    def worker(self, name: str, worker: Any, *, capabilities: Sequence[str], replace_: bool) -> Registration:
        """As ``Fleet.register_worker``."""
        if not isinstance(worker, WorkerConfig) or not worker.command:
            raise _wrong(str(name), "needs a WorkerConfig with a command")
        config = AgentConfig(
            name=name,
            port=0,
            title=str(name).title()[:100],
            description=str(name).title()[:100],
            kind="worker",
            capabilities=_words(str(name), capabilities),
            worker=worker if worker.agent_id else replace(worker, agent_id=name),
            restart=restart_without_words("worker"),
            where=Where(SOURCE),
        )
        return self._add(config, first=replace_)

    def remove(self, name: str) -> Registration:
        """As ``Fleet.unregister``."""
        keys = sorted(key for key in self._entries if key[0] == name)
        if not keys:
            raise Fault(
                FaultType.CONFIG, f"{one_line(str(name), 80)} is not registered, so it cannot be removed"
            )
        del self._entries[keys[0]]
        if len(keys) == 1:
            self._places.pop(name, None)
        return self._changed(name)

    def merged_over(self, project: Project) -> Project:
        """Lay the registered agents over ``project``; the same object for the same one."""
        if not self._entries:
            return project
        if self._laid is None or self._laid[0] is not project:
            self._laid = (project, self._merged(project))
        return self._laid[1]

    def look(self, project: Project) -> None:
        """Report which registered agents take precedence over agents of these files and the API."""
        found = {}
        for name in dict.fromkeys(key[0] for key in self._entries):
            first, *others = self._of(name, project)
            if others:
                waits = " and ".join(f"the {each.kind} of {_source(each)}" for each in others)
                found[name] = f"the {first.kind} of {_source(first)} answers, before {waits}, which waits"
        for name, text in found.items():
            if self._told.get(name) != text:
                self._tell(f"{name} exists more than once: {text}")
        for name in self._told.keys() - found.keys():
            self._tell(f"{name} exists only once again")
        self._told = found

    def before(self, name: str) -> str:
        """Where the agent is declared that takes precedence over one made over the API; or empty."""
        return SOURCE if any(key[0] == name for key in self._entries) else ""

    # How it is done

    def _add(self, config: AgentConfig, *, first: bool) -> Registration:
        name = config.name
        if self._alone:
            raise _wrong(str(name), "cannot be registered: this fleet serves only one agent")
        if refusal := self._refusal():
            raise _wrong(str(name), f"cannot be registered: {refusal}")
        try:
            check_name("agent", name)
        except Fault as fault:
            raise _wrong(str(name), fault.message.removeprefix("metadata.")) from None
        kind = rank(config.kind)
        whole = self._live.merged_project()
        same = [each for each in self._of(name, whole) if rank(each.kind) == kind]
        if same and not first:
            raise _wrong(
                name,
                f"is there {_RANKS[kind]} already ({_source(same[0])}); choose another id, or say "
                "`replace=True`",
            )
        known = {*whole.agents, *(key[0] for key in self._entries)} - {name}
        if near := next((each for each in known if each.replace("_", "-") == config.slug), ""):
            raise _wrong(name, f"is published as {config.slug}, and so is {near}; choose another id")
        if len(self._entries) >= MAX_REGISTERED and (name, kind) not in self._entries:
            raise _wrong(name, f"cannot be registered: at most {MAX_REGISTERED} agents can be")
        self._entries[name, kind] = _Entry(config, first)
        return self._changed(name)

    def _changed(self, name: str) -> Registration:
        self._laid = None
        self.look(self._live.merged_project())
        task = self._live.changed(name)
        return Registration(name, task, lambda: self._problem(name))

    def _problem(self, name: str) -> str:
        """Why the agent of that name does not answer as it is wanted now; empty when it does."""
        wanted = self.merged_over(self._live.merged_project()).agents.get(name)
        agent = self._live.agent(name)
        if wanted is None:
            return ""
        if agent is None:
            return "it was not registered; the log has the details"
        if agent.state is not AgentState.READY:
            return agent.reason or f"it is {agent.state.value}"
        return (
            "" if agent.config.kind == wanted.kind else f"the {agent.config.kind} still answers; see the log"
        )

    def _of(self, name: str, project: Project) -> list[AgentConfig]:
        """Those of that name, the one first that answers."""
        found: list[tuple[int, int, AgentConfig]] = []
        if (declared := project.agents.get(name)) is not None:
            found.append((rank(declared.kind), 1 if declared.definition is None else 3, declared))
        found += [
            (kind, 0 if entry.first else 2, entry.config)
            for kind in range(len(_RANKS))
            if (entry := self._entries.get((name, kind))) is not None
        ]
        return [config for _, _, config in sorted(found, key=lambda each: each[:2])]

    def _merged(self, project: Project) -> Project:
        agents = dict(project.agents)
        taken = {each.slug: each.name for each in project.agents.values()}
        for name in dict.fromkeys(key[0] for key in self._entries):
            first, *others = self._of(name, project)
            if taken.get(first.slug, name) != name:  # a file declares another one that is published so
                continue
            declared = project.agents.get(name)
            # The agent that answers under the name takes the place of the declared one in the project.
            port, auth = (0, project.auth) if declared is None else (declared.port, declared.auth)
            shadows = tuple(dict.fromkeys(each.kind for each in others))
            agents[name] = self._placed(first, port, auth, shadows)
        return replace(project, agents=agents)

    def _placed(
        self, config: AgentConfig, port: int, auth: AuthConfig | None, shadows: tuple[AgentKind, ...]
    ) -> AgentConfig:
        """``config`` in its place; the same object again where nothing about it changed."""
        known = self._places.get(config.name)
        if known is not None and known[0] is config:
            before = known[1]
            if (before.port, before.auth, before.shadows) == (port, auth, shadows):
                return before
        placed = replace(config, port=port, auth=auth, shadows=shadows)
        self._places[config.name] = config, placed
        return placed

    def _tell(self, text: str) -> None:
        log.warning("%s", text)
        self._hub.publish(Notice(level="warning", text=one_line(text, 500)))


def is_registered(config: AgentConfig) -> bool:
    """Whether an agent was registered: its files say nothing of it."""
    return config.definition is None and config.where.file == SOURCE and not config.where.line


def _source(config: AgentConfig) -> str:
    return "the program" if is_registered(config) else str(config.where)


def _id_of(handler: Any) -> str:
    if inspect.isroutine(handler):
        return str(getattr(handler, "__name__", ""))
    name = getattr(handler, "id", None)
    if not isinstance(name, str) or inspect.isclass(handler):
        what = handler.__name__ if inspect.isclass(handler) else type(handler).__name__
        hint = (
            f"register an object of it: {what}()" if inspect.isclass(handler) else 'write `id = "my-agent"`'
        )
        raise _wrong(what, f"has no id; {hint}")
    return name


def _described(handler: Any, name: str) -> tuple[str, str]:
    """Title and description: its own words, else the first line of what its author wrote about it."""
    written = handler.__doc__ if inspect.isroutine(handler) else type(handler).__doc__
    title = getattr(handler, "title", None)
    shown = one_line(title, 100) if isinstance(title, str) and title else name.title()[:100]
    text = getattr(handler, "description", None)
    text = text if isinstance(text, str) and text else written or ""
    return shown, one_line(text, 100) or shown


def _words(name: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not all(isinstance(each, str) and each for each in given):
        raise _wrong(name, 'has capabilities that are not a list of words; write for example ("coding",)')
    return tuple(dict.fromkeys(one_line(each, 64) for each in given))


def _wrong(name: str, problem: str) -> Fault:
    return Fault(FaultType.CONFIG, f"agent {one_line(name, 80)} {problem}")
