"""Starts, stops, restarts and reloads one agent by hand, while the rest of the fleet goes on.

Each verb is a task of the fleet, one at a time for an agent, with a deadline. ``AgentChanged`` reports its
outcome, a ``Notice`` that it was refused or failed. Reloads of changed files take turns with these.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import replace
from typing import Any, Final, Literal, get_args

from pallas.config import AgentConfig, ConfigError, Project, export_env, fill_unset, load_project
from pallas.deadlines import cancel_and_wait
from pallas.model import FAILED_STATES, AgentState, Fault, FaultType, Notice, Reloaded, Verb
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line
from pallas.telemetry.log import reapply_logging, redact_project

from .agent import STOPPED_BY_HAND, FleetAgent
from .context import FleetContext
from .versions import MAX_PREDECESSORS

log = logging.getLogger(__name__)

# Seconds until a verb is given up: connecting an instance alone may take 60.
DEADLINE: Final = 90.0
# Seconds that verbs under way have to end when the fleet stops.
_CANCEL_TIMEOUT: Final = 1.0
_VERBS: Final = get_args(Verb)


class AgentControl:
    """Carries out verbs on the agents of one fleet. Belongs to the fleet's event loop.

    ``among`` lays the agents that no file declares over the files that were read.
    """

    def __init__(self, context: FleetContext, among: Callable[[Project], Project]) -> None:
        self._context = context
        self._among = among
        self._under_way: dict[str, tuple[Verb, asyncio.Task[Any]]] = {}

    def ask(self, name: str, verb: Verb) -> None:
        """Begin a verb and return; never raises. A Notice reports what cannot be done."""
        agent = self._context.agents.get(name)
        if verb not in _VERBS:
            self._tell("warning", f"there is no {one_line(str(verb), 40)!r}; agents can {', '.join(_VERBS)}")
        elif agent is None:
            known = ", ".join(each.name for each in self._context.agents.all) or "none yet"
            self._tell("warning", f"{verb}: there is no agent {one_line(name, 80)}; this fleet has {known}")
        elif problem := self._problem(agent, verb):
            self._tell("warning", f"{name}: {verb} was not done: {problem}", agent)
        else:
            # In an empty context: the executor keeps no variables of the caller or its request.
            task = asyncio.create_task(self._do(agent, verb), name=f"{verb} {name}", context=Context())
            self._under_way[name] = (verb, task)

    async def held(self, name: str, work: Callable[[], Coroutine[Any, Any, Reloaded]]) -> Reloaded:
        """Do ``work`` once no verb is under way for the agent; until it is over no verb can begin.

        Raises what it raises.
        """
        while (under_way := self._under_way.get(name)) is not None:
            await asyncio.wait({under_way[1]})
        task = asyncio.create_task(work(), name=f"reload {name}", context=Context())
        self._under_way[name] = ("reload", task)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            await cancel_and_wait(task, seconds=_CANCEL_TIMEOUT)
            raise
        finally:
            del self._under_way[name]
        return task.result()

    async def close(self) -> None:
        """Cancel the verbs under way; each agent ends what they made."""
        tasks = {task for _, task in self._under_way.values()}
        await cancel_and_wait(*tasks, seconds=_CANCEL_TIMEOUT)

    def _problem(self, agent: FleetAgent, verb: Verb) -> str:
        """Why this verb makes no sense now; empty when it does."""
        if refusal := self._context.lifecycle.refusal:
            return refusal
        if agent.name in self._under_way:
            return f"{self._under_way[agent.name][0]} is under way; ask again when that is over"
        if not agent.settled.is_set():
            return f"it is still starting ({agent.state.value}); ask again when that is over"
        if verb == "start" and agent.state is AgentState.READY:
            return "it is running already"
        if verb == "stop" and agent.state is AgentState.STOPPED:
            return "it is stopped already"
        if verb == "reload" and agent.state is AgentState.STOPPED:
            return "it is stopped; start it, which reads its files again"
        if verb == "reload" and agent.predecessors >= MAX_PREDECESSORS:
            return (
                f"{agent.predecessors} earlier versions still answer runs; wait for those or cancel them, "
                "or restart the agent, which cancels them all"
            )
        return ""

    async def _do(self, agent: FleetAgent, verb: Verb) -> None:
        log.info("%s: %s was asked for", agent.name, verb, extra={"agent": agent.name})
        try:
            async with asyncio.timeout(DEADLINE) as deadline:
                await self._act(agent, verb)
        except TimeoutError as error:
            if deadline.expired():
                self._failed(agent, verb, f"it was not done within {DEADLINE:.0f} s")
            else:
                self._failed(agent, verb, "something timed out; the log has the details", error)
        except Fault as fault:
            self._failed(agent, verb, fault.message, fault.__cause__)
        except ConfigError as error:
            more = len(error.mistakes) - 1
            self._failed(agent, verb, str(error.mistakes[0]) + (f" (and {more} more)" if more else ""))
        except Exception as error:
            self._failed(agent, verb, f"{type(error).__name__}; the log has the details", error)
        finally:
            del self._under_way[agent.name]
            reapply_logging()  # fast-agent sets up its loggers whenever an agent starts or ends

    async def _act(self, agent: FleetAgent, verb: Verb) -> None:
        if verb == "stop":
            await agent.stop(STOPPED_BY_HAND)
            return
        if verb == "rollback":
            self._say(agent, verb, await agent.rollback())
            return
        # Before anything else: a mistake in a file stops no agent.
        project, config = await self._read(agent)
        if verb == "reload" and agent.executor is not None:
            outcome = await agent.swap(project, config, force=True)
            self._say(agent, verb, outcome)
            return
        if verb == "restart" and agent.state is not AgentState.STOPPED:
            await agent.stop()
        if not agent.is_open:
            await agent.open()
        await agent.adopt(project, config)
        self._context.current.adopt_agent(config)
        if not await agent.start(fresh=True):
            self._tell("error", f"{agent.name} could not be started: {agent.reason}", agent)

    async def _read(self, agent: FleetAgent) -> tuple[Project, AgentConfig]:
        """Read the project's files again for this agent. Raises ConfigError, Fault (CONFIG)."""
        project = self._among(await asyncio.to_thread(load_project, agent.project.root))
        config = project.agents.get(agent.name)
        if config is None:
            raise Fault(
                FaultType.CONFIG,
                f"{project.agents_file.name} no longer has this agent; restart the fleet without it",
            )
        agent.inbound.adopt(project)  # also if its code fails
        await asyncio.to_thread(redact_project, project)
        export_env(project.root)
        fill_unset(project.root, project.unset)
        if config.port != agent.config.port:
            text = f"{config.where}: its port stays {agent.config.port} until the fleet is started again"
            self._tell("warning", f"{agent.name}: {text}", agent)
            config = replace(config, port=agent.config.port)
        return project, config

    def _say(self, agent: FleetAgent, verb: Verb, outcome: Reloaded) -> None:
        """Go by the configuration of the new version, or report why there is none."""
        if outcome.outcome == "live":
            self._context.current.adopt_agent(agent.config)
            return
        goes_on = "; the previous version still answers" if verb == "reload" else ""
        self._tell("error", f"{agent.name}: {verb} failed: {outcome.error}{goes_on}", agent)

    def _failed(self, agent: FleetAgent, verb: Verb, reason: str, cause: BaseException | None = None) -> None:
        """Tell that a verb failed. One that leaves the agent half-way makes that an error of the agent."""
        if agent.state in FAILED_STATES | {AgentState.READY, AgentState.STOPPED}:
            goes_on = (
                "; the previous version still answers"
                if verb == "reload" and agent.executor is not None
                else ""
            )
            reason = f"{one_line(redact_text(reason), 400)}{goes_on}"
            extra = {"agent": agent.name}
            log.error("%s: %s failed: %s", agent.name, verb, reason, exc_info=cause, extra=extra)
        else:
            agent.fail(reason, cause)
        self._tell("error", f"{agent.name}: {verb} failed: {reason}", agent)

    def _tell(
        self, level: Literal["info", "warning", "error"], text: str, agent: FleetAgent | None = None
    ) -> None:
        notice = Notice(level=level, text=one_line(redact_text(text), 500), agent=agent.name if agent else "")
        self._context.hub.publish(notice)
