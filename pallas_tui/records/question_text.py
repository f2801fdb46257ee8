"""Questions to people in words: what is asked, how it ended, and by whom."""

import json
from dataclasses import replace
from typing import Any

from pallas.model import QuestionAnswered, QuestionAsked
from pallas.model.questions import Question
from pallas.questions.question_events import shown_name
from pallas.safe_text import one_line


def subject_of(record: Question | QuestionAsked) -> str:
    """What is asked, in one line: the call, or the message of a form."""
    if record.kind == "form":
        return one_line(record.message, 300) or "a form to fill in"
    agent = record.tool.removeprefix("agent:")
    return f"ask the agent {agent}" if agent != record.tool else record.tool or "a call"


def outcome_of(record: Question) -> str:
    """How it stands, in a word or two."""
    if record.state != "answered":
        return {"open": "open", "expired": "not answered", "withdrawn": "withdrawn"}[record.state]
    if record.kind == "form":
        return {"accept": "filled in", "decline": "declined"}.get(record.action, "cancelled")
    if record.action == "accept":
        return "allowed always" if record.always else "allowed once"
    return "refused"


def as_answered(record: Question, event: QuestionAnswered) -> Question:
    """A question that was open, as the event says that it ended."""
    state: Any = event.reason if event.reason in ("expired", "withdrawn") else "answered"
    action: Any = event.action if event.action in ("accept", "decline", "cancel") else ""
    return replace(record, state=state, action=action, answered_by=one_line(event.by), answered_at=event.at)


def answer_note(record: Question, event: QuestionAnswered) -> str:
    """How a question ended, as a sentence of the transcript."""
    ended, subject = as_answered(record, event), subject_of(record)
    by = f" by {name}" if (name := answerer_of(ended)) else ""
    word = outcome_of(ended).removesuffix(" once")  # the event does not say whether always
    return f"{subject}: {word}{by}."


def answer_word(event: QuestionAnswered) -> str:
    """Say how a question ended, in a word or two."""
    ended = {"expired": "no answer", "withdrawn": "withdrawn"}
    words = {"accept": "accepted", "decline": "refused"}
    return ended.get(event.reason) or words.get(event.action, "cancelled")


def answerer_of(record: Question) -> str:
    """The name of the person who answered; empty where no one did."""
    return person(record.answered_by) if record.state == "answered" else ""


def person(who: str) -> str:
    """The name of a principal, in words for those that have none."""
    known = {"control:full": "an operator", "local": "the local user", "anonymous": "an anonymous caller"}
    return known.get(who) or shown_name(who)


def arguments_text(record: Question) -> str:
    """The arguments as indented JSON; as they are where they are none."""
    try:
        return json.dumps(json.loads(record.arguments), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return record.arguments
