"""The endpoints of runs: show, follow, cancel. A run's owner may use them (SPEC AG-21)."""

from typing import Annotated, Any, Literal

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from pallas.model import RunRecord

from .chunk_stream import MEDIA, STREAM_RESPONSES, event_stream, last_event
from .request_body import Cursor, Filter, Id, Limit, page_of, plain
from .response_models import PageOf, RunModel, TokensModel, iso, iso_or_none
from .route_table import HEAD, Routes, principal_of
from .run_recall import Recall

Status = Literal["running", "ok", "error", "cancelled"]


def run_out(record: RunRecord) -> RunModel:
    """Return a run as it is sent."""
    counted = record.tokens_in is not None or record.tokens_out is not None
    return RunModel(
        id=record.id,
        agent=record.agent,
        threadId=record.thread or None,
        ownerId=record.owner,
        surface=record.surface,
        status=record.status,
        startedAt=iso(record.started_at),
        finishedAt=iso_or_none(record.finished_at),
        seconds=round(record.seconds, 3),
        steps=record.steps,
        tools=record.tools,
        usage=TokensModel(inputTokens=record.tokens_in, outputTokens=record.tokens_out) if counted else None,
        turnIndex=record.turn_index,
        fault=record.fault or None,
        partial=record.partial or None,
    )


def add_runs(routes: Routes, recall: Recall, heartbeat: float) -> None:
    """Add the endpoints of runs."""
    parts = routes.parts

    @routes.add("GET", "/runs", "Runs, the newest first", response=PageOf[RunModel])
    async def list_runs(
        request: Request,
        agent: Filter = "",
        thread: Filter = "",
        status: Annotated[Status | None, Query()] = None,
        limit: Limit = 50,
        cursor: Cursor = "",
    ) -> dict[str, Any]:
        """Your own runs; with `view:agents` and `admin:threads`, all of them."""
        plain(agent, thread, cursor)
        found = await parts.threads.runs(
            principal_of(request),
            agent=agent or None,
            thread=thread or None,
            status=status,
            limit=limit,
            cursor=cursor,
        )
        return page_of(found, run_out)

    @routes.add("GET", "/runs/{id}", "A run", response=RunModel)
    async def get_run(request: Request, id: Id) -> RunModel:  # noqa: A002 - the word of the path
        """Its agent, parameters and result."""
        plain(id)
        return run_out(await recall.record(id, principal_of(request)))

    @routes.add("DELETE", "/runs/{id}", "Cancel a run", response=RunModel, status=202)
    async def cancel_run(request: Request, id: Id) -> RunModel:  # noqa: A002 - the word of the path
        """It ends shortly after, and its waiting callers are informed; a run that has ended stays as it
        is."""
        plain(id)
        record = await recall.record(id, principal_of(request))
        parts.kernel.cancel(record.id)
        return run_out(record)

    @routes.add(
        "GET", "/runs/{id}/events", "Follow a run", response_class=Response, responses=STREAM_RESPONSES
    )
    async def follow_run(request: Request, id: Id) -> Response:  # noqa: A002 - the word of the path
        """Its chunks from the start, or after `Last-Event-ID`, to its end; each message has an `id`."""
        plain(id)
        after = last_event(request)
        record = await recall.record(id, principal_of(request))
        if request.scope.get(HEAD):
            return Response(headers={"cache-control": "no-cache"}, media_type=MEDIA)
        log = recall.log(record.id)
        chunks = log.read(after) if log is not None else recall.chunks(record.id, after)
        headers = {"pallas-run-id": record.id}
        if record.thread:
            headers["pallas-thread-id"] = record.thread
        return event_stream(chunks, numbered=True, headers=headers, heartbeat=heartbeat)
