"""The endpoints that run agents: a message to one (AG-15, AG-16), and a run that goes on from a step of
another one. Both answer as a whole or as a stream.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from pallas.bounds.sizes import check_said
from pallas.model import Fault, FaultType, Image, Params, RunRecord, RunRequest
from pallas.model.host_places import HostPlaces
from pallas.model.ids import mint
from pallas.model.refusals import not_found
from pallas.recordings.fork_point import forked_request
from pallas.runs.run_recording import record_run
from pallas.safe_text import one_line

from .request_body import AgentName, Id, plain
from .request_models import Chat, Fork
from .route_table import Routes, principal_of
from .run_answers import DOCUMENTED, IdempotencyKey, LastEventId, RunAnswers
from .run_models import ChatAnswerModel
from .run_recall import Recall
from .version_forks import VersionForks

_OF_CHAT: Final = frozenset({"message", "images", "threadId", "provider", "stream"})
_OF_FORK: Final = frozenset({"step", "message", "result", "version", "stream"})
"""The fields of their bodies that are no parameters."""


def add_chat(routes: Routes, answers: RunAnswers) -> None:
    """Add the endpoint that runs agents."""
    parts = routes.parts

    @routes.add(
        "POST", "/agents/{name}/chat", "Send a message", response=ChatAnswerModel, responses=DOCUMENTED
    )
    async def chat(
        request: Request,
        name: AgentName,
        body: Chat,
        idempotency_key: IdempotencyKey = None,
        last_event_id: LastEventId = None,
    ) -> Response:
        """Without `threadId` a new thread is created. `stream` or the `Accept` header asks for a stream."""
        asked = await _request(request, name, body)
        return await answers.answer(request, asked, subject=name, streamed=body.stream)

    async def _request(request: Request, name: str, body: Chat) -> RunRequest:
        if name not in parts.kernel.list():
            raise not_found(f"there is no agent {one_line(name, 80)!r}")
        principal = principal_of(request)
        given = {key: value for key, value in (await request.json()).items() if key not in _OF_CHAT}
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
            params=params,
            surface="rest",
            provider=body.provider or "",
        )


def add_forks(routes: Routes, recall: Recall, answers: RunAnswers) -> None:
    """Add the endpoint that goes on from a step."""
    parts, versions = routes.parts, VersionForks()

    @routes.add(
        "POST",
        "/runs/{id}/fork",
        "Continue from a step of a run",
        response=ChatAnswerModel,
        responses=DOCUMENTED,
    )
    async def fork_run(
        request: Request,
        id: Id,  # noqa: A002 - the word of the path
        body: Fork,
        idempotency_key: IdempotencyKey = None,
        last_event_id: LastEventId = None,
    ) -> Response:
        """Does `step` once more, in a thread of its own: a question to the model, or a call, which has
        `result` if that is given. Needs `run:agents` for the agent, and `view:agents` for each agent in the
        run. With `version`, a revision of git, the project as it was then goes on, in a fleet of its own
        whose ledger ends with it: the answer has the `recording`. That needs `edit:agents` too, and takes no
        parameter but `model`."""
        plain(id)
        principal = principal_of(request)
        record = await recall.record(id, principal)
        parts.grants.require(principal, "run", "agents", record.agent)
        if body.message is not None:
            check_said(body.message, images=0)

        def check(run: RunRecord) -> None:
            parts.grants.require(principal, "view", "agents", run.agent)

        recording = await record_run(parts.kernel, parts.ledger, parts.project(), record.id, check)
        given = {key: value for key, value in (await request.json()).items() if key not in _OF_FORK}
        asked = forked_request(
            recording,
            body.step,
            message=body.message,
            result=body.result,
            params=Params.read(given, strict=False),
        )
        if body.version is not None:
            parts.grants.require(principal, "edit", "agents", record.agent)
            changes, root = _of_version(body, given), parts.project().root
            recording = await asyncio.to_thread(HostPlaces.of(root).all_marked, recording)
            return await versions.answer(request, recording, changes, body.version, root)
        asked = replace(asked, conversation=mint(), new_conversation=True)
        return await answers.answer(request, asked, subject=f"fork of {record.id}", streamed=body.stream)


def _of_version(body: Fork, given: Mapping[str, Any]) -> dict[str, Any]:
    """What is other in a run with another version. Raises Fault (PROTOCOL) for what it cannot have."""
    if body.stream:
        text = "stream: a run of another version is answered as a whole; leave it out"
        raise Fault(FaultType.PROTOCOL, text, data={"key": "stream"})
    for key, value in given.items():
        if key != "model" or not isinstance(value, str | None):
            text = f"{one_line(key, 60)}: a run of another version takes no parameter but model; leave it out"
            raise Fault(FaultType.PROTOCOL, text, data={"key": key})
    changes = {"step": body.step, "message": body.message, "result": body.result, "model": given.get("model")}
    return {name: value for name, value in changes.items() if value is not None}
