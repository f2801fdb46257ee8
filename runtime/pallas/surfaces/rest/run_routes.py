"""The endpoints of runs: show, follow, cancel. A run's owner may use them (AG-21)."""

import asyncio
from typing import Annotated, Any, Final, Literal

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from pallas.model import Fault, RunRecord, Step, StepDetail
from pallas.model.codec import Undecodable, loads
from pallas.model.money import cost_fields
from pallas.model.refusals import REASON, not_found
from pallas.model.time_text import iso
from pallas.recordings.recording_folder import archive_of
from pallas.runs.lost_calls import unfinished_calls
from pallas.runs.run_costs import RunCost, RunCosts
from pallas.runs.run_recording import portable_recording

from .chunk_stream import MEDIA, STREAM_RESPONSES, event_stream, last_event
from .limit_routes import account_out
from .request_body import Cursor, Filter, Id, Limit, page_of, plain
from .response_models import (
    PageOf,
    iso_or_none,
)
from .route_table import HEAD, Routes, principal_of
from .run_elsewhere import PASSED_ON, answer_elsewhere
from .run_models import (
    AttemptModel,
    RunDetailModel,
    RunModel,
    StepDetailModel,
    StepModel,
    StepUsageModel,
    TokensModel,
)
from .run_recall import Recall

Number = Annotated[int, Path(ge=1, le=10**9, description="Its number in the run, from 1 on")]
TAR: Final = "application/x-tar"
Status = Literal["running", "ok", "error", "cancelled"]


def run_out(record: RunRecord, cost: RunCost) -> RunModel:
    """Return a run as it is sent."""
    counted = record.tokens_in is not None or record.tokens_out is not None
    return RunModel(
        id=record.id,
        agent=record.agent,
        threadId=record.thread or None,
        parentRunId=record.within or None,
        forkedFrom=record.forked_from or None,
        forkedAtStep=record.forked_at or None,
        ownerId=record.owner,
        surface=record.surface,
        status=record.status,
        attempt=record.attempt,
        startedAt=iso(record.started_at),
        finishedAt=iso_or_none(record.finished_at),
        seconds=round(record.seconds, 6),
        steps=record.steps,
        tools=record.tools,
        usage=TokensModel(inputTokens=record.tokens_in, outputTokens=record.tokens_out) if counted else None,
        **cost_fields(cost.own, cost.tree),
        turnIndex=record.turn_index,
        fault=record.fault or None,
        partial=record.partial or None,
    )


def step_out(step: Step) -> StepModel:
    """Return a step as it is sent."""
    return StepModel(**_fields(step))


def step_detail_out(detail: StepDetail) -> StepDetailModel:
    """Return a step with its texts as it is sent."""
    return StepDetailModel(
        **_fields(detail.step),
        headers=dict(detail.headers),
        request=_parsed(detail.request),
        response=_parsed(detail.response),
        lacks=list(detail.lacks),
    )


