"""The chat endpoint: a message to an agent, answered as a whole or as a stream (SPEC AG-15, AG-16)."""

import asyncio
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Header
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pallas.bounds.sizes import check_said
from pallas.model import Fault, FaultType, Image, Params, RunRequest, codec
from pallas.model.grant_rules import holds_control
from pallas.model.ids import mint
from pallas.model.refusals import not_found
from pallas.safe_text import one_line
from pallas.surfaces.request_caller import bearer_in
from pallas.telemetry.trace_context import incoming

from . import http_faults
from .chat_chunks import answer_of
from .chunk_stream import MEDIA, event_stream, last_event, wants_stream
from .idempotency import Keys, digest_of, key_in
from .request_body import AgentName
from .request_models import Chat
from .response_models import ChatAnswerModel
from .rest_runs import RestRuns
from .route_table import Routes, principal_of
from .run_recall import Recall
from .run_replay import RunLog

_OWN: Final = frozenset({"message", "images", "threadId", "provider", "stream"})
RUN_ID: Final = "pallas-run-id"
THREAD_ID: Final = "pallas-thread-id"

_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The answer: as a whole, or as chunks while it is written",
        "content": {MEDIA: {"schema": {"type": "string"}}},
        "headers": {
            "Pallas-Run-Id": {"schema": {"type": "string"}, "description": "The run"},
            "Pallas-Thread-Id": {"schema": {"type": "string"}, "description": "Its thread, if it has one"},
        },
    }
}


def add_chat(routes: Routes, turns: RestRuns, recall: Recall, keys: Keys, heartbeat: float) -> None:
    """Add the endpoint that runs agents."""
    parts = routes.parts

    @routes.add("POST", "/agents/{name}/chat", "Say something", response=ChatAnswerModel, responses=_STREAM)
    async def chat(
        request: Request,
        name: AgentName,
        body: Chat,
        idempotency_key: Annotated[str | None, Header(description="Do this once, however often sent")] = None,
        last_event_id: Annotated[str | None, Header(description="Go on after this message")] = None,
    ) -> Response:
        """Without `threadId` a new thread is created. `stream` or the `Accept` header asks for a stream."""
        streamed = body.stream if body.stream is not None else wants_stream(request)
        key = key_in(request)
        after = last_event(request) if key else 0
        asked = await _request(request, name, body)
        if not key:
            log = await turns.begin(asked, leave=streamed)
            return _streamed(log, 0, numbered=False) if streamed else await _complete_answer(request, log)
        owner = asked.principal.id
        given = await request.json()
        async with keys.asking(owner, key, digest_of(name, given)) as (known, new):
            # A run that was never started, because the fleet died before, is started now: a stored run
            # calls no model or tool before the ledger has it.
            if new or (known and parts.kernel.remembers(name) and not await recall.begun(known)):
                await turns.begin(replace(asked, run_id=known), leave=streamed, keyed=True)
        found = recall.log(known)
        if found is None:
            if streamed:
                return _stream(recall.chunks(known, after), {RUN_ID: known}, numbered=True)
            try:
                return _answered(await recall.answer(known), known)
            except Fault as fault:
                return _failed(fault, known)
        if streamed:
            return _streamed(found, after, numbered=True)
        with found.reading():
            await found.wait_ended()
        return _result(found)

    async def _request(request: Request, name: str, body: Chat) -> RunRequest:
        if name not in parts.kernel.list():
            raise not_found(f"there is no agent {one_line(name, 80)!r}")
        principal = principal_of(request)
        given = {key: value for key, value in (await request.json()).items() if key not in _OWN}
        params = Params.read(given, strict=False)
        if body.message is None and params.get("messages") is None:
            raise Fault(FaultType.PROTOCOL, "message: is missing", data={"key": "message"})
        if params.get("messages") is None:  # before an idempotency key is claimed for it
            check_said(body.message or "", images=len(body.images or ()))
        thread = None
        if body.threadId is not None:
            thread = await parts.threads.find(body.threadId, principal, agent=name)
            if thread.agent != name:
                raise not_found(f"this thread is not one of {one_line(name, 80)}")
        return RunRequest(
            agent=name,
            text=body.message or "",
            images=tuple(Image(each.data, each.mime_type) for each in body.images or ()),
            conversation=mint() if thread is None else thread.id,
            new_conversation=thread is None,
            principal=principal,
            caller=one_line(request.headers.get("user-agent", ""), 60),
            trace=incoming(None, request.headers),
            params=params,
            surface="rest",
            provider=body.provider or "",
            # A token of the control API is for this fleet only: it is not forwarded downstream.
            bearer=None if holds_control(principal) else bearer_in(request.headers.get("authorization")),
        )

    def _streamed(log: RunLog, after: int, *, numbered: bool) -> Response:
        headers = {RUN_ID: log.run_id, **({THREAD_ID: log.thread} if log.thread else {})}
        return _stream(log.read(after), headers, numbered=numbered)

    def _stream(chunks: Any, headers: dict[str, str], *, numbered: bool) -> Response:
        return event_stream(chunks, numbered=numbered, headers=headers, heartbeat=heartbeat)

    async def _complete_answer(request: Request, log: RunLog) -> Response:
        """Return the complete answer; a caller that disconnects before cancels the run."""
        ended = asyncio.ensure_future(log.wait_ended())
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({ended, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                raise ClientDisconnect
        finally:
            if not ended.done():
                turns.abandon(log.run_id)
            ended.cancel()
            gone.cancel()
        return _result(log)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _result(log: RunLog) -> Response:
    if log.result is not None:
        return _answered(answer_of(log.result), log.run_id)
    fault = log.fault or Fault(FaultType.INTERNAL, "the run ended without a result; the log has the details")
    return _failed(fault, log.run_id, log.thread)


def _failed(fault: Fault, run_id: str, thread: str = "") -> Response:
    answer = http_faults.answer(fault, of_run=True)
    answer.headers[RUN_ID] = run_id
    if thread:
        answer.headers[THREAD_ID] = thread
    return answer


def _answered(body: dict[str, Any], run_id: str) -> Response:
    headers = {**http_faults.HEADERS, RUN_ID: run_id}
    if body.get("threadId"):
        headers[THREAD_ID] = str(body["threadId"])
    return Response(codec.dumps(body), headers=headers, media_type="application/json")
