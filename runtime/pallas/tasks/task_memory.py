"""The tasks of a fleet that stores nothing: they end with it."""

from collections.abc import Callable
from time import time
from typing import Final, Protocol

from pallas.model import Page, TaskRecord, TaskStatus

from .task_work import is_ended

MAX_KEPT: Final = 1_000
"""Ended tasks that are kept; the oldest go first."""


class TaskStore(Protocol):
    """Where tasks are stored. All methods raise Fault (TRANSPORT, TIMEOUT) if a database does not answer."""

    async def begin(self, task: TaskRecord) -> None:
        """Store a new task."""
        ...

    async def move(self, task: TaskRecord) -> None:
        """Store how far a task is."""
        ...

    async def finish(self, task: TaskRecord) -> None:
        """Store the end of a task."""
        ...

    async def forget(self, id: str) -> None:  # noqa: A002 - the word of the record
        """Delete a task."""
        ...

    async def get(self, id: str) -> TaskRecord | None:  # noqa: A002 - the word of the record
        """The task of that id."""
        ...

    async def list(
        self,
        *,
        agent: str | None = None,
        owner: str | None = None,
        status: TaskStatus | None = None,
        limit: int = 50,
        cursor: str = "",
    ) -> Page[TaskRecord]:
        """Tasks, newest first, without their results."""
        ...


class TaskMemory:
    """As ``TaskStore``, for the calls that a fleet without a database parks. They are in no list."""

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self._tasks: dict[str, TaskRecord] = {}

    async def begin(self, task: TaskRecord) -> None:
        """As ``TaskStore``, like the other methods."""
        self._tasks[task.id] = task

    async def move(self, task: TaskRecord) -> None:
        if task.id in self._tasks:
            self._tasks[task.id] = task

    async def finish(self, task: TaskRecord) -> None:
        self._tasks.pop(task.id, None)
        self._tasks[task.id] = task
        ended = [each.id for each in self._tasks.values() if is_ended(each)]
        for each in ended[: max(0, len(ended) - MAX_KEPT)]:
            del self._tasks[each]

    async def forget(self, id: str) -> None:  # noqa: A002
        self._tasks.pop(id, None)

    async def get(self, id: str) -> TaskRecord | None:  # noqa: A002
        found = self._tasks.get(id)
        is_old = found is not None and found.ttl is not None and self._clock() > found.updated_at + found.ttl
        return None if found is not None and is_old and is_ended(found) else found

    async def list(
        self,
        *,
        agent: str | None = None,
        owner: str | None = None,
        status: TaskStatus | None = None,
        limit: int = 50,
        cursor: str = "",
    ) -> Page[TaskRecord]:
        return Page((), "")