def _fields(step: Step) -> dict[str, Any]:
    usage, speed = step.usage, step.tokens_per_second
    return {
        "number": step.number,
        "parent": step.parent or None,
        "kind": step.kind,
        "name": step.name,
        "provider": step.provider or None,
        "url": step.url or None,
        "state": step.state,
        "startedAt": iso(step.started_at),
        "seconds": _rounded(step.seconds),
        "firstToken": _rounded(step.first_token),
        "tokensPerSecond": None if speed is None else round(speed, 1),
        "messages": step.messages,
        "usage": StepUsageModel(
            inputTokens=usage.input,
            outputTokens=usage.output,
            cachedTokens=usage.cached,
            cacheWriteTokens=usage.cache_writes,
            reasoningTokens=usage.reasoning,
        ),
        **cost_fields(step),
        "attempts": [
            AttemptModel(
                at=iso(each.at),
                status=each.status,
                seconds=_rounded(each.seconds),
                reason=each.reason or None,
                wait=each.wait,
            )
            for each in step.attempts
        ],
        "digest": step.digest,
        "fault": step.fault or None,
        "callId": step.call_id or None,
        "spanId": step.span_id or None,
        "toolUseId": step.tool_use_id or None,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _parsed(text: str) -> Any:
    try:
        return loads(text) if text else None
    except Undecodable:
        return text


def add_runs(routes: Routes, recall: Recall, heartbeat: float) -> None:
    """Add the endpoints of runs."""
    parts = routes.parts
    run_costs = RunCosts(parts.kernel, parts.ledger)

    async def out(record: RunRecord) -> RunModel:
        return run_out(record, (await run_costs.of([record]))[record.id])

    async def elsewhere(request: Request, run_id: str) -> Response | None:
        """Return the answer of another worker process that has the run; None if there is none."""
        if parts.shares is None or PASSED_ON in request.headers or recall.log(run_id) is not None:
            return None
        return await answer_elsewhere(request, parts.shares)

    async def found(request: Request, run_id: str) -> RunRecord | Response:
        """Return the record of a run, or the answer of the process where it has just begun. Raises Fault."""
        try:
            return await recall.record(run_id, principal_of(request))
        except Fault as fault:
            answer = None
            if fault.data.get(REASON) == "not_found":
                answer = await elsewhere(request, run_id)
            if answer is None:
                raise
            return answer

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
        page = await parts.threads.runs(
            principal_of(request),
            agent=agent or None,
            thread=thread or None,
            status=status,
            limit=limit,
            cursor=cursor,
        )
        costs = await run_costs.of(page.items)
        return page_of(page, lambda record: run_out(record, costs[record.id]))

    @routes.add("GET", "/runs/{id}", "A run", response=RunDetailModel)
    async def get_run(request: Request, id: Id) -> RunDetailModel | Response:  # noqa: A002 - the word of the path
        """Its agent, parameters and result."""
        plain(id)
        record = await found(request, id)
        if isinstance(record, Response):
            return record
        lines = await unfinished_calls(parts.kernel, parts.ledger, record.id)
        meter = parts.kernel.spending.of(record.id) if parts.kernel.spending is not None else None
        limits = [account_out(each) for each in await meter.statuses()] if meter is not None else []
        whole = (await out(record)).model_dump()
        return RunDetailModel(**whole, unfinishedCalls=list(lines), limits=limits)

    @routes.add("DELETE", "/runs/{id}", "Cancel a run", response=RunModel, status=202)
    async def cancel_run(request: Request, id: Id) -> RunModel | Response:  # noqa: A002 - as above
        """It ends shortly after, and its waiting callers are informed; a run that has ended stays as it
        is."""
        plain(id)
        record = await found(request, id)
        if isinstance(record, Response):
            return record
        parts.kernel.cancel(record.id)
        return await out(record)

    @routes.add("GET", "/runs/{id}/steps", "Steps of a run", response=PageOf[StepModel])
    async def list_steps(request: Request, id: Id) -> dict[str, Any]:  # noqa: A002 - the word of the path
        """What the run asked models, tools and agents. Needs `view:agents` for its agent as well."""
        plain(id)
        record = await _seen(request, id)
        steps = await parts.kernel.step_reader.list(record.id)
        return {"items": [step_out(step) for step in steps], "next": None}

    @routes.add("GET", "/runs/{id}/steps/{number}", "A step of a run", response=StepDetailModel)
    async def get_step(request: Request, id: Id, number: Number) -> StepDetailModel:  # noqa: A002 - as above
        """The step with its request and its response. A streamed response is one document."""
        plain(id)
        record = await _seen(request, id)
        step = await parts.kernel.step_reader.get(record.id, number)
        if step is None:
            raise not_found("step not found: it is unknown, or not stored any more")
        return step_detail_out(step)

    @routes.add(
        "GET",
        "/runs/{id}/recording",
        "A run as a recording",
        response_class=Response,
        responses={200: {"description": "A tar archive of its files", "content": {TAR: {}}}},
    )
    async def get_recording(request: Request, id: Id) -> Response:  # noqa: A002 - as above
        """The run and all that it led to, with their steps, texts and pictures. Needs `view:agents` for each
        agent."""
        plain(id)
        record = await _seen(request, id)
        principal = principal_of(request)

        def check(run: RunRecord) -> None:
            parts.grants.require(principal, "view", "agents", run.agent)

        recording = await portable_recording(parts.kernel, parts.ledger, parts.project(), record.id, check)
        data = await asyncio.to_thread(archive_of, recording)
        disposition = f'attachment; filename="{record.id}.tar"'
        return Response(data, media_type=TAR, headers={"content-disposition": disposition})

    async def _seen(request: Request, run_id: str) -> RunRecord:
        """Return the record of a run whose agent's instructions the caller may see. Raises Fault."""
        principal = principal_of(request)
        record = await recall.record(run_id, principal)
        parts.grants.require(principal, "view", "agents", record.agent)
        return record

    @routes.add(
        "GET", "/runs/{id}/events", "Follow a run", response_class=Response, responses=STREAM_RESPONSES
    )
    async def follow_run(request: Request, id: Id) -> Response:  # noqa: A002 - the word of the path
        """Its chunks from the start, or after `Last-Event-ID`, to its end; each message has an `id`."""
        plain(id)
        after = last_event(request)
        record = await found(request, id)
        if isinstance(record, Response):
            return record
        if request.scope.get(HEAD):
            return Response(headers={"cache-control": "no-cache"}, media_type=MEDIA)
        log = recall.log(record.id)
        if log is None and record.status == "running":
            if PASSED_ON in request.headers:
                raise not_found("this process does not have the run")
            if (answer := await elsewhere(request, id)) is not None:
                return answer
        chunks = log.read(after) if log is not None else recall.chunks(record.id, after)
        headers = {"pallas-run-id": record.id}
        if record.thread:
            headers["pallas-thread-id"] = record.thread
        return event_stream(chunks, numbered=True, headers=headers, heartbeat=heartbeat)
