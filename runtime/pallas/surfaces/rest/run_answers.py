"""Requests that run an agent: who asks, and the answer, as a whole or as a stream while it is written."""

import asyncio
import hashlib
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Header
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pallas.model import Fault, FaultType, RunRequest, codec
from pallas.model.grant_rules import holds_control
from pallas.runs.kernel import Kernel
from pallas.runs.run_keys import MAX_KEY, RunKeys, is_key
from pallas.safe_text import one_line
from pallas.surfaces.request_caller import bearer_in
from pallas.telemetry.trace_context import incoming

from . import http_faults
from .chat_chunks import answer_of
from .chunk_stream import MEDIA, event_stream, last_event, wants_stream
from .request_body import canonical
from .rest_runs import RestRuns
from .route_table import principal_of
from .run_recall import Recall
from .run_replay import RunLog

type IdempotencyKey = Annotated[
    str | None, Header(description="Run the request once, even if it is sent again")
]
type LastEventId = Annotated[str | None, Header(description="Continue after this message")]
RUN_ID: Final = "pallas-run-id"
THREAD_ID: Final = "pallas-thread-id"
DOCUMENTED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The answer: as a whole, or as chunks while it is written",
        "content": {MEDIA: {"schema": {"type": "string"}}},
        "headers": {
            "Pallas-Run-Id": {"schema": {"type": "string"}, "description": "The run"},
            "Pallas-Thread-Id": {"schema": {"type": "string"}, "description": "Its thread, if it has one"},
        },
    }
}
"""The successful response, for the OpenAPI document."""


def _with_caller(request: Request, asked: RunRequest) -> RunRequest:
    """The request for a run with its caller, its trace and its token."""
    principal = principal_of(request)
    return replace(
        asked,
        principal=principal,
        caller=one_line(request.headers.get("user-agent", ""), 60),
        trace=incoming(None, request.headers),
        # A token of the control API is for this fleet only: it is not forwarded downstream.
        bearer=None if holds_control(principal) else bearer_in(request.headers.get("authorization")),
    )


class RunAnswers:
    """Starts the runs of requests and answers with them. ``heartbeat`` as for ``event_stream``."""

    def __init__(
        self, kernel: Kernel, runs: RestRuns, recall: Recall, keys: RunKeys, heartbeat: float
    ) -> None:
        self._kernel = kernel
        self._runs = runs
        self._recall = recall
        self._keys = keys
        self._heartbeat = heartbeat

    async def answer(
        self, request: Request, asked: RunRequest, *, subject: str, streamed: bool | None
    ) -> Response:
        """Run what ``asked`` says for the caller of a request, or join the run that its key belongs to.

        ``subject`` is what the path of the request names. Without ``streamed`` the caller's ``Accept`` header
        decides. Raises Fault.
        """
        asked = _with_caller(request, asked)
        streams = streamed if streamed is not None else wants_stream(request)
        if not (key := key_in(request)):
            log = await self._runs.begin(asked, leave=streams)
            return self._streamed(log) if streams else await self._whole(request, log)
        after = last_event(request)
        digest = digest_of(subject, await request.json())
        async with self._keys.asking(asked.principal.id, key, digest) as (known, new):
            # A run that was never started, because the fleet died before, is started now: a stored run
            # calls no model or tool before the ledger has it.
            if new or (known and self._kernel.remembers(asked.agent) and not await self._recall.begun(known)):
                await self._runs.begin(replace(asked, run_id=known), leave=streams, keyed=True)
        found = self._recall.log(known)
        if found is None:
            return await self._recalled(known, after, streams=streams)
        if streams:
            return self._streamed(found, after, numbered=True)
        with found.reading():
            await found.wait_ended()
        return _result(found)

    async def _recalled(self, run_id: str, after: int, *, streams: bool) -> Response:
        """The answer of a run that is stored."""
        if streams:
            chunks = self._recall.chunks(run_id, after)
            return event_stream(chunks, numbered=True, headers={RUN_ID: run_id}, heartbeat=self._heartbeat)
        try:
            return answered(await self._recall.answer(run_id), run_id)
        except Fault as fault:
            return _failed(fault, run_id)

    def _streamed(self, log: RunLog, after: int = 0, *, numbered: bool = False) -> Response:
        headers = {RUN_ID: log.run_id, **({THREAD_ID: log.thread} if log.thread else {})}
        return event_stream(log.read(after), numbered=numbered, headers=headers, heartbeat=self._heartbeat)

    async def _whole(self, request: Request, log: RunLog) -> Response:
        """The complete answer; a caller that disconnects before cancels the run."""
        ended = asyncio.ensure_future(log.wait_ended())
        gone = asyncio.ensure_future(disconnected(request))
        try:
            await asyncio.wait({ended, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                raise ClientDisconnect
        finally:
            if not ended.done():
                self._runs.abandon(log.run_id)
            ended.cancel()
            gone.cancel()
        return _result(log)


async def disconnected(request: Request) -> None:
    """Wait until the caller of a request is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _result(log: RunLog) -> Response:
    if log.result is not None:
        return answered(answer_of(log.result), log.run_id)
    fault = log.fault or Fault(FaultType.INTERNAL, "the run ended without a result; the log has the details")
    return _failed(fault, log.run_id, log.thread)


def _failed(fault: Fault, run_id: str, thread: str = "") -> Response:
    answer = http_faults.answer(fault, of_run=True)
    answer.headers[RUN_ID] = run_id
    if thread:
        answer.headers[THREAD_ID] = thread
    return answer


def answered(body: dict[str, Any], run_id: str) -> Response:
    """Answer with a document of a run."""
    headers = {**http_faults.HEADERS, RUN_ID: run_id}
    if body.get("threadId"):
        headers[THREAD_ID] = str(body["threadId"])
    return Response(codec.dumps(body), headers=headers, media_type="application/json")


HEADER: Final = "idempotency-key"


def key_in(request: Request) -> str:
    """Return the key of a request, empty without one. Raises Fault (PROTOCOL)."""
    given = request.headers.getlist(HEADER)
    if not given:
        return ""
    key = given[0].strip()
    if len(given) > 1 or not is_key(key):
        raise Fault(
            FaultType.PROTOCOL,
            f"Idempotency-Key: must be one of 1 to {MAX_KEY} printable ASCII characters, for example a UUID",
            data={"key": "Idempotency-Key"},
        )
    return key


def digest_of(agent: str, body: dict[str, Any]) -> str:
    """Return the digest of the request that a key belongs to, whether or not the answer is streamed."""
    asked = {name: value for name, value in body.items() if name != "stream"}
    return hashlib.sha256(canonical([agent, asked])).hexdigest()
