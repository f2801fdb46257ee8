"""The endpoints of tasks: show, follow, cancel. A task's owner may use them, as for runs (AG-21)."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from pallas.model import Fault, FaultType, Principal, TaskRecord
from pallas.model.time_text import iso
from pallas.tasks import Tasks, is_ended

from .chat_chunks import Chunk
from .chunk_stream import MEDIA, STREAM_RESPONSES, event_stream
from .request_body import Cursor, Filter, Id, Limit, page_of, plain
from .response_models import PageOf, Task
from .route_table import HEAD, Routes, principal_of

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
_NONE: Final = (
    "this fleet has no tasks: it keeps conversations in memory only; database_url: in agents.yaml or "
    "PALLAS_DATABASE_URL names the database to keep them in"
)


def task_out(record: TaskRecord) -> Task:
    """Return a task as it is sent."""
    over = is_ended(record)
    return Task(
        id=record.id,
        agent=record.agent,
        kind=record.kind,
        ownerId=record.owner,
        status=record.status,
        preview=record.preview,
        progress=record.progress or None,
        runId=record.run_id or None,
        threadId=record.thread or None,
        createdAt=iso(record.created_at),
        updatedAt=iso(record.updated_at),
        expiresAt=iso(record.updated_at + record.ttl) if over and record.ttl is not None else None,
        request=dict(record.request) if record.request is not None else None,
        text=record.text or None,
        fault=dict(record.fault) if record.fault is not None else None,
    )


def add_tasks(routes: Routes, heartbeat: float) -> None:
    """Add the endpoints of tasks."""

    def there() -> Tasks:
        if routes.parts.tasks is None:
            raise Fault(FaultType.CONFIG, _NONE)
        return routes.parts.tasks

    @routes.add("GET", "/tasks", "Tasks, the newest first", response=PageOf[Task])
    async def list_tasks(
        request: Request,
        agent: Filter = "",
        status: Annotated[Status | None, Query()] = None,
        limit: Limit = 50,
        cursor: Cursor = "",
    ) -> dict[str, Any]:
        """Your own, without answers; with `view:agents` and `admin:threads`, all of them."""
        plain(agent, cursor)
        found = await there().list(
            principal_of(request), agent=agent or None, status=status, limit=limit, cursor=cursor
        )
        return page_of(found, task_out)

    @routes.add("GET", "/tasks/{id}", "A task", response=Task)
    async def get_task(request: Request, id: Id) -> Task:  # noqa: A002 - the word of the path
        """Its state, or its result."""
        plain(id)
        return task_out(await there().find(id, principal_of(request)))

    @routes.add("DELETE", "/tasks/{id}", "Cancel a task", response=Task, status=202)
    async def cancel_task(request: Request, id: Id) -> Task:  # noqa: A002 - the word of the path
        """It ends shortly after; a task that has ended stays as it is."""
        plain(id)
        return task_out(await there().cancel(id, principal_of(request)))

    @routes.add(
        "GET", "/tasks/{id}/events", "Follow a task", response_class=Response, responses=STREAM_RESPONSES
    )
    async def follow_task(request: Request, id: Id) -> Response:  # noqa: A002 - the word of the path
        """The task as it is, and again after each change, to its end: `{type: task, task}`."""
        plain(id)
        tasks, principal = there(), principal_of(request)
        await tasks.find(id, principal)
        if request.scope.get(HEAD):
            return Response(headers={"cache-control": "no-cache"}, media_type=MEDIA)
        return event_stream(_chunks(tasks, id, principal), numbered=True, headers={}, heartbeat=heartbeat)


async def _chunks(tasks: Tasks, task_id: str, principal: Principal) -> AsyncIterator[tuple[int, Chunk]]:
    number = 0
    async with aclosing(tasks.follow(task_id, principal)) as records:
        async for record in records:
            number += 1
            yield number, {"type": "task", "task": task_out(record).model_dump(mode="json")}
