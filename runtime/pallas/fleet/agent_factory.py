"""Makes the executor of an agent by its kind, and imports the heavy parts only then."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from pallas.config import AgentConfig, Project
from pallas.executors import Executor
from pallas.executors.replay.replay import is_answered, replays_models
from pallas.model import Fault, FaultType, LockMode
from pallas.model.discovery import AGENT_KINDS, IN_PROCESS

MakeExecutor = Callable[[Project, AgentConfig], Awaitable[Executor]]

_TYPED: Final = "typed.typed_executor:TypedExecutor"
_PROCESS: Final = "process.process_executor:ProcessExecutor"
_RECORDED: Final = "replay.recorded_agent:RecordedAgent"


async def make_executor(
    project: Project, config: AgentConfig, *, route: Any = None, ground: Any = None
) -> Executor:
    """The executor for an agent of any kind, its code imported off the loop.

    ``route`` is how a router reaches the agents that it chooses among, ``ground`` how a typed handler reaches
    those that it sends messages to: their fleet has to say so. An LLM with ``isolation: process`` imports
    fast-agent in its own process alone. Raises Fault (CONFIG) for a kind that this installation cannot serve.
    """
    typed, kind = is_typed(config), _executor_of(config)
    factory = await asyncio.to_thread(_imported, config, kind)
    if kind == _RECORDED and typed and ground is not None:
        shape = (await asyncio.to_thread(_imported, config, _TYPED))(project, config, ground)
        recorded: Executor = factory(project, config, shape)
        return recorded
    if kind == _RECORDED or (config.kind != "router" and not typed):
        executor: Executor = factory(project, config)
        return executor
    needed = ground if typed else route
    if needed is None:
        raise Fault(
            FaultType.CONFIG,
            f"{config.where}: {config.name} is a {'typed handler' if typed else 'router'}, and those answer "
            "inside a fleet only; serve the whole project",
        )
    within: Executor = factory(project, config, needed)
    return within


def locked(make: MakeExecutor, otherwise: LockMode) -> MakeExecutor:
    """Wrap ``make`` so that executors know what a difference from ``tools.lock`` does."""

    async def make_with_rules(project: Project, config: AgentConfig) -> Executor:
        from pallas.tools_lock.project_servers import with_lock_rules

        return await make(with_lock_rules(project, otherwise), config)

    return make_with_rules


async def prepare_executor(config: AgentConfig) -> None:
    """Import the code of the executor that an agent will have, off the loop. Never raises."""
    with suppress(Exception):  # ``make_executor`` reports it
        await asyncio.to_thread(_imported, config, _executor_of(config))


def is_typed(config: AgentConfig) -> bool:
    """Whether an agent is a typed handler: it takes messages of other handlers."""
    return config.typed is not None


def _executor_of(config: AgentConfig) -> str:
    """Where its executor is: an agent of one kind never imports what the others need."""
    if (config.kind not in IN_PROCESS and replays_models()) or is_answered(config.name):
        return _RECORDED
    if config.kind == "llm" and config.isolation == "process":
        return _PROCESS
    return _TYPED if is_typed(config) else AGENT_KINDS[config.kind].executor


def _imported(config: AgentConfig, executor: str) -> Any:
    path, _, name = executor.partition(":")
    module = f"pallas.executors.{path}"
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):  # what it needs is missing, not it
            raise
        raise Fault(
            FaultType.CONFIG,
            f"{config.where}: {config.name}: kind {config.kind} is not part of this installation",
        ) from error
