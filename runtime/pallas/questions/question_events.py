"""What is published and recorded of a question: events, entries of the audit log, lines of the JSON log."""

import logging
from time import time

from pallas.model import Principal, QuestionAnswered, QuestionAsked
from pallas.model.questions import BY_DEADLINE, BY_END, AuditRecord, Question
from pallas.safe_text import one_line

log = logging.getLogger("pallas.audit")


def audit_entry(question: Question, who: str, what: str, detail: str = "") -> AuditRecord:
    """An entry of the audit log."""
    return AuditRecord(
        at=time(),
        who=who,
        what=what,
        question=question.id,
        run=question.run_id,
        agent=question.agent,
        tool=question.tool,
        digest=question.digest,
        detail=detail or (f"form of {one_line(question.server, 80)}" if question.kind == "form" else ""),
    )


def asked_event(question: Question) -> QuestionAsked:
    """The event of a question that is asked, of the run that waits."""
    return QuestionAsked(
        run_id=question.run_id,
        agent=question.agent,
        question=question.id,
        kind=question.kind,
        tool=question.tool,
        server=question.server,
        message=question.message,
        call_id=question.call_id,
        expires_at=question.expires_at,
    )


def answered_event(question: Question) -> QuestionAnswered:
    """The event of a question that is over."""
    return QuestionAnswered(
        run_id=question.run_id,
        agent=question.agent,
        question=question.id,
        action=question.action,
        by=shown_name(question.answered_by),
        reason=question.state if question.state in ("expired", "withdrawn") else "",
    )


def shown_name(who: str) -> str:
    """The name to show for ``answered_by``."""
    return who if who in (BY_DEADLINE, BY_END) else Principal(who).shown or who.partition(":")[0]


def ended_by(question: Question) -> str:
    """How a question ended, in a few words."""
    if question.state == "answered":
        return f"{shown_name(question.answered_by)} said {question.action}"
    return "its time was over" if question.state == "expired" else "its run has ended"


def log_answer(question: Question, principal: Principal) -> None:
    """Write the answer to the JSON log: who, what, and the digest, never the arguments."""
    log.info(
        "%s: %s of %s for %s",
        question.action,
        question.tool or "a form",
        question.agent,
        principal.shown or principal.id,
        extra={
            "audit": question.action,
            "principal": principal.id,
            "question": question.id,
            "run_id": question.run_id,
            "agent": question.agent,
            "target": question.tool,
            "digest": question.digest,
            "always": question.always,
        },
    )
