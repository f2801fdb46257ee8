"""Agents that are workers, without a fleet around them."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pallas.config import AgentConfig, Project
from pallas.config.kinds import WorkerConfig
from pallas.executors import ExecutorTurn
from pallas.executors.worker.worker_executor import WorkerExecutor
from pallas.executors.worker.worker_limits import LIMITS, WorkerLimits
from pallas.model import Event

SIMPLE = Path(__file__).with_name("worker_simple.py")
ACP = Path(__file__).with_name("worker_acp.py")


def worker(
    root: Path, program: Path = SIMPLE, *, limits: WorkerLimits = LIMITS, **keys: Any
) -> WorkerExecutor:
    """The executor of an agent ``coder`` whose worker is that program; ``keys`` of its configuration."""
    env: Mapping[str, str] = {"PYTHONUNBUFFERED": "1", **keys.pop("env", {})}
    keys = {"command": ("python", str(program)), "cwd": root, "env": env, **keys}
    config = AgentConfig("coder", 0, "Coder", "", kind="worker", worker=WorkerConfig(**keys))
    project = Project(root, root / "agents.yaml", "test", {"coder": config})
    return WorkerExecutor(project, config, limits)


@asynccontextmanager
async def working(
    root: Path, program: Path = SIMPLE, *, limits: WorkerLimits = LIMITS, **keys: Any
) -> AsyncIterator[WorkerExecutor]:
    """A worker that was started, and closed at the end."""
    executor = worker(root, program, limits=limits, **keys)
    try:
        await executor.load()
        await executor.start()
        yield executor
    finally:
        await executor.close(2.0)


async def say(
    executor: WorkerExecutor,
    text: str,
    lease: str | None = None,
    emit: Callable[[Event], None] | None = None,
    **more: Any,
) -> str:
    """The text that it answers."""
    turn = ExecutorTurn(os.urandom(4).hex(), "coder", text, lease=lease, **more)
    result = await executor.run(turn, emit or (lambda event: None))
    return "\n\n".join(result.texts)
