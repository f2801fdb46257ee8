"""Makes the executor of an agent by its kind, and imports the heavy parts only then."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from pallas.config import AgentConfig, Project
from pallas.executors import Executor
from pallas.model import AgentKind, Fault, FaultType

MakeExecutor = Callable[[Project, AgentConfig], Awaitable[Executor]]

# Where each kind's executor is. An agent of one kind never imports what the others need.
_EXECUTORS: Final[dict[AgentKind, tuple[str, str]]] = {
    "llm": ("pallas.executors.fastagent.fastagent_executor", "FastAgentExecutor"),
    "handler": ("pallas.executors.handler.handler_executor", "HandlerExecutor"),
    "worker": ("pallas.executors.worker.worker_executor", "WorkerExecutor"),
    "remote": ("pallas.executors.remote.remote_executor", "RemoteExecutor"),
    "router": ("pallas.executors.router.router_executor", "RouterExecutor"),
}
_TYPED: Final = ("pallas.executors.typed.typed_executor", "TypedExecutor")
_PROCESS: Final = ("pallas.executors.process.process_executor", "ProcessExecutor")


async def make_executor(
    project: Project, config: AgentConfig, *, route: Any = None, ground: Any = None
) -> Executor:
    """The executor for an agent of any kind, its code imported off the loop.

    ``route`` is how a router reaches the agents that it chooses among, ``ground`` how a typed handler reaches
    those that it sends messages to: their fleet has to say so. An LLM with ``isolation: process`` imports
    fast-agent in its own process alone. Raises Fault (CONFIG) for a kind that this installation cannot serve.
    """
    typed = is_typed(config)
    if config.kind == "llm" and config.isolation == "process":
        name = _PROCESS
    else:
        name = _TYPED if typed else _EXECUTORS[config.kind]
    factory = await asyncio.to_thread(_imported, *name, config)
    if config.kind != "router" and not typed:
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


def is_typed(config: AgentConfig) -> bool:
    """Whether an agent is a typed handler: it takes messages of other handlers (SPEC 5)."""
    return config.typed is not None


def _imported(module: str, name: str, config: AgentConfig) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):  # what it needs is missing, not it
            raise
        raise Fault(
            FaultType.CONFIG,
            f"{config.where}: {config.name}: kind {config.kind} is not part of this installation",
        ) from error
