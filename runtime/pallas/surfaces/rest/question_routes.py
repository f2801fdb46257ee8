"""The endpoints of questions: list, show, answer; and the audit log."""

from typing import Annotated, Any, Literal

from fastapi import Query
from starlette.requests import Request

from pallas.model.codec import loads
from pallas.model.questions import AuditRecord, Question, QuestionAnswer
from pallas.model.time_text import iso
from pallas.questions.questions import Questions

from .request_body import Cursor, Filter, Id, Limit, page_of, plain
from .request_models import QuestionAnswerBody
from .response_models import AuditModel, PageOf, QuestionModel
from .route_table import Routes, principal_of

State = Literal["open", "answered", "expired", "withdrawn", "all"]


def question_out(question: Question) -> QuestionModel:
    """Return a question as it is sent."""
    return QuestionModel(
        id=question.id,
        kind=question.kind,
        runId=question.run_id,
        rootRunId=question.root,
        agent=question.agent,
        path=list(question.path),
        threadId=question.thread or None,
        ownerId=question.owner,
        tool=question.tool or None,
        server=question.server or None,
        callId=question.call_id or None,
        digest=question.digest or None,
        arguments=loads(question.arguments) if question.arguments else None,
        message=question.message,
        form=dict(question.schema) or None,
        askedAt=iso(question.asked_at),
        expiresAt=iso(question.expires_at),
        state=question.state,
        action=question.action or None,
        always=question.always,
        content=dict(question.content) or None,
        answeredBy=question.answered_by or None,
        answeredAt=None if question.answered_at is None else iso(question.answered_at),
        used=question.used,
    )


def add_questions(routes: Routes) -> None:
    """Add the endpoints of questions and of the audit log."""

    def questions() -> Questions:
        return routes.parts.kernel.questions

    @routes.add("GET", "/questions", "Questions to people, the newest first", response=PageOf[QuestionModel])
    async def list_questions(
        request: Request,
        state: Annotated[State, Query()] = "open",
        run: Filter = "",
        thread: Filter = "",
        limit: Limit = 50,
        cursor: Cursor = "",
    ) -> dict[str, Any]:
        """Your own; with `approve` on agents, those of these agents too. `run` may be any run of a tree."""
        plain(run, thread, cursor)
        found = await questions().list(
            principal_of(request),
            state=None if state == "all" else state,
            run_id=run,
            thread=thread,
            limit=limit,
            cursor=cursor,
        )
        return page_of(found, question_out)

    @routes.add("GET", "/questions/{id}", "A question", response=QuestionModel)
    async def get_question(request: Request, id: Id) -> QuestionModel:  # noqa: A002 - the word of the path
        """What is asked, by whom, and how it ended."""
        plain(id)
        return question_out(await questions().get(id, principal_of(request)))

    @routes.add("POST", "/questions/{id}/answer", "Answer a question", response=QuestionModel)
    async def answer_question(
        request: Request,
        id: Id,  # noqa: A002 - as above
        body: QuestionAnswerBody,
    ) -> QuestionModel:
        """Once: the first answer counts. `always` allows the tool in this thread from now on."""
        plain(id)
        answer = QuestionAnswer(body.action, body.content, body.always)
        return question_out(await questions().answer(id, answer, principal_of(request)))

    @routes.add("GET", "/audit", "The audit log, the newest first", response=PageOf[AuditModel])
    async def list_audit(
        request: Request,
        who: Filter = "",
        run: Filter = "",
        tool: Filter = "",
        limit: Limit = 50,
        cursor: Cursor = "",
    ) -> dict[str, Any]:
        """Who was asked, who answered, and which calls were made. Needs `approve:agents`."""
        plain(who, run, tool, cursor)
        found = await questions().audit(
            principal_of(request), who=who, run=run, tool=tool, limit=limit, cursor=cursor
        )
        return page_of(found, _audit_out)


def _audit_out(entry: AuditRecord) -> AuditModel:
    return AuditModel(
        id=entry.id,
        at=iso(entry.at),
        who=entry.who,
        what=entry.what,
        question=entry.question or None,
        run=entry.run or None,
        agent=entry.agent or None,
        tool=entry.tool or None,
        digest=entry.digest or None,
        detail=entry.detail or None,
    )
